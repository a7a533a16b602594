"""Checkpoint records: the results of trainings."""

from __future__ import annotations

from pydantic import Field

from webgym_cli.records.base import Record


class LoraAdapter(Record):
    """LoRA adapter in a checkpoint's folder `adapter`; the checkpoint's weights include it."""

    base: str
    """The adapter's base model: a checkpoint's name, or the run's base model."""
    rank: int
    alpha: int
    targets: str
    """The adapted layers, as configured for the trainer."""
    vision: bool
    """Whether the vision tower is adapted."""

    def goes_on(self, other: LoraAdapter) -> bool:
        """Whether a training of the other adapter can continue from this one."""
        return self.model_copy(update={"base": other.base}) == other


class Checkpoint(Record):
    """`checkpoint.json` in the weights' folder. It is written last, so its presence marks a complete checkpoint."""

    name: str
    """The folder's name under `checkpoints/`."""
    version: int
    """Number of trainings that produced these weights, which is the iteration that this policy rolls out."""
    iteration: int
    """The iteration whose data it was trained on."""
    parent: str
    """The model it started from: a checkpoint's name, or the base model."""
    algorithm: str = "sft"
    """The training backend or advantage estimator that trained it (`train.algorithm`)."""
    objective: dict[str, str | float] = Field(default_factory=dict)
    """The settings `rl.webrl` of a training by `webrl`; empty otherwise."""
    data_digest: str
    """SHA-256 of the dataset that it was trained on."""
    resumable: bool
    """Whether optimizer and scheduler states are stored beside the weights."""
    steps: int
    """Optimizer steps of this training."""
    loss: float | None = None
    """Mean loss of this training; with a critic, the actor's."""
    metrics: dict[str, float] = Field(default_factory=dict)
    """Metrics of webgym's own trainer, named as in AgentFly; empty for `sft`."""
    seconds: float | None = None
    """Wall time of the command that finished this training, from its start to the publication."""
    gpus: int = 0
    """GPUs of this training on all nodes; 0 on a CPU, and in older runs."""
    cpu_seconds: float = 0.0
    """Processor time of the trainer on this node; 0 in an asynchronous loop, where the episodes' time contains it."""
    adapter: LoraAdapter | None = None
    """The LoRA adapter that was merged into the weights; None: no LoRA."""
    reference: str = ""
    """The checkpoint whose KL divergence this training and the next ones limit; empty: none of the run's."""
    weights: bool = True
    """Whether the weights are still there: `train.keep_weights` removes those of old checkpoints."""
    created_at: str
    """ISO 8601, UTC."""
