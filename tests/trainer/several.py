"""Trains what it is asked to, one training after another, in the processes that torchrun started once for all tests.

    python several.py FOLDER PID

FOLDER gets a file `0`, `1`, ... for each request: a line for each training, CONFIG[@STEP]: as the settings in CONFIG
say, stopped before STEP as by a crash. When all processes are done there is a file `0.done`. They end with the process
PID.
"""

import sys
import time
from itertools import count
from pathlib import Path


class Stopped(Exception):
    pass


def stopping(kind, before):
    class Stopping(kind):
        def step(self, worker, learned, number):
            if number == before:
                raise Stopped
            return super().step(worker, learned, number)

    return Stopping


def requests(folder, owner):
    """Yield each request's file and its lines, until the owner has ended."""
    for number in count():
        file = folder / str(number)
        while not file.exists():
            if not owner.exists():
                return
            time.sleep(0.02)
        yield file, file.read_text().splitlines()


def main(folder, pid):
    import torch

    from webgym_cli.trainer.__main__ import trainer_class
    from webgym_cli.trainer.engine.distributed import init, shutdown
    from webgym_cli.trainer.options import read_options

    torch.set_num_threads(1)
    world = init(grouped=True)
    for file, configs in requests(Path(folder), Path("/proc", pid)):
        for config in configs:
            path, _, step = config.partition("@")
            options = read_options(Path(path))
            kind = stopping(trainer_class(options), int(step)) if step else trainer_class(options)
            try:
                kind(options, world).run()
            except Stopped:
                world.wait()
        world.wait()
        if world.is_main_process:
            Path(f"{file}.done").touch()
    shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
