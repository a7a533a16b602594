"""Forks writers and kills each somewhere in its work: warm, so that a hundred deaths take seconds.

A line `<number> <run>` on stdin is one death. What the writer was told is stored comes on stdout, a line each; `dead`
follows when it is gone.
"""

import os
import random
import signal
import sys
import time
from itertools import count
from pathlib import Path
from typing import BinaryIO

from tests.records.builders import trajectory
from tests.records.test_judgement import judgement
from webgym_cli.records.task import Split
from webgym_cli.store.buffer import append, append_judgement
from webgym_cli.store.index.build import update
from webgym_cli.store.run import RunDir

LONGEST = 6
"""Lines that a writer says before the moment of its death is drawn."""
MOMENT = 0.01
"""Seconds: some appends, or one with catching up."""


def write(run: RunDir, number: int, binary_io: BinaryIO) -> None:
    """Append, acknowledge, judge, index: until killed."""
    chance = random.Random(number)
    for again in count():
        episode = trajectory(number * 1000 + again, steps=1, instruction="x" * int(10 ** chance.uniform(1, 6)))
        append(run, episode, rank=number % 2)
        binary_io.write(f"stored {episode.id} {len(episode.instruction)}\n".encode())
        if chance.random() < 0.3:
            append_judgement(run, Split.TRAIN, 0, judgement(trajectory=episode.id, success=False))
            binary_io.write(f"judged {episode.id}\n".encode())
        if chance.random() < 0.4:
            update(run)


def die(run: RunDir, number: int) -> list[bytes]:
    """Let a writer work and die; return what it was told."""
    chance = random.Random(-number)
    hearing, telling = os.pipe()
    if not (writer := os.fork()):
        with os.fdopen(telling, "wb", buffering=0) as file_io:
            write(run, number, file_io)
    os.close(telling)
    with os.fdopen(hearing, "rb") as buffered_reader:
        rows = [buffered_reader.readline() for _ in range(chance.randrange(LONGEST))]
        time.sleep(chance.uniform(0, MOMENT))  # not a wait for anything: it is the point at which the writer dies
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
        return [*rows, *buffered_reader]


def main() -> None:
    """Serve deaths until stdin ends."""
    for line in sys.stdin:
        number, root = line.rstrip("\n").split(" ", 1)
        sys.stdout.write(b"".join(die(RunDir(Path(root)), int(number))).decode() + "dead\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
