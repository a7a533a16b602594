"""The dataset of chosen steps to imitate (`llamafactory_data/`) as a kind of training data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from webgym_cli.config.model import Settings
from webgym_cli.config.rl_data import GroupBy
from webgym_cli.errors import SettingsError
from webgym_cli.prepare.data import PreparedData
from webgym_cli.prepare.sft.train_config import plan_train_config, refresh_train_config
from webgym_cli.records.dataset import Prepared, TrainingData
from webgym_cli.records.events import EventSink
from webgym_cli.records.groups import Split
from webgym_cli.store.checkpoints import policy_path
from webgym_cli.store.prepared import find_prepared, read_data_digest, read_prepared
from webgym_cli.store.run import RunDir
from webgym_cli.util.registry import lazy

if TYPE_CHECKING:
    from webgym_cli.prepare.sft.plan import PreparePlan
    from webgym_cli.records.batch import BatchSelection
    from webgym_cli.store.index.query import Index

_MEMBERS = """
SELECT coalesce(group_id, episode) AS group_id, id, episode, reward, prepare_trajectories.reason
FROM prepare_trajectories JOIN trajectories USING (id, file, start) LEFT JOIN rl_planned USING (episode)
WHERE {where} ORDER BY min(number) OVER (PARTITION BY coalesce(group_id, episode)), number
"""


class Dataset(PreparedData["PreparePlan"]):
    """Chosen steps to imitate. What plans and writes is imported when it is used: training only reads."""

    find_written = staticmethod(find_prepared)
    plan_config = staticmethod(plan_train_config)
    renew_config = staticmethod(refresh_train_config)
    plan = staticmethod(lazy("webgym_cli.prepare.sft.plan:plan_dataset"))
    require_content = staticmethod(lazy("webgym_cli.prepare.sft.plan:refuse_empty"))

    def folder(self, run: RunDir) -> Path:
        """Return `llamafactory_data/`."""
        return run.dataset

    def list_members(
        self, plan: PreparePlan, run: RunDir, settings: Settings, index: Index, selection: BatchSelection | None
    ) -> Iterable[dict[str, Any]]:
        """Return the trajectories that are selected, else the newest iteration's."""
        from webgym_cli.prepare.groups import load_planned_groups

        load_planned_groups(index, run, plan.read, "chain", settings.agent.group_size)
        if selection is None:
            return index.rows(_MEMBERS.format(where="iteration = ?"), [plan.read[-1]])
        return index.rows(_MEMBERS.format(where="list_contains(?, id)"), [sorted(selection.trajectories)])

    def write(
        self, plan: PreparePlan, run: RunDir, settings: Settings, sink: EventSink, scores: Any = None
    ) -> Prepared:
        """See `execute`."""
        from webgym_cli.prepare.sft.execute import execute

        return execute(plan, run, settings, sink)

    def read(self, run: RunDir, settings: Settings) -> TrainingData:
        """Return the dataset; its digest is that of the samples as they are now."""
        prepared = read_prepared(run)
        model, digest = str(policy_path(run, settings)), read_data_digest(run, prepared)
        return TrainingData(prepared.model_name, prepared.iteration, prepared.parent, model, digest)

    def group_by(self, settings: Settings) -> GroupBy:
        """Return `chain`: imitation compares no tasks."""
        return "chain"

    def check_async(self, settings: Settings) -> None:
        """Refuse to drop stale episodes, which imitation draws from."""
        if settings.loop.stale == "drop":
            raise SettingsError(
                "loop.stale=drop is for policy gradients: imitation draws from older episodes, too",
                hint="-s loop.stale=wait",
            )

    def add_older(self, run: RunDir, settings: Settings, iterations: Sequence[int]) -> tuple[int, ...]:
        """Return `iterations` and the `last_n_iterations` newest ones up to them."""
        stored = [number for number in run.list_iterations(Split.TRAIN) if number <= max(iterations)]
        return tuple(sorted({*stored[-settings.algorithm_config.last_n_iterations :], *iterations}))


DATASET = Dataset()
