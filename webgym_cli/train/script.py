"""A training backend that runs a user's script, registered from a file of `plugins`."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

from webgym_cli.train import working_dir
from webgym_cli.train.backend import Placement, PlanInputs, TrainerLaunch, TrainingBackend, TrainingStart, TrainPlan
from webgym_cli.train.plan import build_plan, find_resumable, identify
from webgym_cli.venvs.locate import resolve_device

LAUNCH_FILE = "launch.json"


def script_backend(script: str | Path, data: str, python: str | Path = sys.executable) -> TrainingBackend:
    """Return a backend that runs `python script launch.json` in the training's folder, on one node.

    `data`: the kind of training data (`prepare.data.PREPARED_DATA`). `launch.json` holds `model` (folder or hub id),
    `data` (folder of what `webgym prepare` wrote), `output_dir`, `seed`, `resume_from_checkpoint` (the newest whole
    checkpoint of an interrupted training, or null) and `extra` (`train.extra`). What the script leaves: see
    `TrainingBackend`.
    """
    file = Path(script).resolve()
    interpreter = Path(python).absolute()  # not resolved: a venv's python is a symlink out of the venv
    return TrainingBackend(functools.partial(_plan_script, file=file, python=interpreter), data)


def _plan_script(inputs: PlanInputs, *, file: Path, python: Path) -> TrainPlan:
    run, settings = inputs.run, inputs.settings
    prepared = inputs.prepared.read(run, settings)
    learned: dict[str, Any] = {
        "model": prepared.model,
        "data": str(inputs.prepared.folder(run).resolve()),
        "seed": settings.seed,
        "extra": settings.train.extra,
    }
    folder, placement = working_dir.partial_folder(run, prepared.name), Placement(resolve_device(settings.venvs.device))
    training = identify(prepared, placement, working_dir.digest_options(run, [str(file), learned]))
    start = find_resumable(folder, working_dir.find_interrupted(run, training), working_dir.newest_complete)
    launch = TrainerLaunch(
        python=python,
        argv=(str(python), str(file), LAUNCH_FILE),
        config=learned | {"output_dir": str(folder.resolve()), "resume_from_checkpoint": None},
        file=LAUNCH_FILE,
        placement=placement,
    )
    return build_plan(inputs, prepared, launch, start or TrainingStart(training))
