"""Runs by the path that a user gave; refusals of what is none."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import webgym_cli
from webgym_cli.errors import UPGRADE, MissingStageError, StoreError, UsageError
from webgym_cli.store.run import RunDir
from webgym_cli.util.files import read_json, read_optional_object

if TYPE_CHECKING:
    from webgym_cli.config.model import Settings


def open_run(path: Path) -> tuple[RunDir, Settings]:
    """Return an existing run and its settings. Raises `MissingStageError` if there is none."""
    from webgym_cli.config.load import load

    run = find_run(path)
    return run, load(run_config=run.config)


def find_run(path: Path) -> RunDir:
    """Return an existing run. Raises `MissingStageError` if there is none."""
    require_readable(run := RunDir(path))
    require_run(run, path)
    return run


def require_run(run: RunDir, path: Path) -> None:
    """Raise `MissingStageError` if there is no run at the path that the user gave."""
    if not run.exists:
        from webgym_cli.config.suggest import name_runs_near

        raise MissingStageError(f"{path}: there is no run{name_runs_near(path)}", hint=f"webgym rollout {path}")


def require_readable(run: RunDir) -> None:
    """Raise `StoreError` for a newer version's run or one without settings, `UsageError` where no run can be.

    That is at a file, a broken link, a folder of another program's or within another run.
    """
    if not (place := next(path for path in (run.root, *run.root.parents) if os.path.lexists(path))).is_dir():
        raise UsageError(f"{place} is not a folder, a run is one", hint="name another folder")
    is_foreign = run.exists and not run.provenance.exists() and _holds_no_settings(run.config)
    if is_foreign or (not run.exists and run.root.is_dir() and {*run.root.iterdir()} - {run.lock, run.lock_holder}):
        outer = next((one for one in map(RunDir, run.root.parents) if one.exists and one.provenance.exists()), None)
        if outer:
            raise UsageError(f"{run.root} is a part of the run {outer.root}", hint=f"webgym status {outer.root}")
    if is_foreign:
        raise UsageError(f"{run.config} is a model's or another program's, not a run's", hint="name the run's folder")
    if not run.exists and (run.provenance.exists() or run.has_begun):
        raise StoreError(
            f"{run.config}: is missing, though the rest of the run is there",
            hint="restore it from a copy of the run, or move the folder away to begin anew",
        )
    if newer := _read_newer_version(run.provenance):
        raise StoreError(f"{run.root}: a run of webgym {newer}, this is webgym {webgym_cli.__version__}", hint=UPGRADE)


def _holds_no_settings(config: Path) -> bool:
    """Whether a JSON object has no section of a run's settings. A damaged file may have been a run's."""
    values = read_optional_object(config)
    return bool(values) and "policy_config" not in values


def _read_newer_version(file: Path) -> str:
    """Return the version that made a run if it is newer than this one; else empty, also for a damaged file."""
    with suppress(StoreError, TypeError, KeyError, ValueError, AttributeError):
        writer = read_json(file)["webgym"]
        # the parts whose change may alter settings and records
        minor, own = ([int(part) for part in text.split(".")[:2]] for text in (writer, webgym_cli.__version__))
        return str(writer) if minor > own else ""
    return ""
