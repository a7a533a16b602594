"""The replay buffer's truth: append-only part files, one trajectory a line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from webgym_cli.records.task import Split
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.store.files import append_line, read_lines
from webgym_cli.store.run import RunDir


@dataclass(slots=True)
class Damage:
    """Lines that could not be read, named so that a person can look at them."""

    lines: list[str] = field(default_factory=list)
    """`file:line: reason`."""


def append(run: RunDir, trajectory: Trajectory, rank: int = 0) -> None:
    """Append a finished trajectory durably; its screenshots must be stored already. Raises `StoreError`."""
    append_line(run.part(trajectory.split, trajectory.iteration, rank), trajectory.to_line())


def iterations(run: RunDir, split: Split) -> list[int]:
    """Return the iterations that have trajectories, oldest first."""
    names = (folder.name.removeprefix("iteration_") for folder in run.trajectories(split).glob("iteration_*"))
    return sorted(int(name) for name in names if name.isdecimal())


def scan(run: RunDir, split: Split, iteration: int, damage: Damage | None = None) -> Iterator[Trajectory]:
    """Yield an iteration's trajectories in the order of writing. A torn or damaged line is skipped and noted."""
    folder = run.part(split, iteration).parent
    for part in sorted(folder.glob("part-*.jsonl")):
        yield from _scan_part(part, damage)


def _scan_part(part: Path, damage: Damage | None) -> Iterator[Trajectory]:
    for number, line in read_lines(part):
        try:
            yield Trajectory.model_validate_json(line)
        except ValidationError as error:
            if damage is not None:
                damage.lines.append(f"{part}:{number}: {error.errors()[0]['msg']}")
