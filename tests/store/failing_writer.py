"""Processes that append trajectories to one file while the disk fails; what they were told is stored is on stdout."""

import os
import random
import sys
from pathlib import Path

from tests.records.builders import trajectory
from webgym_cli.errors import StoreError
from webgym_cli.store.buffer import append
from webgym_cli.store.run import RunDir


def write(run: RunDir, first: int) -> None:
    """Append forty, from one on."""
    chance, real = random.Random(first), os.fsync

    def fsync(handle: int) -> None:
        real(handle)  # a failure comes late: by then another may have appended
        if chance.random() < 0.3:
            raise OSError(28, "No space left on device")

    os.fsync = fsync
    for number in range(first, first + 40):
        episode = trajectory(number, steps=0, instruction="x" * chance.randrange(1, 200_000))
        try:
            append(run, episode)
        except StoreError:
            continue
        os.write(1, f"{episode.id}\n".encode())


def main() -> None:
    """Fork a writer for each first number; exit with 0 if all of them do."""
    run, writers = RunDir(Path(sys.argv[1])), []
    for first in map(int, sys.argv[2:]):
        if not (writer := os.fork()):
            write(run, first)
            return
        writers.append(writer)
    sys.exit(any(os.waitpid(writer, 0)[1] for writer in writers))


if __name__ == "__main__":
    main()
