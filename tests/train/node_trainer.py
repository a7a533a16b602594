"""A trainer in the place of LLaMA-Factory's that meets the other nodes as torchrun would: by a port on node 0.

Every step needs a word from every node. `BEHAVE` says what goes wrong, and where: `<node>:<what>`, with `what` one of
`raise` (an error of its own at step 2), `hang` (from step 2 on), `wait` (at step 2, until `RUN/go` is there).
"""

import json
import os
import socket
import sys
import time
from pathlib import Path

import yaml

from tests.train.fake_checkpoints import checkpoint

STEPS = 4


class Meeting:
    """The connection to the other nodes."""

    def __init__(self):
        self.rank, count = int(os.environ["NODE_RANK"]), int(os.environ["NNODES"])
        address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        if self.rank == 0:
            listener = socket.create_server(("", address[1]))
            self.others = [listener.accept()[0] for _ in range(count - 1)]
        else:
            self.others = [self.reach(address)]

    def reach(self, address):
        while True:
            try:
                return socket.create_connection(address)
            except ConnectionRefusedError:
                time.sleep(0.05)

    def step(self):
        """Send a word to all and hear one of each."""
        for other in self.others:
            other.sendall(b"x")
        for other in self.others:
            if other.recv(1) != b"x":
                raise RuntimeError("Connection closed by peer")


def main():
    config = yaml.safe_load(Path(sys.argv[2]).read_text())
    out = Path(config["output_dir"])
    resumed = config.get("resume_from_checkpoint", "")
    start = int(resumed.rpartition("-")[2]) if "checkpoint-" in resumed else 0
    node, _, behave = os.environ.get("BEHAVE", "").partition(":")
    meeting = Meeting()
    for step in range(start + 1, STEPS + 1):
        if step == 2 and node == str(meeting.rank):
            if behave == "raise":
                raise ValueError("bad luck")
            while behave == "hang" or (behave == "wait" and not (out.parent.parent / "go").exists()):
                time.sleep(0.05)
        meeting.step()
        if meeting.rank == 0:
            facts = {"current_steps": step, "total_steps": STEPS, "loss": 5.0 - step, "lr": 0.1}
            with (out / "trainer_log.jsonl").open("a") as log:
                log.write(json.dumps(facts) + "\n")
            world = int(os.environ["NNODES"]) * int(os.environ["NPROC_PER_NODE"])
            checkpoint(out / f"checkpoint-{step}", step=step, world_size=world, max_steps=STEPS)


main()
