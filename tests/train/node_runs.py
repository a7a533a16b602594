"""A run that several nodes train, all of them on this machine, with the scripted trainer."""

import sys
from pathlib import Path

from tests.train.train_data import prepare, rows, settings_for
from webgym_cli.store.run import create_or_open

NAME = "model_20260109_000000"
ROOT = Path(__file__).resolve().parents[2]
TRAINER = Path(__file__).with_name("node_trainer.py")


def scripted(role: Path) -> None:
    """Have a role's LLaMA-Factory be the scripted trainer. `behave` in its folder takes the place of `BEHAVE`."""
    python = role / "bin/python"
    behave = f'BEHAVE=$(cat {role}/behave 2>/dev/null || echo "$BEHAVE")'
    starts = f'{behave} PYTHONPATH={ROOT} exec {sys.executable} {TRAINER} "$@"'
    python.write_text(f'#!/bin/sh\ncase "$*" in *llamafactory.launcher*) {starts};; esac\n')
    python.chmod(0o755)


def ready(run, role, images, name=NAME, digest="d0", **train):
    """Prepare a dataset and return the settings, those of the run."""
    scripted(role)
    settings = settings_for(role=role, train={"nproc_per_node": 1} | train)
    create_or_open(run, settings)
    prepare(run, settings, rows(images, 4), name, digest)
    return settings
