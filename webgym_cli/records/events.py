"""Events: how stages report progress. Those that are read again, or summed up in words, have a type each.

`docs/events.md` is their page: the tests compare it with these types and with each event that the source makes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NotRequired, Required, TypedDict, cast

if TYPE_CHECKING:
    from typing_extensions import ReadOnly

    from webgym_cli.records.groups import Split


class Event(TypedDict, total=False):
    """One event: its name, and what any event may have. Its own facts are further keys, only ever added to."""

    event: Required[ReadOnly[str]]
    message: str
    """For people, in one line."""
    bar: str
    """The progress bar that `done` and `total` move; default: the event's name."""
    done: int
    total: int
    facts: str
    """Words beside the bar."""
    transient: bool
    """Only for a live board: neither written to stdout nor kept in a log."""


# Takes the events of a stage, in order.
EventSink = Callable[[Event], None]


def make_event(event: str, **facts: object) -> Event:
    """Return an event whose facts nobody here reads: those of a record, of a plan, or a few of its own."""
    return cast(Event, {"event": event, **facts})


def rename_event(summary: Event, event: str, **facts: object) -> Event:
    """Return the event under another name, with further facts."""
    return cast(Event, {**summary, **facts, "event": event})


class EpisodeEvent(Event):
    """`trajectory`, `judged`: an episode was stored, or has its judgement."""

    id: str
    task: str
    reward: float | None
    stop: str | None
    failure: str | None
    failure_detail: str | None
    steps: int
    seconds: float


class SuccessFacts(TypedDict):
    """How often it went well."""

    successes: int
    success_rate: float | None
    interval: list[float]
    """Of 95 %."""


class RewardFacts(SuccessFacts):
    """What the episodes came to whose reward is known."""

    episodes: int
    mean_reward: float | None
    mean_steps: float | None
    reward_extra: dict[str, float]
    tool_calls: dict[str, float]


class CommandFacts(TypedDict):
    """What a command itself did of a rollout."""

    collected: int
    steps: int
    seconds: float
    steps_per_second: float
    failures: dict[str, int]
    failures_by_site: dict[str, dict[str, int]]
    skipped: int
    skip_reasons: dict[str, int]
    cut: int
    cut_bias: NotRequired[dict[str, Any]]
    judged: int
    judge_tail_seconds: float
    servers: NotRequired[dict[str, dict[str, Any]]]
    stages: dict[str, dict[str, float | None]]


class RolloutSummary(Event, RewardFacts, CommandFacts):
    """`rollout`, `evaluation`: the episodes of an iteration so far, of a `survey` too."""

    split: Split
    iteration: int
    policy: str
    owed: int
    unjudged: int
    """Stored episodes whose reward waits for `webgym judge`."""


class AgreementFacts(TypedDict):
    """How often two sources of verdicts agree on what both know."""

    both: int
    same: int
    rate: float | None


class JudgeSummary(Event, SuccessFacts):
    """`judge`: a `webgym judge` is done."""

    judged: int
    verdicts: int
    judge_failed: int
    site_blocked: int
    calls: int
    agreement_with_previous: AgreementFacts
    agreement_with_environment: AgreementFacts
    models: dict[str, str]
    seconds: float


class ScoreSummary(Event, SuccessFacts):
    """`score`: a `webgym score` is done."""

    scored: int
    asked: int
    mean_probability: float | None
    unreadable: int
    cut: int
    agreement_with_environment: AgreementFacts
    model: str
    threshold: float
    seconds: float


class GenerationSummary(Event):
    """`generate`: a `webgym tasks generate` is done."""

    seeds: int
    proposed: int
    kept: int
    rejected: dict[str, int]
    kept_by_site: dict[str, int]
    asked: int
    unanswered: int
    calls: int
    critic: str
    model: str
    seconds: float
    out: NotRequired[str]


class PhaseSummary(Event):
    """`phase`: the training of a curriculum's phase is done."""

    phase: int
    phases: int
    iteration: int
    version: int
    name: str
    new_tasks: int | None
    turned_down: int | None
    episodes: int
    scored: int
    successes: int
    success_rate: float | None


class ServerEvent(Event, total=False):
    """`serve`, `swap`, `sleep`, `wake`, `stop`, `replica`, `swap_failed`, `unload_failed`: the state of a server."""

    seconds: float
    how: str
    """`in_place`, `adapter` (beside the weights that were served) or `restart`."""
    url: str
    model: str
    level: int
    again: bool
    """Whether a server that died is started again."""
    reason: str


class TrainerStep(Event):
    """`train`: the trainer has logged a step."""

    loss: NotRequired[float]
    eval_loss: NotRequired[float]
    learning_rate: NotRequired[float]
    eta: NotRequired[float]
    """Seconds."""
