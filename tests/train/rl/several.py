"""Trains several times, one after another, in the processes that torchrun started.

python several.py START CONFIG[@STEP] ...: each as the settings in CONFIG say, stopped before STEP as by a crash.
"""

import runpy
import sys
from pathlib import Path


class Stopped(Exception):
    pass


def stopping(trainer, before):
    whole = trainer.Worker.step

    class Worker(trainer.Worker):
        def step(self, engines, rows, lessons, number):
            if number == before:
                raise Stopped
            return whole(self, engines, rows, lessons, number)

    return Worker


def main(start, *configs):
    runpy.run_path(start)["make_importable"]()
    import torch

    from webgym_cli.train.rl import trainer
    from webgym_cli.train.rl.processes import join, leave
    from webgym_cli.train.rl.settings import read_options

    torch.set_num_threads(1)
    world, plain = join(grouped=True), trainer.Worker
    for config in configs:
        path, _, step = config.partition("@")
        trainer.Worker = stopping(trainer, int(step)) if step else plain
        try:
            trainer.Trainer(read_options(Path(path)), world).run()
        except Stopped:
            world.wait()
    leave()


if __name__ == "__main__":
    main(*sys.argv[1:])
