"""Trains several times, one after another, in the processes that torchrun started.

python several.py START CONFIG[@STEP] ...: each as the settings in CONFIG say, stopped before STEP as by a crash.
"""

import runpy
import sys
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


def main(start, *configs):
    runpy.run_path(start)["make_importable"]()
    import torch

    from webgym_cli.train.rl.distributed import init, shutdown
    from webgym_cli.train.rl.main import trainer_class
    from webgym_cli.train.rl.options import read_options

    torch.set_num_threads(1)
    world = init(grouped=True)
    for config in configs:
        path, _, step = config.partition("@")
        options = read_options(Path(path))
        kind = stopping(trainer_class(options), int(step)) if step else trainer_class(options)
        try:
            kind(options, world).run()
        except Stopped:
            world.wait()
    shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
