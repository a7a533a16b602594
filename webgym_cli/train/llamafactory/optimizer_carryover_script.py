"""Builds the starting state of a training with carried optimizer states. Runs in the train venv, not in webgym's.

    python optimizer_carryover_script.py <parent checkpoint> <empty folder> <options as JSON>

Imports the standard library and torch only (DeepSpeed's classes just where its files name them), and never reads a
pickle freely: `weights_only=True` with a closed list of classes. Options: `learning_rate`, `weight_decay`,
`adam_beta1`, `adam_beta2`, `adam_epsilon`, `logging_steps`, `eval_steps`, `save_steps`. What is reset, and why:

- trainer_state.json: step, epoch and history, so that the new data gets all its epochs; the intervals of the new
  settings, since the trainer takes them from here; no random states, so that the seed decides.
- scheduler.pt and DeepSpeed's copy: at the start, with the new learning rate as base.
- the optimizer's parameter groups: the new options, which loading would replace. Moments and step counters stay.

Files that need no change are hard links. Exit status 3: the states can't be carried, the last line says why.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
from itertools import product
from pathlib import Path
from typing import Any

import torch

UNUSABLE = 3
PATCHED = ("trainer_state.json", "scheduler.pt", "optimizer.pt")
LEFT_OUT = ("rng_state", "checkpoint.json", "webgym_training.json", "training_args.bin", "trainer_log.jsonl")
# Classes in DeepSpeed's files that only hold data.
ALLOWED = frozenset(
    {
        "deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler",
        "deepspeed.runtime.fp16.loss_scaler.LossScaler",
        "deepspeed.runtime.zero.config.ZeroStageEnum",
        "deepspeed.utils.tensor_fragment.fragment_address",
        "collections.OrderedDict",
        "torch.Size",
    }
)


class CantCarryError(Exception):
    """The parent's states can't be carried; the message is the reason."""


def main(parent: Path, work: Path, options: dict[str, Any]) -> None:
    """Write the starting state into the folder."""
    for path in sorted(parent.rglob("*")):
        place = work / path.relative_to(parent)
        if path.is_dir():
            place.mkdir()
        elif not path.name.startswith(LEFT_OUT) and path.name not in PATCHED:
            patch_or_link(path, place, options)
    write_trainer_state(parent, work, options)
    if (parent / "optimizer.pt").is_file():
        patch_or_link(parent / "optimizer.pt", work / "optimizer.pt", options)
    before = load(parent / "scheduler.pt")  # of any scheduler type
    one_rate(before.get("base_lrs", []), parent)
    torch.save(fresh_schedule(before, float(options["learning_rate"])), work / "scheduler.pt")


def write_trainer_state(parent: Path, work: Path, options: dict[str, Any]) -> None:
    """Write the trainer state before the first step."""
    state = json.loads((parent / "trainer_state.json").read_text(encoding="utf-8"))
    state |= {"global_step": 0, "epoch": 0.0, "log_history": [], "total_flos": 0, "num_input_tokens_seen": 0}
    state |= {"best_metric": None, "best_model_checkpoint": None, "best_global_step": None}
    state |= {name: options[name] for name in ("logging_steps", "eval_steps", "save_steps")}
    control = state.get("stateful_callbacks", {}).get("TrainerControl", {}).get("args", {})
    control.update(dict.fromkeys(control, False))
    (work / "trainer_state.json").write_text(json.dumps(state, indent=2), encoding="utf-8")


def patch_or_link(source: Path, place: Path, options: dict[str, Any]) -> None:
    """Rewrite a file of states whose options, schedule or counters differ; link any other."""
    if source.name.endswith(("_states.pt", "optimizer.pt")):
        states = load(source)
        if reset(states, options, source):
            torch.save(states, place)
            return
    link(source, place)


def reset(states: dict[str, Any], options: dict[str, Any], source: Path) -> bool:
    """Set the optimizer's options, schedule and counters; return whether anything changed."""
    groups, rate = list(parameter_groups(states)), float(options["learning_rate"])
    one_rate([group.get("initial_lr", group["lr"]) for group in groups], source)
    wanted: list[tuple[dict[str, Any], str, Any]] = [
        (group, key, rate) for group, key in product(groups, ("lr", "initial_lr")) if key in group
    ]
    wanted += adam_options([group for group in groups if "betas" in group], options, source)
    counters = ("global_steps", "global_samples", "skipped_steps", "micro_steps")
    wanted += [(states, key, 0) for key in counters if key in states]
    if isinstance(states.get("lr_scheduler"), dict):
        wanted.append((states, "lr_scheduler", fresh_schedule(states["lr_scheduler"], rate)))
    changed = [(holder, key, value) for holder, key, value in wanted if holder[key] != value]
    for holder, key, value in changed:
        holder[key] = value
    return bool(changed)


def adam_options(groups: list[dict[str, Any]], options: dict[str, Any], source: Path) -> list[tuple[Any, str, Any]]:
    """Return AdamW's options of each group. Norms and biases have a group of their own, without weight decay."""
    decay = float(options["weight_decay"])
    if decay and groups and not any(group["weight_decay"] for group in groups):
        raise CantCarryError(f"{source}: no parameter group has a weight decay, the new one would reach all or none")
    betas = tuple(float(options[name]) for name in ("adam_beta1", "adam_beta2"))
    wanted: list[tuple[Any, str, Any]] = [(group, "betas", betas) for group in groups]
    wanted += [(group, "eps", float(options["adam_epsilon"])) for group in groups]
    return wanted + [(group, "weight_decay", decay) for group in groups if group["weight_decay"]]


def parameter_groups(value: Any) -> Any:
    """Yield the optimizer's parameter groups wherever they are nested."""
    if isinstance(value, dict):
        if "lr" in value and "params" in value:
            yield value
            return
        for inner in value.values():
            yield from parameter_groups(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from parameter_groups(inner)


def fresh_schedule(before: dict[str, Any], rate: float) -> dict[str, Any]:
    """Return a schedule's state before its first step. The trainer is started without a second warm-up."""
    count = max(1, len(before.get("base_lrs", [])))
    return before | {"last_epoch": 0, "_step_count": 1, "base_lrs": [rate] * count, "_last_lr": [rate] * count}


def one_rate(rates: list[float], source: Path) -> None:
    """Refuse groups that learn at different rates: one new rate would be wrong for some of them."""
    if len(set(rates)) > 1:
        raise CantCarryError(f"{source}: the parameter groups have different learning rates")


def load(path: Path) -> dict[str, Any]:
    """Read states without running what they contain; tensors stay on disk until they are copied."""
    if not path.is_file():
        raise CantCarryError(f"{path}: is missing")
    names = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    if foreign := sorted(set(names) - ALLOWED):
        raise CantCarryError(f"{path}: holds objects of a kind that isn't read: {', '.join(foreign)}")
    classes = [getattr(importlib.import_module(module), name) for module, _, name in (n.rpartition(".") for n in names)]
    with torch.serialization.safe_globals(classes):
        states = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    if not isinstance(states, dict):
        raise CantCarryError(f"{path}: holds no states")
    return states


def link(source: Path, place: Path) -> None:
    """Hard-link a file, or copy it if the file system has no hard links."""
    try:
        os.link(source, place)
    except OSError:
        shutil.copy2(source, place)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3]))
    except CantCarryError as error:
        sys.stderr.write(f"webgym: {error}\n")
        sys.exit(UNUSABLE)
