"""Carries Adam's moments from one iteration's training into the next.

LLaMA-Factory can resume from a checkpoint, but then it also restores that training's step count, data position and
learning rate. So a copy of the parent is written in which exactly these are reset: large files are hard links, small
ones are rewritten by `optimizer_carryover_script.py` in the train venv, which has torch.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from webgym_cli.config.model import Settings
from webgym_cli.errors import JobError
from webgym_cli.jobs.process import last_line
from webgym_cli.records.events import EventSink
from webgym_cli.train.backend import TrainingStart, TrainPlan, fresh_note
from webgym_cli.train.process_limits import run_within
from webgym_cli.util.files import disk_errors
from webgym_cli.venvs.locate import trainer_environ

BUILDER = Path(__file__).with_name("optimizer_carryover_script.py")
# Exit status of the script if the parent's states can't be carried; its last line is the reason.
UNUSABLE = 3
# AdamW's options in the trainer's configuration, with transformers' defaults.
ADAM = {"weight_decay": 0.0, "adam_beta1": 0.9, "adam_beta2": 0.999, "adam_epsilon": 1e-8}


async def build_start(plan: TrainPlan, settings: Settings, log: Path, sink: EventSink) -> TrainPlan:
    """Build the starting state with carried optimizer states; fall back to a new optimizer."""
    launch, parent = plan.launch, cast(Path, plan.start.source)
    options = ADAM | plan.options
    options = {name: options[name] for name in ("learning_rate", *ADAM)}
    options |= steps_for(plan.options, plan.total_steps)
    target = Path(plan.options["resume_from_checkpoint"])
    work = target.with_name(f"{target.name}.new")
    for folder in (target, work):
        shutil.rmtree(folder, ignore_errors=True)
    with disk_errors(target.parent):
        work.mkdir()
    argv = [str(launch.python), str(BUILDER), str(parent), str(work), json.dumps(options)]
    env = trainer_environ(launch.python) | launch.env
    name = "preparing the optimizer states"
    code = await run_within(settings.train, argv, name, env=env, log=log, folder=work)
    reason = _explain_build(code, parent, log)
    message = fresh_note(reason) if reason else f"the optimizer goes on from {parent.name}"
    sink({"event": "train_note", "message": message})
    if not reason:
        work.rename(target)  # it has this name only when it is complete
        return plan
    return replace(plan, start=TrainingStart(plan.start.training.model_copy(update={"carried": False}), note=message))


def steps_for(config: dict[str, Any], total: int) -> dict[str, int]:
    """Return the logging, evaluation and save steps, which the trainer would otherwise take from the parent's state."""
    logging = config.get("logging_steps") or 500
    wanted = {
        "logging_steps": logging,
        "eval_steps": config.get("eval_steps") or logging,
        "save_steps": config.get("save_steps") or 500,
    }
    # shares of the training become steps, as the trainer does it
    return {name: int(value) if value >= 1 else max(1, -int(-total * value // 1)) for name, value in wanted.items()}


def _explain_build(code: int, parent: Path, log: Path) -> str:
    """Return why the moments can't be carried; empty if they are. Raises `JobError` for a builder that failed."""
    if code == 0:
        return ""
    if code == UNUSABLE:
        return last_line(log).removeprefix("webgym: ")
    raise JobError(
        f"the optimizer states of {parent.name} couldn't be prepared (exit status {code}): {last_line(log)}",
        hint=f"read {log}; -s train.keep_optimizer_state=false starts with a fresh optimizer",
        returncode=code,
    )
