"""Forks writers and kills each after so many microseconds: warm, so that 200 deaths take seconds.

A line `<number> <microseconds> <run>` on stdin is one death. The writer says on stdout what it was told is stored, a
line each; `dead` follows when it is gone.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from itertools import count
from pathlib import Path

from tests.records.made import trajectory
from tests.records.test_record_judgement import judgement
from webgym_cli.records.task import Split
from webgym_cli.store.buffer import append, append_judgement
from webgym_cli.store.index.build import catch_up
from webgym_cli.store.run import RunDir


def write(run: RunDir, number: int) -> None:
    """Append, acknowledge, judge, index: until killed."""
    chance = random.Random(number)
    for again in count():
        made = trajectory(number * 1000 + again, steps=1, instruction="x" * int(10 ** chance.uniform(1, 5.5)))
        append(run, made, rank=number % 2)
        os.write(1, f"stored {made.id} {len(made.instruction)}\n".encode())
        if chance.random() < 0.3:
            append_judgement(run, Split.TRAIN, 0, judgement(trajectory=made.id, success=False))
            os.write(1, f"judged {made.id}\n".encode())
        if chance.random() < 0.2:
            catch_up(run)


def main() -> None:
    """Serve deaths until stdin ends."""
    for line in sys.stdin:
        number, delay, root = line.rstrip("\n").split(" ", 2)
        if not (writer := os.fork()):
            write(RunDir(Path(root)), int(number))
        time.sleep(int(delay) / 1e6)  # not a wait for anything: it is the point at which the writer dies
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
        os.write(1, b"dead\n")


if __name__ == "__main__":
    main()
