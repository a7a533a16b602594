"""Results of an evaluation's episodes, read from the stored trajectories and from one judge's verdicts on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from itertools import chain

from webgym_cli.records.base import moment_of
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.judgement import Judgement, can_check, newest_verdict, with_verdict
from webgym_cli.records.task import Episode, Split
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.records.usage import TokenUsage
from webgym_cli.store.buffer import read_judgements, read_plan, scan_stored
from webgym_cli.store.run import RunDir
from webgym_cli.util.urls import site_of


class EpisodeEnd(StrEnum):
    """How an episode counts. Only the first two are valid: they say something about the policy."""

    SUCCESS = "success"
    UNSOLVED = "unsolved"
    BLOCKED = "blocked"
    """The site shut the browser out."""
    FAILED = "failed"
    """Browser, page, server, environment or judge failed."""
    UNCHECKED = "unchecked"
    """The check, as it is now, has not scored it."""
    UNSCORED = "unscored"
    """Neither the environment nor a judge gave a score yet."""
    PENDING = "pending"
    """Not run yet."""


@dataclass(frozen=True, slots=True)
class EpisodeSpending:
    """What the attempts of one or more episodes took."""

    steps: int = 0
    seconds: float = 0.0
    policy_seconds: float = 0.0
    environment_seconds: float = 0.0
    judge_seconds: float = 0.0
    cpu_seconds: float = 0.0
    gpu_seconds: float = 0.0
    judge_calls: int = 0
    policy_tokens: TokenUsage = field(default_factory=TokenUsage)
    judge_requests: tuple[tuple[tuple[str, ...], TokenUsage], ...] = ()

    def __add__(self, other: EpisodeSpending) -> EpisodeSpending:
        names = [one.name for one in fields(self)]
        return EpisodeSpending(*(getattr(self, name) + getattr(other, name) for name in names))


@dataclass(frozen=True, slots=True)
class EpisodeResult:
    """The result of one planned episode, by the attempt that counts."""

    episode: Episode
    end: EpisodeEnd
    trajectory: str = ""
    """Id of the attempt that counts."""
    failure: str = ""
    unavailable: bool = False
    """Whether the judge was down, so that this is no result yet."""
    steps: int = 0
    """Of the attempt that counts."""
    spent: EpisodeSpending = field(default_factory=EpisodeSpending)
    """By all attempts."""

    @property
    def site(self) -> str:
        """The site of the start page, or the environment."""
        return site_of(self.episode.task.start_url) or self.episode.task.environment


_NOTHING = EpisodeSpending()


def find_verdict(run: RunDir, episodes: Iterable[Episode]) -> Judgement | None:
    """Return the newest verdict that a task without a check got from another program (`webgym score --verdicts`)."""
    unchecked = {episode.id for episode in episodes if not episode.task.check}
    judgements = chain.from_iterable(read_judgements(run, Split.TEST, 0).values())
    given = [one for one in judgements if one.source == "check" and one.trajectory.partition(".")[0] in unchecked]
    return max(given, key=lambda one: moment_of(one.judged_at), default=None)


def read_results(
    run: RunDir, judge: str, checks: Mapping[str, str], first_checks: Mapping[str, str], verdicts: str
) -> list[EpisodeResult]:
    """Return the result of each planned episode, in the plan's order.

    `judge`: settings digest of the counted judge. `checks`: digests of the counted checks, and of those by which the
    first episodes were scored. `verdicts`: digest of the program whose verdicts count for tasks without a check.
    """
    finals: dict[str, EpisodeResult] = {}
    spent: dict[str, EpisodeSpending] = {}
    last: dict[str, tuple[bool, int]] = {}
    planned = read_plan(run, Split.TEST, 0)
    by_id = {episode.id: episode for episode in planned}
    by_trajectory = read_judgements(run, Split.TEST, 0)
    for trajectory in scan_stored(run, Split.TEST, 0):
        check = checks.get(trajectory.task.check, verdicts)
        counted = {"judge": judge, "check": check}
        judgements = [
            one for one in by_trajectory.get(trajectory.id, ()) if one.settings_digest == counted.get(one.source)
        ]
        spent[trajectory.episode] = _sum_spending(trajectory, judgements) + spent.get(trajectory.episode, _NOTHING)
        if (episode := by_id.get(trajectory.episode)) is None:
            continue
        is_checked = not trajectory.task.check or check == _find_check(trajectory, first_checks)
        result = _read_result(episode, trajectory, judgements, is_checked=is_checked)
        # An attempt that was rolled out counts, also one whose check was mended since: it is not run again. Without one
        # the newest failure does.
        rank = result.failure in ("", FailureKind.JUDGE_FAILED), trajectory.attempt
        if rank >= last.get(episode.id, (False, -1)):
            last[episode.id], finals[episode.id] = rank, result
    results = (finals.get(episode.id, EpisodeResult(episode, EpisodeEnd.PENDING)) for episode in planned)
    return [replace(one, spent=spent.get(one.episode.id, _NOTHING)) for one in results]


def _find_check(trajectory: Trajectory, first_checks: Mapping[str, str]) -> str:
    """Return the digest of the check that scored a trajectory when it ended, or failed to; empty without one."""
    scores = trajectory.outcome.scores
    stored = next((score.digest for score in scores if score.source == "check" and score.digest), "")
    return stored or first_checks.get(trajectory.task.check, "")


def _sum_spending(trajectory: Trajectory, judgements: Sequence[Judgement]) -> EpisodeSpending:
    return EpisodeSpending(
        steps=len(trajectory.steps),
        seconds=trajectory.seconds,
        policy_seconds=sum(step.policy_seconds for step in trajectory.steps),
        environment_seconds=sum(step.environment_seconds for step in trajectory.steps),
        judge_seconds=sum(one.seconds for one in judgements if one.source == "judge"),
        cpu_seconds=trajectory.cpu_seconds,
        gpu_seconds=trajectory.gpu_seconds,
        judge_calls=sum(one.calls for one in judgements),
        policy_tokens=trajectory.tokens,
        judge_requests=sum((tuple(one.requests) for one in judgements), ()),
    )


def _read_result(
    episode: Episode, trajectory: Trajectory, judgements: Sequence[Judgement], *, is_checked: bool
) -> EpisodeResult:
    newest, by_check = (newest_verdict(judgements, source) for source in ("judge", "check"))
    outcome = with_verdict(with_verdict(trajectory, by_check), newest).outcome
    end = _find_end(outcome.failure, outcome.success)
    if not (is_checked or by_check) and can_check(trajectory):
        end = EpisodeEnd.UNCHECKED
    return EpisodeResult(
        episode=episode,
        end=end,
        trajectory=trajectory.id,
        failure=outcome.failure or "",
        unavailable=outcome.failure is FailureKind.JUDGE_FAILED and newest is not None and newest.unavailable,
        steps=len(trajectory.steps),
    )


def _find_end(failure: FailureKind | None, success: bool | None) -> EpisodeEnd:
    if failure is FailureKind.SITE_BLOCKED:
        return EpisodeEnd.BLOCKED
    if failure is not None:
        return EpisodeEnd.FAILED
    if success is None:
        return EpisodeEnd.UNSCORED
    if success:
        return EpisodeEnd.SUCCESS
    return EpisodeEnd.UNSOLVED
