"""One episode with its judgements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from webgym_cli.agent.forms.reasoning import CLOSE, strip_reasoning
from webgym_cli.errors import UsageError
from webgym_cli.records.judgement import Judgement, Verdict
from webgym_cli.records.trajectory import Step, Trajectory
from webgym_cli.store.buffer import LineRef, read, read_judgement
from webgym_cli.store.index.query import Index
from webgym_cli.store.run import RunDir


@dataclass(frozen=True, slots=True)
class EpisodeView:
    """A trajectory and its judgements."""

    trajectory: Trajectory
    """The trajectory with its effective judgement."""
    judgements: tuple[Judgement, ...] = ()
    """Oldest first."""

    def to_json(self) -> dict[str, Any]:
        """Return the trajectory's record with its `judgements`."""
        judgements = [judgement.model_dump(mode="json", by_alias=True) for judgement in self.judgements]
        return {**self.trajectory.model_dump(mode="json", by_alias=True), "judgements": judgements}


def read_episodes(run: RunDir, index: Index, names: Sequence[str]) -> Iterator[EpisodeView]:
    """Yield the trajectories with these ids, in order; only their own lines are read.

    Raises `UsageError` for an unknown id before the first one is yielded, and `StoreError`.
    """
    for name in names:
        if not index.one("SELECT count(*) AS found FROM stored WHERE id = ?", [name])["found"]:
            raise _unknown(run, index, name)
    for name in names:
        for place in index.places("id = ?", [name]):
            yield read_episode(run, index, place)


def read_episode(run: RunDir, index: Index, line: LineRef) -> EpisodeView:
    """Return one episode. Raises `StoreError`."""
    trajectory = read(run, line)
    return EpisodeView(trajectory, tuple(_judgements(run, index, trajectory)))


def list_verdicts(judgement: Judgement) -> Iterator[tuple[str, Verdict]]:
    """Yield each verdict with its criterion, in the order of evaluation."""
    if judgement.claims is not None:
        yield "claims", judgement.claims
    yield from (("fact", fact) for fact in judgement.facts)
    if judgement.reference is not None:
        yield "reference", judgement.reference


def split_thought(step: Step, *, thinking: bool) -> tuple[str, str]:
    """Return a response's reasoning and the rest. One with an action and no closed reasoning has none."""
    is_open = step.action is None or CLOSE in step.response
    rest = strip_reasoning(step.response, thinking=thinking and is_open)
    return step.response.removesuffix(rest), rest


def _judgements(run: RunDir, index: Index, trajectory: Trajectory) -> Iterator[Judgement]:
    rows = index.rows(
        "SELECT file, start, size FROM judgements WHERE trajectory = ? AND split = ? AND iteration = ? "
        "ORDER BY judged_at, file, start",
        [trajectory.id, trajectory.split.value, trajectory.iteration],
    )
    for row in rows:
        yield read_judgement(run, row["file"], row["start"], row["size"])


def _unknown(run: RunDir, index: Index, name: str) -> UsageError:
    nearest = list(index.rows("SELECT id FROM stored ORDER BY jaro_winkler_similarity(id, ?) DESC, id LIMIT 1", [name]))
    guess = f"; did you mean {nearest[0]['id']}?" if nearest else ""
    return UsageError(f"{run.root}: no trajectory {name!r}{guess}", hint=f"webgym inspect-buffer {run.root} -q")
