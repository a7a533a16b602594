"""A trainer in the place of LLaMA-Factory's that meets the other nodes as torchrun would: by a port on node 0.

Every step needs a word from every node, and every node leaves its share of the checkpoint in its own output folder.
`BEHAVE` says what goes wrong, and where: `<node>:<what>`, with `what` one of `raise` (an error of its own at step 2),
`hang` (from step 2 on), `talk` (at step 2, for 5 s), `wait` (at step 2, until `RUN/go` is there), `stay` (after the
last step).
"""

import json
import os
import socket
import sys
import time
from pathlib import Path

import yaml

from tests.train.fake_checkpoints import archive, checkpoint

STEPS = 4


class Meeting:
    """The connection to the other nodes."""

    def __init__(self):
        self.rank, count = int(os.environ["PET_NODE_RANK"]), int(os.environ["PET_NNODES"])
        address = (os.environ["PET_MASTER_ADDR"], int(os.environ["PET_MASTER_PORT"]))
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


def share(out, rank, step):
    """What DeepSpeed leaves of another rank than 0."""
    folder = out / f"checkpoint-{step}"
    archive(folder / f"rng_state_{rank}.pth")
    archive(folder / f"global_step{step}" / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")


def require_images(config):
    """Every image that a sample names must be there."""
    info = json.loads((Path(config["dataset_dir"]) / "dataset_info.json").read_text())
    samples = json.loads((Path(config["dataset_dir"]) / info[config["dataset"]]["file_name"]).read_text())
    images = [Path(config["dataset_dir"]) / image for sample in samples for image in sample["images"]]
    if not images or not all(image.is_file() for image in images):
        raise FileNotFoundError("an image is missing")


def main():
    config = yaml.safe_load(Path(sys.argv[-1]).read_text())
    out = Path(config["output_dir"])
    resumed = config.get("resume_from_checkpoint", "")
    start = int(resumed.rpartition("-")[2]) if "checkpoint-" in resumed else 0
    node, _, behave = os.environ.get("BEHAVE", "").partition(":")
    require_images(config)
    meeting = Meeting()
    for step in range(start + 1, STEPS + 1):
        if step == 2 and node == str(meeting.rank):
            if behave == "raise":
                raise ValueError("bad luck")
            for number in range(50 if behave == "talk" else 0):
                sys.stderr.write(f"{number}\n")
                time.sleep(0.1)
            while behave == "hang" or (behave == "wait" and not (out.parent.parent / "go").exists()):
                time.sleep(0.05)
        meeting.step()
        if meeting.rank == 0:
            checkpoint(out / f"checkpoint-{step}", step=step, zero=True, max_steps=STEPS)
        meeting.step()
        if meeting.rank:
            share(out, meeting.rank, step)
        meeting.step()
        if meeting.rank == 0:
            facts = {"current_steps": step, "total_steps": STEPS, "loss": 5.0 - step, "lr": 0.1}
            with (out / "trainer_log.jsonl").open("a") as log:
                log.write(json.dumps(facts) + "\n")
    while behave == "stay" and node == str(meeting.rank):
        time.sleep(0.05)


main()
