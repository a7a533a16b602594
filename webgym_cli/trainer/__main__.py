"""Entry point of the policy-gradient trainer: trains a policy on a batch of its episodes.

    python -m webgym_cli.trainer CONFIG.json        (or torchrun, for several processes)

CONFIG.json holds `options.TrainerOptions`. The same command resumes an interrupted training. Exit status: 0 when
the model is written; 1, with one line on stderr, on failure.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from webgym_cli.config.estimators import ESTIMATORS
from webgym_cli.errors import WebGymError
from webgym_cli.trainer.engine.distributed import init, shutdown
from webgym_cli.trainer.options import TrainerOptions, TrainingError, read_options
from webgym_cli.trainer.ppo.ppo_trainer import PolicyGradientTrainer
from webgym_cli.trainer.ppo.trainer import Trainer
from webgym_cli.trainer.webrl.webrl_trainer import WebRLTrainer
from webgym_cli.util.registry import import_plugins
from webgym_cli.util.text import first_line


def trainer_class(options: TrainerOptions) -> type[Trainer]:
    """Return the trainer class for the settings."""
    return PolicyGradientTrainer if options.webrl is None else WebRLTrainer


def load_plugins(options: TrainerOptions) -> None:
    """Import the plugins that register the advantage estimator. Raises `TrainingError` if it stays unknown."""
    problems = []
    for plugin in options.plugins:
        # a plugin may import libraries that this venv lacks for its other items: only the estimator matters
        try:
            import_plugins([plugin])
        except WebGymError as error:
            problems.append(str(error))
    name = options.algorithm.adv_estimator
    if problems and ":" not in name and name not in ESTIMATORS.names():
        raise TrainingError(
            f"{problems[0]}: put the estimator {name} into a file that the train environment can import"
        )


def main(arguments: list[str]) -> int:
    """Train with the options of a file; return the exit status."""
    if len(arguments) != 1:
        sys.stderr.write("webgym: usage: python -m webgym_cli.trainer CONFIG.json\n")
        return 1
    try:
        options = read_options(Path(arguments[0]))
        load_plugins(options)
        trainer_class(options)(options, init(grouped=options.trainer.deepspeed is not None)).run()
        shutdown()  # not after an error: the other processes may never reach it
    except (WebGymError, OSError) as error:
        sys.stderr.write(f"webgym: {error}\n")
        return 1
    except torch.OutOfMemoryError as error:
        advice = "lower actor.ppo_max_token_len_per_gpu, or let DeepSpeed divide or offload"
        sys.stderr.write(f"webgym: the GPU's memory is full: {advice} ({first_line(error)})\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
