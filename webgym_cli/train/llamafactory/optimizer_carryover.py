"""Carries Adam's moments from one iteration's training into the next.

The trainer can resume from a checkpoint, but then it also restores that training's step count, data position and
learning rate. So a copy of the parent is written in which exactly these are reset: large files are hard links, small
ones are rewritten by `optimizer_carryover_script.py` in the train venv, which has torch.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from webgym_cli.errors import JobError
from webgym_cli.train.working_dir import (
    OPTIMIZER_STATES,
    TrainingIdentity,
    has_moments,
    read_training,
    why_states_differ,
)

BUILDER = Path(__file__).with_name("optimizer_carryover_script.py")
# Exit status of the script if the parent's states can't be carried; its last line is the reason.
UNUSABLE = 3
# AdamW's options in the trainer's configuration, with transformers' defaults.
ADAM = {"weight_decay": 0.0, "adam_beta1": 0.9, "adam_beta2": 0.999, "adam_epsilon": 1e-8}


def why_not_carried(folder: Path, training: TrainingIdentity) -> str:
    """Return the reason why a training can't start from this checkpoint's optimizer states; empty if it can."""
    if not has_moments(folder):
        return f"{folder.name} has no optimizer states of LLaMA-Factory"
    before, shards = read_training(folder), len(list(folder.glob(OPTIMIZER_STATES)))
    stage = (training.zero_stage or 0) if shards else None
    if before is not None:
        stage = before.zero_stage
    return why_states_differ(folder.name, training, zero_stage=stage, processes=shards)


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


async def build_start(
    python: Path, parent: Path, target: Path, options: dict[str, Any], env: dict[str, str], log: Path
) -> str:
    """Lay out the start in `target`. Return why it can't be done, or an empty text. Raises `JobError`."""
    from webgym_cli.jobs.process import Job, last_line  # imports asyncio

    shutil.rmtree(target, ignore_errors=True)
    argv = [str(python), str(BUILDER), str(parent), str(target), json.dumps(options)]
    code = await Job.run(argv, env=env, log=log)
    if code == 0:
        return ""
    if code == UNUSABLE:
        return last_line(log).removeprefix("webgym: ")
    raise JobError(
        f"the optimizer states of {parent.name} couldn't be prepared (exit status {code}): {last_line(log)}",
        hint=f"read {log}; -s train.keep_optimizer_state=false starts with a fresh optimizer",
        returncode=code,
    )
