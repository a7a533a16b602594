"""Appends trajectories to one file while its disk fails now and then; says on stdout what it was told is stored."""

import os
import random
import sys
from pathlib import Path

from tests.records.builders import trajectory
from webgym_cli.errors import StoreError
from webgym_cli.store.buffer import append
from webgym_cli.store.run import RunDir


def main() -> None:
    """Append so many, from so many on."""
    run, first, count = RunDir(Path(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3])
    chance, real = random.Random(first), os.fsync

    def fsync(handle: int) -> None:
        real(handle)  # a failure comes late: by then another may have appended
        if chance.random() < 0.3:
            raise OSError(28, "No space left on device")

    os.fsync = fsync
    sys.stdin.readline()
    for number in range(first, first + count):
        episode = trajectory(number, steps=0, instruction="x" * chance.randrange(1, 200_000))
        try:
            append(run, episode)
        except StoreError:
            continue
        sys.stdout.write(f"{episode.id}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
