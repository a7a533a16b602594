"""Plan of the experience that a `webrl` batch may replay, from the indexes of its runs."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from webgym_cli.config.model import Settings
from webgym_cli.config.rl_data import ReplaySettings
from webgym_cli.errors import SettingsError
from webgym_cli.prepare.rl.attempts import attempts_sql
from webgym_cli.prepare.rl.drop_reasons import MaskReason
from webgym_cli.store.buffer import LineRef
from webgym_cli.store.checkpoints import policy_name
from webgym_cli.store.index.query import LINE_REF, Index, open_index, temporary_index
from webgym_cli.store.run import RunDir
from webgym_cli.util.optional import when

_STORED = """
WITH {attempts}
SELECT site, instruction, reason, {place} AS place, task, policy, reward, success, steps
FROM last_attempts ORDER BY iteration, id
"""
# Tolerance for rounding errors of products that should be whole numbers.
ROUNDING = 1e-9
# Settings that don't affect the result.
_OF_THE_SERVER = {"concurrency", "retries", "timeout", "api_key_env_var", "model"}


@dataclass(frozen=True, slots=True)
class ReplayCandidate:
    """A trajectory whose actions may be replayed."""

    run: RunDir
    place: LineRef
    task: str
    """The task's id."""
    policy: str
    """The policy that acted."""
    reward: float
    success: bool
    steps: int


# A stored trajectory, the identity of its task, and a reason against it.
_Stored = tuple[ReplayCandidate, tuple[str, str], str | None]


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """Plan of scoring and replay."""

    how: ReplaySettings
    policy: str
    """The scoring policy: the checkpoint's name or the base model, and its address if webgym does not serve it."""
    seed: str
    runs: tuple[Path, ...]
    """Runs in order of precedence; the last one is the run itself."""
    candidates: tuple[ReplayCandidate, ...]
    """Ordered by run, iteration and id."""
    dropped: dict[str, int]
    """Other trajectories by `MaskReason`."""
    current_steps: int
    """Number of the iteration's own actions, unless the tokens of some can't be reconstructed."""

    @property
    def trajectories(self) -> int:
        """Number of all considered trajectories."""
        return len(self.candidates) + sum(self.dropped.values())

    def cap(self, current_rows: int) -> int:
        """Return the maximum number of replayed actions."""
        return int(self.how.ratio * current_rows + ROUNDING)

    def name_run(self, candidate: ReplayCandidate) -> str:
        """Return the path of a candidate's run; empty for the run itself, which may be moved."""
        return when(candidate.run.root != self.runs[-1], str(candidate.run.root))

    def digest_parts(self, *, former: bool = False) -> list[object]:
        """Return everything that determines the replayed actions; `former`: as an older version did, with the place."""
        stored = (
            (str(one.run.root) if former else self.name_run(one), one.place.id, one.reward, one.success, one.policy)
            for one in self.candidates
        )
        digest = hashlib.sha256("\n".join(map(repr, stored)).encode()).hexdigest()
        return [self.how.model_dump(mode="json", exclude=_OF_THE_SERVER), self.policy, self.seed, digest]

    def to_json(self) -> dict[str, object]:
        """Return its part of the output of `--dry-run`."""
        return {
            "runs": [str(run) for run in self.runs],
            "trajectories": self.trajectories,
            "dropped_trajectories": self.dropped,
            "candidates": len(self.candidates),
            "actions_to_score": sum(candidate.steps for candidate in self.candidates),
            "at_most": self.cap(self.current_steps),
            "window": list(self.how.window),
            "policy": self.policy,
        }


def plan_replay(
    run: RunDir, settings: Settings, index: Index, read: Sequence[int], current_steps: int, iteration: int
) -> ReplayPlan:
    """Return the replay plan for a batch of these iterations.

    Raises `SettingsError` for a folder that is no run, and `StoreError` for an index that can't be read.
    """
    how, others = settings.rl.replay, list[RunDir]()
    stored: Iterable[_Stored] = ()
    if how.ratio:
        others = _other_runs(run, how)
        # Other runs first: with one_per_task, demonstrations take precedence over the policy's own successes.
        stored = chain(*map(_read_other, others), _read_stored(run, index, f"iteration < {min(read)}"))
    candidates, dropped, tasks = list[ReplayCandidate](), Counter[str](), set[tuple[str, str]]()
    for candidate, task, reason in stored:
        if not candidate.success:
            reason = reason or MaskReason.UNSUCCESSFUL
        elif how.one_per_task and task in tasks:
            reason = reason or MaskReason.REPEATED_TASK
        if reason:
            dropped[str(reason)] += 1
        else:
            tasks.add(task)
            candidates.append(candidate)
    policy = policy_name(run, settings)
    return ReplayPlan(
        how=how,
        policy=f"{policy} at {how.base_url}" if how.base_url else policy,
        seed=f"{settings.seed}/{iteration}",
        runs=(*(other.root for other in others), run.root),
        candidates=tuple(candidates),
        dropped=dict(sorted(dropped.items())),
        current_steps=current_steps,
    )


def _other_runs(run: RunDir, how: ReplaySettings) -> list[RunDir]:
    """Return the distinct runs of `experience` except the run itself. Raises `SettingsError`."""
    runs: dict[Path, RunDir] = {}
    for path in how.experience:
        other = RunDir(Path(path))
        if not other.exists:
            raise SettingsError(
                f"rl.replay.experience: {path}: there is no run", hint=f"webgym rollout {path}, or leave it out"
            )
        if other.root.resolve() != run.root.resolve():
            runs.setdefault(other.root.resolve(), other)
    return list(runs.values())


def _read_other(run: RunDir) -> Iterator[_Stored]:
    """Yield all training trajectories of a run without writing into it."""
    with temporary_index(run) as aside, open_index(aside) as index:
        yield from _read_stored(run, index, "true")


def _read_stored(run: RunDir, index: Index, where: str) -> Iterator[_Stored]:
    """Yield the training trajectories of a run whose iteration matches a condition. Raises `StoreError`."""
    for row in index.rows(_STORED.format(attempts=attempts_sql(where), place=LINE_REF)):
        task, reason = (row.pop("site"), row.pop("instruction")), row.pop("reason")
        yield ReplayCandidate(run, LineRef(**row.pop("place")), **row), task, reason
