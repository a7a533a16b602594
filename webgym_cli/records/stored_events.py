"""Records of the events that are read again from `metrics.jsonl`."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, ConfigDict, Field

from webgym_cli.records.base import Moment, Record, is_finite, moment_of
from webgym_cli.util.json_values import as_object


def _finite(value: Any) -> Any:
    """Return None for NaN and infinity: JSON has no number for a diverged loss."""
    return None if isinstance(value, int | float) and not is_finite(value) else value


def _finite_numbers(value: Any) -> dict[str, float]:
    return {name: float(number) for name, number in as_object(value).items() if is_finite(number)}


def _seconds(value: Any) -> float | None:
    return float(value) if is_finite(value) and value >= 0 else None


def _moment(value: Any) -> float | None:
    with suppress(TypeError, ValueError):
        return moment_of(value).timestamp()
    return None


def _stage_totals(value: Any) -> dict[str, float]:
    totals = {name: _seconds(as_object(facts).get("total")) for name, facts in as_object(value).items()}
    return {name: total for name, total in totals.items() if total}


Seconds = Annotated[float | None, BeforeValidator(_seconds)]
Timestamp = Annotated[float | None, BeforeValidator(_moment)]
Text = Annotated[str | None, BeforeValidator(lambda value: value if isinstance(value, str) else None)]
Number = Annotated[int | None, BeforeValidator(lambda value: value if isinstance(value, int) else None)]


class StoredEvent(Record):
    """A line of `metrics.jsonl` with the keys that are read again."""

    # Lines of older and newer versions have other keys; the named ones keep their meaning.
    model_config = ConfigDict(extra="ignore", strict=True)
    name_of_event: ClassVar[str]
    """Value of the key `event`."""


class DatasetEvent(StoredEvent):
    """A dataset was written."""

    name_of_event = "prepare"
    iteration: int
    model_name: str
    parent: str
    train_samples: int
    val_samples: int
    at: Moment


class TrainingEvent(StoredEvent):
    """A checkpoint was published."""

    name_of_event = "train"
    version: int
    name: str
    parent: str
    iteration: int
    steps: int
    """Optimizer steps."""
    loss: Annotated[float | None, BeforeValidator(_finite)] = None
    """Mean loss; None if it was not logged or is not finite."""
    created_at: str
    seconds: Seconds = None
    gpus: int = 0
    cpu_seconds: float = 0.0
    metrics: Annotated[dict[str, float], BeforeValidator(_finite_numbers)] = Field(default_factory=dict)
    """Metrics of webgym's own trainer; empty for other backends."""

    @property
    def gpu_seconds(self) -> float:
        """Wall time times the GPUs."""
        return self.gpus * (self.seconds or 0.0)


class EvaluationEvent(StoredEvent):
    """A policy version was evaluated on the test episodes."""

    name_of_event = "evaluation"
    iteration: int
    episodes: int
    """Episodes with a known reward."""
    success_rate: float | None
    interval: list[float] = Field(min_length=2, max_length=2)
    """95 % confidence interval."""
    mean_reward: float | None = None
    """None also if an older version wrote the line."""


class BatchEvent(StoredEvent):
    """An asynchronous loop has made a batch."""

    name_of_event = "batch"
    iteration: int
    """The policy version to train."""
    episodes: int
    groups: int
    staleness: dict[str, Any]
    """`mean`, `p95`, `max`, and `tokens`: number of tokens by staleness."""
    ready: int
    open: int
    trainer_wait_seconds: float
    admission_wait_seconds: float
    """Sum over the slots."""
    held_seconds: float
    """Sum over the episodes."""


class PhaseEvent(StoredEvent):
    """The training of a curriculum's phase has finished."""

    name_of_event = "phase"
    phase: int
    iteration: int
    version: int
    """Version of the new policy."""
    new_tasks: int | None = None
    """Generated tasks that passed the filters; None: the tasks are the original ones."""
    turned_down: int | None = None
    """Generated tasks that the filters rejected."""
    episodes: int
    scored: int
    successes: int


# Lenient: the report of a long run must not fail on a line that was edited or written by an older version.
class TimedEvent(StoredEvent):
    """End and duration of a stage or server action. A value of the wrong type counts as missing."""

    event: str
    at: Timestamp = None
    """Seconds since 1970."""
    seconds: Seconds = None
    iteration: Number = None
    policy: Text = None
    judge_tail_seconds: Seconds = None
    """Seconds at the end of a rollout with only judgements outstanding."""
    stages: Annotated[dict[str, float], BeforeValidator(_stage_totals)] = Field(default_factory=dict)
    """Seconds per episode stage (reset, policy, act, ...), summed over the episodes."""
    model_name: Text = None
    """For a dataset: the checkpoint that it is prepared for."""
    name: Text = None
    """For a training: its checkpoint."""
    created_at: Timestamp = None
