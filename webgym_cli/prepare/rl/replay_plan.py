"""Which stored experience a batch of `webrl` may take over, as the indexes of its runs tell."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from webgym_cli.config.model import Settings
from webgym_cli.config.rl_data import ReplaySettings
from webgym_cli.errors import SettingsError
from webgym_cli.prepare.rl.attempts import REASON_COLUMN, attempts_sql
from webgym_cli.prepare.rl.drop_reasons import ReplayDropReason
from webgym_cli.store.buffer import LineRef
from webgym_cli.store.checkpoints import current, policy_path
from webgym_cli.store.index.query import LINE_REF_COLUMNS, Index, open_index
from webgym_cli.store.index.temporary_index import temporary_index
from webgym_cli.store.run import RunDir
from webgym_cli.util.text import hide_passwords

_STORED = """
WITH {attempts}
SELECT iteration, task, site, instruction, policy, reward, success, steps, {reason}, {place}
FROM last_attempts ORDER BY iteration, id
"""
# So far below a whole number of actions a product may come out by rounding.
ROUNDING = 1e-9
# The settings that don't change what is taken over.
_OF_THE_SERVER = {"concurrency", "retries", "timeout", "api_key_env_var"}


@dataclass(frozen=True, slots=True)
class ReplayCandidate:
    """A trajectory whose actions may be taken over."""

    run: RunDir
    place: LineRef
    task: str
    """The task's id."""
    policy: str
    """Who acted."""
    reward: float
    success: bool
    steps: int


@dataclass(slots=True)
class ReplayCandidates:
    """What is stored, less what can't be taken over."""

    candidates: list[ReplayCandidate] = field(default_factory=list)
    """In the order of their runs, by iteration and id."""
    trajectories: int = 0
    """All that were looked at."""
    dropped: Counter[str] = field(default_factory=Counter)
    """The others, by `ReplayDropReason`."""
    _tasks: set[tuple[str, str]] = field(default_factory=set)

    def take(self, run: RunDir, index: Index, where: str, replay: ReplaySettings) -> None:
        """Look at the training trajectories of a run for whose iteration a condition holds. Raises `StoreError`."""
        for row in index.rows(
            _STORED.format(attempts=attempts_sql(where), reason=REASON_COLUMN, place=LINE_REF_COLUMNS)
        ):
            self.trajectories += 1
            facts = {name: row.pop(name) for name in ("task", "policy", "reward", "success", "steps")}
            task = (row.pop("site"), row.pop("instruction"))
            reason = row.pop("reason") or self._find_drop_reason(task, replay, success=facts["success"])
            del row["iteration"]
            if reason is None:
                self._tasks.add(task)
                self.candidates.append(ReplayCandidate(run, LineRef(**row), **facts))
            else:
                self.dropped[str(reason)] += 1

    def _find_drop_reason(
        self, task: tuple[str, str], replay: ReplaySettings, *, success: bool
    ) -> ReplayDropReason | None:
        if replay.successes_only and not success:
            return ReplayDropReason.UNSUCCESSFUL
        return ReplayDropReason.REPEATED_TASK if replay.one_per_task and task in self._tasks else None


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """What will be scored and taken over."""

    how: ReplaySettings
    policy: str
    """The policy that scores: the checkpoint's name or the base model, and where it is served if not by us."""
    seed: str
    """Of the draw."""
    runs: tuple[Path, ...]
    """The runs that are read, in the order of precedence; the last one is the run itself."""
    candidates: tuple[ReplayCandidate, ...]
    trajectories: int
    """All that were looked at."""
    dropped: dict[str, int]
    """Those of them that are no candidates, by `ReplayDropReason`."""
    current_steps: int
    """Actions of the iteration itself, unless the tokens of some can't be told."""

    @property
    def actions(self) -> int:
        """Actions of the candidates."""
        return sum(candidate.steps for candidate in self.candidates)

    def cap(self, current_rows: int) -> int:
        """Return how many actions are taken over at most."""
        return int(self.how.ratio * current_rows + ROUNDING)

    def digest_parts(self) -> list[object]:
        """Return all that decides what is taken over."""
        stored = ((str(one.run.root), one.place.id, one.reward, one.success, one.policy) for one in self.candidates)
        digest = hashlib.sha256("\n".join(map(repr, stored)).encode()).hexdigest()
        return [self.how.model_dump(mode="json", exclude=_OF_THE_SERVER), self.policy, self.seed, digest]

    def to_json(self) -> dict[str, object]:
        """Return the part of what `--dry-run` prints."""
        return {
            "runs": [str(run) for run in self.runs],
            "trajectories": self.trajectories,
            "dropped_trajectories": self.dropped,
            "candidates": len(self.candidates),
            "actions_to_score": self.actions,
            "at_most": self.cap(self.current_steps),
            "window": list(self.how.window),
            "policy": self.policy,
        }


def plan_replay(
    run: RunDir, settings: Settings, index: Index, read: Sequence[int], current_steps: int, iteration: int
) -> ReplayPlan:
    """Return what may be taken over into a batch of these iterations.

    Raises `SettingsError` for a folder that is no run, and `StoreError` for an index that can't be read.
    """
    how, experience = settings.rl.replay, ReplayCandidates()
    others = _other_runs(run, how) if how.ratio else []
    if how.ratio:
        # Other runs first: with one_per_task the demonstrations take precedence over the policy's own successes.
        for other in others:
            with _index_of(other) as theirs:
                experience.take(other, theirs, "true", how)
        experience.take(run, index, f"iteration < {min(read)}", how)
    newest = current(run)
    policy = newest.name if newest else str(policy_path(run, settings))
    return ReplayPlan(
        how=how,
        policy=f"{policy} at {hide_passwords(how.base_url)}" if how.base_url else policy,
        seed=f"{settings.seed}/{iteration}",
        runs=(*(other.root for other in others), run.root),
        candidates=tuple(experience.candidates),
        trajectories=experience.trajectories,
        dropped=dict(sorted(experience.dropped.items())),
        current_steps=current_steps,
    )


def _other_runs(run: RunDir, how: ReplaySettings) -> list[RunDir]:
    """Return the runs of `experience`, each once, and not the run itself. Raises `SettingsError`."""
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


@contextmanager
def _index_of(run: RunDir) -> Iterator[Index]:
    """Open the index of a run in which nothing may be written. Raises `StoreError`."""
    with temporary_index(run) as aside, open_index(aside) as index:
        yield index
