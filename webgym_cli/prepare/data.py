"""`PreparedData`: what a training backend trains on, from the plan of `webgym prepare` to what training reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from webgym_cli.config.model import Settings
from webgym_cli.config.rl_data import GroupBy
from webgym_cli.records.dataset import PreparedRecord, TrainingData
from webgym_cli.records.events import EventSink
from webgym_cli.store.run import RunDir
from webgym_cli.util.registry import Registry

if TYPE_CHECKING:
    from webgym_cli.agent.client.prompt_logprobs import ClientFactory
    from webgym_cli.records.batch import BatchSelection
    from webgym_cli.store.index.query import Index


class DataPlan(Protocol):
    """The plan of an iteration's training data."""

    @property
    def iteration(self) -> int:
        """The iteration to train on."""

    @property
    def read(self) -> tuple[int, ...]:
        """Iterations to read, oldest first."""

    def digest(self) -> str:
        """Return the SHA-256 of all that determines the data; equal digests mean equal data."""

    def to_json(self) -> dict[str, object]:
        """Return the output of `--dry-run`."""


Plan = TypeVar("Plan", bound=DataPlan)


class PreparedData(ABC, Generic[Plan]):
    """A kind of training data. Backends name it (`TrainingBackend.data`), other code asks it."""

    needs_logprobs = False
    """Whether it holds the log-probabilities that the tokens of a trajectory were sampled with."""

    @abstractmethod
    def folder(self, run: RunDir) -> Path:
        """Return the folder that `write` replaces."""

    @abstractmethod
    def plan(self, run: RunDir, settings: Settings, index: Index, selection: BatchSelection | None = None) -> Plan:
        """Return the plan for the run's current iteration, or for a selection of stored trajectories.

        Raises `MissingStageError` without any trajectory. The plan's index must be open until the data is written.
        """

    @abstractmethod
    def list_members(
        self, plan: Plan, run: RunDir, settings: Settings, index: Index, selection: BatchSelection | None
    ) -> Iterable[dict[str, Any]]:
        """Return the trajectories that the data uses for the first time, group by group, for the batch ledger.

        Each with `group_id`, `id`, `episode`, `reward` and `reason`: why it is left out, None if it is used.
        """

    @abstractmethod
    def write(self, plan: Plan, run: RunDir, settings: Settings, sink: EventSink, scores: Any = None) -> PreparedRecord:
        """Write the data; the same plan gives the same bytes. `scores`: the result of `score`, if the plan needs it."""

    @abstractmethod
    def find_written(self, run: RunDir) -> PreparedRecord | None:
        """Return the record of the existing data, of whatever iteration, or None. Raises `UsageError` if damaged."""

    def is_made_by(self, prepared: PreparedRecord, plan: Plan) -> bool:
        """Whether data was written by an equal plan."""
        return prepared.plan_digest == plan.digest()

    @abstractmethod
    def read(self, run: RunDir, settings: Settings) -> TrainingData:
        """Return the current policy's data. Raises `MissingStageError` if it has none, or none for these settings."""

    def require_content(self, plan: Plan, run: RunDir) -> None:
        """Raise `WebGymError` with the reasons if there is nothing to train on."""
        return

    def needs_scores(self, plan: Plan) -> bool:
        """Whether the current policy scores actions of earlier experience before the data is written."""
        return False

    async def score(self, plan: Plan, run: RunDir, settings: Settings, sink: EventSink, reach: ClientFactory) -> Any:
        """Return the scores that `write` takes; asked only if the plan needs them.

        `reach`: makes a client of the policy's server.
        """
        return None

    @abstractmethod
    def group_by(self, settings: Settings) -> GroupBy:
        """Return how episodes are grouped."""

    def filters_groups(self, run: RunDir, settings: Settings) -> bool:
        """Whether a group whose rewards are all equal is left out, and another one rolled out in its place."""
        return False

    def check_async(self, settings: Settings) -> None:
        """Raise `SettingsError` if the data can't be made of the episodes of a running rollout (`loop.mode=async`)."""
        return

    def add_older(self, run: RunDir, settings: Settings, iterations: Sequence[int]) -> tuple[int, ...]:
        """Return the iterations that data of new episodes of `iterations` reads, oldest first."""
        return tuple(iterations)

    def plan_config(self, run: RunDir, settings: Settings) -> dict[str, Any] | None:
        """Return the trainer's configuration beside the data; None without one, or if the user edited it."""
        return None

    def renew_config(self, run: RunDir, settings: Settings, sink: EventSink) -> None:
        """Write the trainer's configuration anew if the settings have changed."""
        return


# Kinds of training data by name: `dataset`: chosen steps to imitate; `batch`: all trajectories of the iteration with
# their token ids, log-probs and rewards; `steps`: the same, a row a step, with the digest of its observation;
# `transitions`: a row a step, with the state after it and replayed steps of earlier iterations.
PREPARED_DATA: Registry[PreparedData[Any]] = Registry(
    noun="kind of training data",
    setting="train.algorithm",
    entry_point_group="webgym.prepared_data",
    item_type=PreparedData,  # type: ignore[type-abstract]  # mypy refuses an abstract class as a value
    builtin={
        "dataset": "webgym_cli.prepare.sft.data:DATASET",
        "batch": "webgym_cli.prepare.rl.data:BATCH",
        "steps": "webgym_cli.prepare.rl.data:STEPS",
        "transitions": "webgym_cli.prepare.rl.data:TRANSITIONS",
    },
    usage="PREPARED_DATA.register(NAME, YourPreparedData()) of webgym_cli.prepare.data",
)
