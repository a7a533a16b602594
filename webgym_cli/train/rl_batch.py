"""The batch of our own trainer, as `prepare` wrote it."""

from __future__ import annotations

from webgym_cli.config.model import Settings
from webgym_cli.errors import MissingStageError
from webgym_cli.records.dataset import SUMMARY, RlData
from webgym_cli.store import checkpoints
from webgym_cli.store.checkpoints import algorithm
from webgym_cli.store.run import RunDir
from webgym_cli.train.llamafactory import dataset


def read_batch(run: RunDir, settings: Settings, *, webrl: bool) -> RlData:
    """Return the batch's record. Raises `MissingStageError` unless it is the current policy's and fits the settings."""
    file, hint = run.rl_data / SUMMARY, f"webgym prepare {run.root}"
    if not file.is_file():
        raise MissingStageError(f"{run.rl_data}: there is no batch", hint=hint)
    batch = dataset.read_record(file, RlData, hint)
    newest = checkpoints.current(run)
    version = checkpoints.version(run)
    if batch.iteration != version or (newest and batch.policy != newest.name):
        raise MissingStageError(
            f"{run.rl_data}: the batch is for training {batch.policy} in iteration {batch.iteration}, the current "
            f"policy is {newest.name if newest else 'the base model'}, version {version}",
            hint=f"webgym rollout {run.root}, then {hint}",
        )
    if (batch.replayed_rows is not None) != webrl:
        kind = algorithm(run, settings)
        fault = f"was not prepared for train.algorithm={kind}"
        if not webrl:
            fault = f"was prepared for train.algorithm=webrl, not for {kind}"
        raise MissingStageError(f"{run.rl_data}: the batch {fault}", hint=f"{hint} -s train.algorithm={kind}")
    # Where the policy is now: the run may have been moved or copied since.
    return batch.model_copy(update={"model": checkpoints.locate_model(checkpoints.policy_path(run, settings))})
