"""The running command of a run: written at its start and removed at its end, for `resume`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from webgym_cli.errors import Terminated
from webgym_cli.records.base import Record
from webgym_cli.store.run import RunDir, now
from webgym_cli.store.validation import refuse_invalid
from webgym_cli.util.files import read_json, write_json


class RunningCommand(Record):
    """A command that has started and not finished."""

    command: Literal[
        "rollout", "gateway", "judge", "score", "eval", "generate", "import", "prepare", "train", "loop", "curriculum"
    ]
    options: dict[str, Any]
    """Options of the command, as keyword arguments of its function."""
    since: str
    """ISO 8601, UTC."""


def begin(run: RunDir, command: str, options: dict[str, Any]) -> None:
    """Record the start of a command."""
    noted = RunningCommand.model_validate({"command": command, "options": options, "since": now()})
    write_json(run.state, noted.model_dump(mode="json"))


def finish(run: RunDir) -> None:
    """Record the end of the command."""
    run.state.unlink(missing_ok=True)


@contextmanager
def note_command(run: RunDir, command: str, options: dict[str, Any]) -> Iterator[None]:
    """Note a command while the block runs, so that it can be resumed unless the block succeeds."""
    if command == "record":  # nothing is left to resume, and what another command left can still be
        yield
        return
    begin(run, command, options)
    try:
        yield
    except (KeyboardInterrupt, Terminated):
        if command == "gateway":  # open sessions wait in the run
            finish(run)
        raise
    finish(run)


def read_running_command(run: RunDir) -> RunningCommand | None:
    """Return the interrupted command, or None. Raises `StoreError` if the file is damaged."""
    if not run.state.is_file():
        return None
    hint = f"remove it and repeat the command itself, e.g. webgym loop {run.root}: it goes on where it stopped"
    with refuse_invalid(f"{run.state}: the note of the interrupted command is damaged", hint):
        return RunningCommand.model_validate(read_json(run.state))
