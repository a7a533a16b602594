"""What a judge said of a trajectory. Judgements are stored beside the trajectories; the newest one counts."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from webgym_cli.records.base import Record
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.trajectory import Outcome, Score, Trajectory


class Verdict(Record):
    """The judge's decision on one question, over all votes."""

    question: str
    """The rubric's fact, the claim check or the reference answer that was asked about."""
    passed: bool
    """The majority of the votes; a tie has not passed."""
    reason: str = ""
    """The reason of one of the votes that decided."""
    votes: tuple[bool, ...] = ()
    """Each vote, in order."""


class Judgement(Record):
    """One judgement of one trajectory, as one line of the store (`schema` 1)."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    trajectory: str
    """The trajectory's id."""
    models: dict[str, str]
    """Which model did which job: `key_points`, `blocking`, `verdict`."""
    settings_digest: str
    """SHA-256 of the judge's settings that decide (models, votes, prompts, limits)."""
    key_points: tuple[int, ...] = ()
    """Indices of the steps whose screenshots were shown for the verdicts; the last one is always among them."""
    blocked: bool | None = None
    """Whether the site shut the browser out; None when it was not asked or not answered."""
    blocked_reason: str = ""
    claims: Verdict | None = None
    """Criterion B: whether all that the answer claims can be seen."""
    facts: tuple[Verdict, ...] = ()
    """Criterion A, a verdict a fact, in the rubric's order; those after the first that failed are not asked."""
    reference: Verdict | None = None
    """Whether the answer matches the reference answer."""
    success: bool | None = None
    """None with a failure, and only then."""
    failure: FailureKind | None = None
    """`judge_failed` or `site_blocked`."""
    failure_detail: str = ""
    calls: int = 0
    """Requests to the judge, repeats included."""
    seconds: float = 0.0
    judged_at: str
    """ISO 8601, UTC."""

    model_config = ConfigDict(populate_by_name=True)

    def to_line(self) -> str:
        """Return the stored form: one line of JSON without a line end."""
        return self.model_dump_json(by_alias=True)


def judged(trajectory: Trajectory, judgement: Judgement) -> Trajectory:
    """Return the trajectory with the judgement in its outcome. A failure of infrastructure stays what it is."""
    before = trajectory.outcome
    if before.failure is not None:
        return trajectory
    if judgement.success is None:
        outcome = before.model_copy(
            update={"reward": None, "failure": judgement.failure, "failure_detail": judgement.failure_detail}
        )
    else:
        value = float(judgement.success)
        score = Score(source="judge", value=value, detail=judgement.models.get("verdict", ""))
        outcome = before.model_copy(update={"reward": value, "scores": (*before.scores, score)})
    return trajectory.model_copy(update={"outcome": Outcome.model_validate(outcome.model_dump())})
