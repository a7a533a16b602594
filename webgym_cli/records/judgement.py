"""Judgements of trajectories by a judge model, an outcome reward model (ORM) or a task's check, and labels of persons.

Judgements are stored beside the trajectories. The newest one of each source is considered, and one of them is
effective: the check's, else the judge's. A judge that failed replaces no verdict. An ORM's verdict is used only if no
other source has decided.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field, model_validator

from webgym_cli.records.base import Moment, Record, StoredRecord
from webgym_cli.records.failure import FailureKind, Stop, is_rolled_out
from webgym_cli.records.trajectory import SUCCESS_REWARD, Outcome, Score, Trajectory
from webgym_cli.records.usage import Requests, TokenUsage
from webgym_cli.util.optional import known_or

JudgementSource = Literal["judge", "orm", "check"]
# The failure of a judge that has nothing to look at.
NO_SCREENSHOT = "there is no screenshot to judge by"
# Sources whose score decides, whatever a judge says; the first one precedes.
_DECIDING = ("check", "environment")


class Verdict(Record):
    """Decision of the judge on one question, over all votes."""

    question: str
    """The question: a fact of the rubric, the claim check, or the reference answer."""
    passed: bool
    """The majority of the votes; a tie does not pass."""
    reason: str = ""
    """The reason of the first vote for the decision."""
    votes: tuple[bool, ...] = ()
    """The readable votes, in order."""


class Judgement(StoredRecord):
    """One judgement of one trajectory, one line of the store (`schema` 1)."""

    trajectory: str
    """The trajectory's id."""
    source: JudgementSource = "judge"
    """A judge that reasons, an outcome reward model that outputs a probability, or a check."""
    models: dict[str, str]
    """The model of each job: `key_points`, `blocking`, `verdict`; for an ORM only `verdict`, for a check its name, or
    that of the program that gave its verdict."""
    settings_digest: str
    """SHA-256 of the settings that affect verdicts (models, votes, prompts, limits), without an ORM's threshold; for a
    check of the file that defines it, or of the program and its tasks."""
    key_points: tuple[int, ...] = ()
    """Indices of the steps whose screenshots the judge saw; always includes the last step."""
    blocked: bool | None = None
    """Whether the site blocked the browser; None: not asked or not answered."""
    blocked_reason: str = ""
    claims: Verdict | None = None
    """Criterion B: whether the screenshots show everything that the answer claims."""
    facts: tuple[Verdict, ...] = ()
    """Criterion A: one verdict per fact, in the rubric's order, up to the first that failed."""
    reference: Verdict | None = None
    """Whether the answer matches the reference answer."""
    probability: float | None = Field(default=None, ge=0, le=1)
    """An ORM's probability that the task was done: P(YES) among YES and NO. None for a judge."""
    reward: float | None = None
    """A check's reward, from 0 to 1; None for other sources."""
    extras: dict[str, float] = Field(default_factory=dict)
    """Additional numbers returned by a check or a judge protocol, by name."""
    success: bool | None = None
    """The verdict; None exactly when there is a `failure`. For an ORM: whether the probability reached the
    threshold."""
    failure: FailureKind | None = None
    """`judge_failed` or `site_blocked`."""
    failure_detail: str = ""
    unavailable: bool = False
    """With `judge_failed`: the judge was down or refused the request, and judged nothing."""
    calls: int = 0
    """Requests to the judge, including retries; for an ORM 1, or 0 if only the threshold changed."""
    tokens: TokenUsage = TokenUsage.model_construct()
    """Tokens of these requests, as the server counted them; zeros in older runs."""
    tokens_by_model: dict[str, TokenUsage] = Field(default_factory=dict)
    """The same tokens by model if several models were asked; empty for one model, and in older runs."""
    seconds: float = 0.0
    judged_at: Moment
    """ISO 8601, UTC."""

    @property
    def requests(self) -> Requests:
        """The tokens, each with their model; without a name if several were asked and an older run does not say."""
        models = {*self.models.values()}
        of_models = self.tokens_by_model or {models.pop() if len(models) == 1 else "": self.tokens}
        return [((model,), tokens) for model, tokens in of_models.items()]

    @model_validator(mode="after")
    def _verdict_or_failure(self) -> Judgement:
        if (self.success is None) != (self.failure is not None):
            raise ValueError(f"success is None with a failure and only then: {self.success}, {self.failure}")
        if (self.reward is not None) != (self.source == "check"):
            raise ValueError(f"a reward is a check's, which always gives one: {self.source}, {self.reward}")
        by_orm = self.source == "orm"
        if (self.probability is not None) != by_orm or (by_orm and self.failure):
            raise ValueError(f"a probability is an ORM's, which gives one or says nothing: {self.source}")
        return self


def scored_by_environment(trajectory: Trajectory) -> bool:
    """Whether the environment itself determines the reward, regardless of any judge.

    A task's check counts as its environment. If a judge was meant to decide although the environment has a score, the
    reward was left open.
    """
    outcome = trajectory.outcome
    scored = outcome.stop is Stop.TERMINATED or any(score.source in _DECIDING for score in outcome.scores)
    # Only the environment knows the instruction on a page of its own (MiniWoB), so a judge can't decide.
    drawn = not trajectory.task.instruction and "://" not in trajectory.task.start_url
    return (scored and outcome.reward is not None) or drawn


def environment_score(trajectory: Trajectory) -> float | None:
    """Return the score of the task's check, else the environment's own; None without either."""
    values = {score.source: score.value for score in trajectory.outcome.scores}
    return next((values[source] for source in _DECIDING if source in values), None)


def environment_verdict(trajectory: Trajectory) -> bool | None:
    """Return whether the environment considers the task solved; None if it has no score."""
    if (score := environment_score(trajectory)) is not None:
        return score >= trajectory.outcome.success_threshold
    return trajectory.outcome.success if scored_by_environment(trajectory) else None


def needs_judge(trajectory: Trajectory) -> bool:
    """Whether a trajectory's reward must come from a judge: it did not fail, and its environment has no score."""
    return is_rolled_out(trajectory.outcome.failure) and not scored_by_environment(trajectory)


def can_check(trajectory: Trajectory) -> bool:
    """Whether a check can score a trajectory: it did not fail, or by its check alone."""
    outcome = trajectory.outcome
    # With a final state, an environment error is the check's own: the episode had ended.
    failed_check = outcome.failure is FailureKind.ENVIRONMENT_ERROR and trajectory.final is not None
    return is_rolled_out(outcome.failure) or failed_check


def newest_judgement(judgements: Sequence[Judgement], source: JudgementSource) -> Judgement | None:
    """Return the newest judgement of a source from a list in ascending order.

    One of a judge that was unavailable replaces no other.
    """
    of_source = [one for one in reversed(judgements) if one.source == source]
    return next((one for one in of_source if not one.unavailable), next(iter(of_source), None))


def newest_verdict(judgements: Sequence[Judgement], source: JudgementSource) -> Judgement | None:
    """Return the newest judgement of a source that is no `judge_failed`, which says nothing; without one the newest."""
    readable = [one for one in judgements if one.failure is not FailureKind.JUDGE_FAILED]
    return newest_judgement(readable, source) or newest_judgement(judgements, source)


def effective_verdict(judgements: Sequence[Judgement]) -> Judgement | None:
    """Return the effective judgement from a trajectory's judgements in ascending order: the newest of its check.

    Without one the judge's newest that did not fail; without that the outcome reward model's newest.
    """
    if (by_check := newest_judgement(judgements, "check")) is not None:
        return by_check
    # The judge sees the evidence and a rubric; the reward model only predicts its decision.
    by_judge, by_orm = newest_verdict(judgements, "judge"), newest_judgement(judgements, "orm")
    if by_judge is None or (by_orm is not None and by_judge.failure is FailureKind.JUDGE_FAILED):
        return by_orm
    return by_judge


def with_verdict(trajectory: Trajectory, judgement: Judgement | None) -> Trajectory:
    """Return the trajectory with the judgement in its outcome; unchanged without one.

    An infrastructure failure remains. A reward from the environment remains too, with the judge's opinion as an
    additional score. An ORM's verdict sets the reward only if it is unknown: the score is its probability, and the
    reward is 1 if that reached the threshold, else 0.
    """
    before = trajectory.outcome
    if judgement is None:
        return trajectory
    if judgement.source == "check":
        return _with_check(trajectory, judgement)
    if not is_rolled_out(before.failure):
        return trajectory
    changes: dict[str, Any] = {}
    if judgement.success is not None:
        reward = float(judgement.success)
        value = known_or(judgement.probability, reward)
        score = Score(source=judgement.source, value=value, detail=judgement.models.get("verdict", ""))
        # The threshold of the settings is of rewards that an environment or a gateway's client gives.
        changes = {"reward": reward, "success_threshold": SUCCESS_REWARD, "failure": None, "failure_detail": ""}
        changes["scores"] = (*before.scores, score)
    else:
        changes = {"reward": None, "failure": judgement.failure, "failure_detail": judgement.failure_detail}
    if scored_by_environment(trajectory) or (judgement.source == "orm" and before.reward is not None):
        changes = {name: value for name, value in changes.items() if name == "scores"}
    outcome = Outcome.model_validate({**before.model_dump(), **changes})
    return trajectory.model_copy(update={"outcome": outcome})


def _with_check(trajectory: Trajectory, judgement: Judgement) -> Trajectory:
    """Return the trajectory with the reward of its repeated check, in place of the one before or of its failure."""
    before = trajectory.outcome
    score = Score(
        source="check",
        value=judgement.reward or 0.0,
        detail=judgement.models.get("verdict", ""),
        extras=judgement.extras,
        digest=judgement.settings_digest,
    )
    others = (one for one in before.scores if one.source != "check")
    changes = {"reward": score.value, "scores": (*others, score), "failure": None, "failure_detail": ""}
    return trajectory.model_copy(update={"outcome": Outcome.model_validate({**before.model_dump(), **changes})})


LabelValue = Literal["yes", "no", "unsure"]
LABELS: tuple[LabelValue, ...] = ("yes", "no", "unsure")


class EpisodeLabel(StoredRecord):
    """What one person said of one episode, one line of the store (`schema` 1)."""

    trajectory: str
    """The trajectory's id."""
    label: LabelValue
    """Whether the task was solved."""
    who: str
    """The person. Of several labels by one person the newest counts."""
    labelled_at: Moment
    """ISO 8601, UTC."""
