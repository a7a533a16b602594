"""What an iteration's training is made of: a dataset to imitate, or a batch for policy gradients."""

from __future__ import annotations

from webgym_cli.config.model import Settings
from webgym_cli.jobs.signals import interruptible
from webgym_cli.prepare import execute as imitation
from webgym_cli.prepare.plan import PreparePlan, plan_dataset, refuse_empty
from webgym_cli.prepare.rl import execute as gradients
from webgym_cli.prepare.rl.plan import RlPlan, plan_batch
from webgym_cli.records.dataset import Prepared
from webgym_cli.records.events import EventSink
from webgym_cli.records.rl_data import RlData
from webgym_cli.store.index.query import Index, open_index
from webgym_cli.store.learning import algorithm
from webgym_cli.store.run import RunDir


def plan_preparation(run: RunDir, settings: Settings, index: Index) -> PreparePlan | RlPlan:
    """Return what the current iteration would be trained on. Raises what `plan_dataset` and `plan_batch` raise."""
    if algorithm(run, settings) == "sft":
        return plan_dataset(run, settings, index)
    return plan_batch(run, settings, index)


async def prepare(run: RunDir, settings: Settings, sink: EventSink, *, again: bool) -> tuple[Prepared | RlData, bool]:
    """Write what the current iteration is trained on, unless just that is there; or `again` even so.

    Return what it says of itself, and whether it was written now.
    """
    with interruptible(), open_index(run, progress=sink) as index:
        plan = plan_preparation(run, settings, index)
        if isinstance(plan, RlPlan):
            batch = gradients.read_rl_data(run)
            if batch is not None and batch.plan_digest == plan.digest() and not again:
                return batch, False
            return gradients.execute(plan, run, settings, sink), True
        dataset = imitation.read_prepared(run)
        if dataset is not None and dataset.plan_digest == plan.digest(settings) and not again:
            return dataset, False
        refuse_empty(plan, run)
        return imitation.execute(plan, run, settings, sink), True


def preparation_in_words(made: Prepared | RlData, run: RunDir) -> str:
    """Return what was written, in one line."""
    if isinstance(made, RlData):
        return f"{made.trained} trajectories in {made.rows} rows, {made.trained_tokens} trained tokens in {run.rl_data}"
    return f"{made.train_samples} training and {made.val_samples} validation samples in {run.dataset}"
