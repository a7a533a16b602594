"""What `prepare` hands to `train`."""

from __future__ import annotations

from webgym_cli.records.base import Record

# The datasets' names in `dataset_info.json`.
TRAIN, VALIDATION = "webgym_training", "webgym_validation"
# The samples, a JSON array each.
TRAIN_FILE, VALIDATION_FILE = "finetune_train.json", "finetune_val.json"
# The files by which `prepare` tells `train` what to do.
TRAIN_CONFIG, WANDB_ENV, DEEPSPEED, PREPARED = "train_config.yaml", "wandb_env.sh", "deepspeed.json", "prepared.json"


class Prepared(Record):
    """`prepared.json`: written last into a dataset's folder, so its presence says that the dataset is complete."""

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
    train_samples: int
    val_samples: int
    created_at: str
    """ISO 8601, UTC."""
