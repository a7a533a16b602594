"""A training backend that is a script: for a trainer of one's own, registered from a file of `plugins`."""

from __future__ import annotations

import functools
import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from webgym_cli.records.dataset import Prepared
from webgym_cli.store import checkpoints
from webgym_cli.store.current_algorithm import algorithm
from webgym_cli.train import rl_batch, working_dir
from webgym_cli.train.backend import PlanInputs, PreparedData, TrainingBackend
from webgym_cli.train.llamafactory import dataset
from webgym_cli.train.training_plan import TrainPlan
from webgym_cli.venvs.locate import resolve_device

LAUNCH_FILE = "launch.json"


class _Data(NamedTuple):
    name: str
    iteration: int
    parent: str
    model: str
    folder: Path
    digest: str


def script_backend(script: str | Path, data: PreparedData, python: str | Path = sys.executable) -> TrainingBackend:
    """Return a backend that runs `python script launch.json` in the training's folder, on one node.

    `launch.json` holds `model` (folder or hub id), `data` (folder of what `webgym prepare` wrote), `output_dir`,
    `seed`, `resume_from_checkpoint` (the newest whole checkpoint of an interrupted training, or null) and `extra`
    (`train.extra`). What the script leaves: see `TrainingBackend`.
    """
    file = Path(script).resolve()
    interpreter = Path(python).absolute()  # not resolved: an environment's python is a link out of it
    plan = functools.partial(_plan_script, data=data, file=file, python=interpreter)

    def command(python: Path, launch_file: str, *, processes: int, nodes: int) -> tuple[str, ...]:
        return (str(interpreter), str(file), launch_file)

    return TrainingBackend(plan, command, data)


def _plan_script(inputs: PlanInputs, *, data: PreparedData, file: Path, python: Path) -> TrainPlan:
    run, settings = inputs.run, inputs.settings
    prepared = _read_prepared(inputs, data)
    folder = working_dir.partial_folder(run, prepared.name)
    learned: dict[str, Any] = {
        "model": prepared.model,
        "data": str(prepared.folder.resolve()),
        "seed": settings.seed,
        "extra": settings.train.extra,
    }
    identity = working_dir.TrainingIdentity(
        data_digest=prepared.digest,
        config_digest=hashlib.sha256(json.dumps([str(file), learned], sort_keys=True).encode()).hexdigest(),
        parent=prepared.parent,
        carried=False,
        world_size=1,
        zero_stage=None,
    )
    plan = TrainPlan(
        name=prepared.name,
        iteration=prepared.iteration,
        parent=prepared.parent,
        model=prepared.model,
        algorithm=algorithm(run, settings),
        python=python,
        device=resolve_device(settings.venvs.device),
        argv=(str(python), str(file), LAUNCH_FILE),
        env={},
        folder=folder,
        config=learned | {"output_dir": str(folder.resolve()), "resume_from_checkpoint": None},
        launch_file=LAUNCH_FILE,
        deepspeed=None,
        training=identity,
        total_steps=1,
        time_limit=settings.train.time_limit_minutes * 60,
    )
    return _continue(inputs, plan)


def _read_prepared(inputs: PlanInputs, data: PreparedData) -> _Data:
    """Return what `webgym prepare` wrote. Raises `MissingStageError` unless it is the current policy's."""
    run, settings = inputs.run, inputs.settings
    if data == "dataset":
        prepared: Prepared = dataset.read_prepared(run)
        digest, model = dataset.read_data_digest(run, prepared), str(checkpoints.policy_path(run, settings))
        return _Data(prepared.model_name, prepared.iteration, prepared.parent, model, run.dataset, digest)
    batch = rl_batch.read_batch(run, settings, webrl=data == "transitions")
    return _Data(batch.model_name, batch.iteration, batch.policy, batch.model, run.rl_data, batch.digest)


def _continue(inputs: PlanInputs, plan: TrainPlan) -> TrainPlan:
    """Return the plan that goes on from the newest whole checkpoint of an interrupted training, where there is one."""
    for folder, _ in working_dir.find_interrupted(inputs.run, plan.training):
        adopted = folder if folder != plan.folder else None
        if done := working_dir.finished_checkpoint(folder):
            return replace(plan, mode="finished", source=plan.folder / done.name, adopted=adopted)
        if newest := working_dir.newest_complete(folder):
            here = plan.folder / newest.name
            overrides = {"resume_from_checkpoint": str(here)}
            note = f"goes on after step {working_dir.step_of(newest)} of the interrupted training"
            return replace(plan, mode="continued", source=here, adopted=adopted, overrides=overrides, notes=(note,))
    return plan
