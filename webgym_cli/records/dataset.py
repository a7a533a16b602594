"""Records of the data that `prepare` writes for `train`."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from webgym_cli.records.base import Record, StoredRecord
from webgym_cli.records.sampling import Sampling
from webgym_cli.util.optional import when

# Names of the datasets in `dataset_info.json`.
TRAIN, VALIDATION = "webgym_training", "webgym_validation"
# Files with the samples, one JSON array each.
TRAIN_FILE, VALIDATION_FILE = "finetune_train.json", "finetune_val.json"
# Files that configure the training.
TRAIN_CONFIG, WANDB_ENV, DEEPSPEED, PREPARED = "train_config.yaml", "wandb_env.sh", "deepspeed.json", "prepared.json"
DATASET_INFO = "dataset_info.json"

# Files of a policy-gradient batch.
ROWS, TRAJECTORIES, SUMMARY, DROPPED = "rows.jsonl", "trajectories.jsonl", "rl.json", "dropped.json"


class TrainingData(NamedTuple):
    """The training data that `webgym prepare` wrote for the current policy."""

    name: str
    """The name of the checkpoint that the training makes."""
    iteration: int
    parent: str
    """The model that is trained: a checkpoint's name, or the base model."""
    model: str
    """Its folder or hub id."""
    digest: str
    """SHA-256 of the samples, and of a batch's rewards."""
    former_digest: str = ""
    """The same as an older version computed it, without the rewards; empty if there are none."""


class PreparedRecord(Protocol):
    """The record of training data, written last."""

    @property
    def model_name(self) -> str:
        """Name of the checkpoint that the training creates."""

    @property
    def plan_digest(self) -> str:
        """SHA-256 of the plan that the data was made by."""

    def facts(self) -> dict[str, Any]:
        """Return the fields as JSON values."""

    def summarize(self) -> str:
        """Return the sizes in words."""


class Prepared(Record):
    """`prepared.json` in a dataset's folder. It is written last, so its presence marks a complete dataset."""

    iteration: int
    """The iteration whose training this dataset is for."""
    model_name: str
    """Name of the checkpoint that the training creates: `model_<YYYYmmdd_HHMMSS>`."""
    parent: str
    """The model it starts from: a checkpoint's name, or the base model."""
    data_digest: str
    """SHA-256 of the training and validation files."""
    plan_digest: str = ""
    """SHA-256 of the candidates and the sampling settings; empty in a dataset made by other means."""
    config_digest: str = ""
    """SHA-256 of `train_config.yaml` as written; a different digest means that it was edited by hand."""
    deepspeed_digest: str = ""
    """SHA-256 of `deepspeed.json`, likewise; empty without one, and in a dataset of an older version."""
    train_samples: int
    val_samples: int
    created_at: str
    """ISO 8601, UTC."""

    def facts(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return self.model_dump(mode="json", by_alias=True)

    def summarize(self) -> str:
        """Return the number of samples in words."""
        return f"{self.train_samples} training and {self.val_samples} validation samples"


class RlData(StoredRecord):
    """`rl.json`, the summary of a policy-gradient batch. It is written last, so its presence marks a complete batch."""

    iteration: int
    """The iteration whose training this batch is for."""
    model_name: str
    """Name of the checkpoint that the training creates: `model_<YYYYmmdd_HHMMSS>`."""
    policy: str
    """The model to train: the checkpoint's name, or the base model."""
    model: str
    """Its path, or the base model's Hub id."""
    sampling: Sampling
    trained: int
    """Trajectories that have rows."""
    rows: int
    current_rows: int | None = None
    """Rows from the iteration's own episodes; only with `webrl`."""
    replayed_rows: int | None = None
    """Rows from earlier experience; only with `webrl`."""
    tokens: int
    """Tokens of all rows."""
    trained_tokens: int
    """Tokens that the policy produced."""
    plan_digest: str
    """SHA-256 of the batch's sources and settings."""
    digest: str
    """SHA-256 of `rows.jsonl`."""

    def facts(self) -> dict[str, Any]:
        """Return the fields as JSON values, without those that only `webrl` sets if they are unset."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    def summarize(self) -> str:
        """Return the numbers of trajectories, rows and tokens in words."""
        replayed = when(self.replayed_rows is not None, f" ({self.replayed_rows} of them replayed)")
        return f"{self.trained} trajectories in {self.rows} rows{replayed}, {self.trained_tokens} trained tokens"
