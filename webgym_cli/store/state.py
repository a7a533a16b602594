"""Which command is under way in a run: written when it begins, cleared when it is done, so that `resume` can tell."""

from __future__ import annotations

from typing import Any

from webgym_cli.records.base import Record
from webgym_cli.store.files import read_json, write_json
from webgym_cli.store.run import RunDir, now


class Underway(Record):
    """A command that began and has not finished."""

    command: str
    """`rollout`, `prepare`, `train` or `loop`."""
    options: dict[str, Any]
    """Its options, as the command's function takes them."""
    since: str
    """ISO 8601, UTC."""


def begin(run: RunDir, command: str, options: dict[str, Any]) -> None:
    """Note that a command begins."""
    write_json(run.state, Underway(command=command, options=options, since=now()).model_dump(mode="json"))


def finish(run: RunDir) -> None:
    """Note that it is done."""
    run.state.unlink(missing_ok=True)


def underway(run: RunDir) -> Underway | None:
    """Return the command that was interrupted, or None."""
    return Underway.model_validate(read_json(run.state)) if run.state.is_file() else None
