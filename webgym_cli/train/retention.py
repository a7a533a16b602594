"""Retention of old checkpoints: removes first their optimizer states, then their weights."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

import psutil

from webgym_cli.records.checkpoint import Checkpoint
from webgym_cli.store import checkpoints
from webgym_cli.store.run import RunDir
from webgym_cli.train.working_dir import RL_STATE, has_optimizer_states
from webgym_cli.util.files import disk_errors, write_json

# Optimizer states and files that are only used with them.
STATES = (RL_STATE, "optimizer.pt", "scheduler.pt", "scaler.pt", "latest", "zero_to_fp32.py", "zero_to_torch.py")
# Weights, the adapter merged into them, and the critic trained with them.
WEIGHTS = ("*.safetensors", "*.safetensors.index.json", "adapter", "critic")


def drop_old_states(run: RunDir, keep: int) -> None:
    """Remove the optimizer states of all but the newest checkpoints. Weights stay."""
    for checkpoint in checkpoints.checkpoints(run)[:-keep]:
        folder = checkpoints.folder(run, checkpoint)
        if checkpoint.resumable or has_optimizer_states(folder):
            _write_record(folder, checkpoint.model_copy(update={"resumable": False}))
            _remove_states(folder)


def drop_old_weights(run: RunDir, keep: int | None) -> None:
    """Remove the weights of all but the newest checkpoints, with their states; None keeps all. Records stay.

    The newest is the current policy; its adapter's base model and its reference policy are kept. Weights in use by a
    process on this machine are kept until a later call.
    """
    every = checkpoints.checkpoints(run)
    needed = set(chain.from_iterable((one.reference, one.adapter.base if one.adapter else "") for one in every[-1:]))
    for checkpoint in every[:-keep] if keep else ():
        folder = checkpoints.folder(run, checkpoint)
        if (
            checkpoint.name not in needed
            and (checkpoint.weights or any(folder.glob(WEIGHTS[0])))
            and not _in_use(folder)
        ):
            _write_record(folder, checkpoint.model_copy(update={"resumable": False, "weights": False}))
            _remove_states(folder)
            _remove(chain.from_iterable(map(folder.glob, WEIGHTS)))


def _write_record(folder: Path, checkpoint: Checkpoint) -> None:
    """Write the record before the files are removed, so that after a crash it claims no missing files."""
    write_json(folder / checkpoints.RECORD, checkpoint.model_dump(mode="json"))


def _remove_states(folder: Path) -> None:
    _remove(
        path for path in folder.iterdir() if path.name in STATES or path.name.startswith(("rng_state", "global_step"))
    )


def _remove(paths: Iterable[Path]) -> None:
    """Remove files and folders. Raises `StoreError`."""
    for path in list(paths):
        with disk_errors(path):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def _in_use(folder: Path) -> bool:
    """Return whether the command line of a process, such as a server, contains the folder."""
    names = {str(folder), str(folder.resolve())}
    return any(names.intersection(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"]))
