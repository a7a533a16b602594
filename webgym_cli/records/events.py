"""Events: progress reports of the stages. Those that are put together in several places have a typed dictionary each.

`docs/events.md` documents them; tests compare it with these types and with the events that the code emits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NotRequired, Required, TypedDict, cast

if TYPE_CHECKING:
    from typing_extensions import ReadOnly

    from webgym_cli.records.groups import Split


class Event(TypedDict, total=False):
    """Common keys of all events. Each kind adds its own keys."""

    event: Required[ReadOnly[str]]
    message: str
    """A one-line message for users."""
    bar: str
    """The progress bar that `done` and `total` belong to; default: the event's name."""
    done: int
    total: int
    facts: str
    """Text next to the bar."""
    transient: bool
    """Only for the live view: neither written to stdout nor logged."""


# Receives the events of a stage in order.
EventSink = Callable[[Event], None]


def make_event(event: str, **facts: object) -> Event:
    """Return an event whose keys no code reads: those of a record or a plan, or a few of its own."""
    return cast(Event, {"event": event, **facts})


def rename_event(summary: Event, event: str, **facts: object) -> Event:
    """Return an event under another name, with additional keys."""
    return cast(Event, {**summary, **facts, "event": event})


class EpisodeEvent(Event):
    """`trajectory`, `judged`: an episode was stored, or its judgement was."""

    id: str
    task: str
    reward: float | None
    stop: str | None
    failure: str | None
    failure_detail: str | None
    steps: int
    seconds: float


class RolloutSummary(Event):
    """`rollout`, `evaluation`: results of an iteration's episodes so far, also of a `survey`."""

    split: Split
    iteration: int
    policy: str
    owed: int
    """Planned episodes that are neither stored nor given up."""
    given_up: int
    unjudged: int
    """Stored episodes that still need `webgym judge`."""
    episodes: int
    """Episodes with a known reward, as in the following fields."""
    successes: int
    success_rate: float | None
    interval: list[float]
    """95 % confidence interval."""
    solved_cases: float
    scored_cases: int
    """Test tasks, of which repeats count once, with their mean; else episodes."""
    mean_reward: float | None
    mean_steps: float | None
    reward_extra: dict[str, float]
    tool_calls: dict[str, float]
    collected: int
    """Of this command, as the following fields."""
    steps: int
    seconds: float
    steps_per_second: float
    failures: dict[str, int]
    skipped: int
    skip_reasons: dict[str, int]
    cut: int
    judged: int
    judge_tail_seconds: float
    servers: NotRequired[dict[str, dict[str, Any]]]
    stages: dict[str, dict[str, float | None]]


class ServerEvent(Event, total=False):
    """`serve`, `swap`, `sleep`, `wake`, `stop`, `replica`, `silent`, `swap_failed` and others: state of a server."""

    seconds: float
    how: str
    """`in_place`, `adapter` (loaded in addition to the served weights) or `restart`."""
    url: str
    model: str
    level: int
    again: bool
    """Whether a server that died is restarted."""
    reason: str


class TrainerStep(Event):
    """`train`: a logged training step."""

    loss: NotRequired[float]
    eval_loss: NotRequired[float]
    learning_rate: NotRequired[float]
    eta: NotRequired[float]
    """Remaining time in seconds."""
