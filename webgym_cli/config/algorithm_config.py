"""Settings `algorithm_config` and `filters`: the dataset and LLaMA-Factory's training, each with its help."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from webgym_cli.config.section import ConfigSection
from webgym_cli.records.groups import DifficultyBand
from webgym_cli.util.optional import when


class AlgorithmSettings(ConfigSection):
    """The dataset and its training, under the names of WebGym's `update_online.yaml`."""

    # Its link replaces what has the name: of a run by someone else, a path would be one to any file of this user.
    model_output_name: str = Field(default="model.pt", pattern=r"^[^./\x00][^/\x00]*$")
    """Name of the current policy in the run directory, without folders."""
    last_n_iterations: int = Field(default=4, ge=1)
    """Number of newest iterations that the dataset is drawn from."""
    filter_successful_only: bool = True
    """Train on successful trajectories only."""
    filter_same_screenshot: bool = True
    """Drop steps that did not change the screenshot."""
    filter_retokenized: bool = True
    """Drop responses whose text tokenizes to other ids than were sampled: training would see tokens that the policy
    never generated."""
    min_trajectory_steps: int = Field(default=2, ge=1)
    """Minimum number of steps of a trajectory; shorter ones are dropped."""
    positive_samples_to_train: int | None = Field(default=1800, ge=1)
    """Maximum number of steps in the dataset; null: all eligible ones."""
    weighting: Literal["iteration", "position"] = "iteration"
    """Unit of the recency bias. `iteration`: each iteration has a share, and the steps within it are weighted equally;
    `position`: each step has its own weight by its position in time, as in WebGym."""
    recency_bias_power: float = Field(default=2.0, ge=0, allow_inf_nan=False)
    """Exponent of the recency bias: a share or weight is proportional to (i+1)^power, where i counts from the oldest
    iteration read, or from the oldest eligible step; 0: no bias."""
    val_split_ratio: float = Field(default=0.05, ge=0, lt=1)
    """Fraction of the trajectories held out into `finetune_val.json` when `do_eval` is set; else none is held out."""
    seed: int | None = None
    """Seed of the sampling; null: the run's seed."""
    finetuning_type: Literal["full", "lora"] = "full"
    """`full`: all weights are trained; `lora`: a low-rank adapter, which is merged into the published weights, and
    which the next training goes on with."""
    lora_rank: int = Field(default=8, ge=1)
    """Rank of the LoRA matrices (LoRA only, as are the other `lora_` settings)."""
    lora_alpha: int | None = Field(default=None, ge=1)
    """LoRA scale: the adapter's output is multiplied by lora_alpha / lora_rank; null: twice the rank."""
    lora_target: str = "all"
    """Comma-separated name fragments of the modules that get an adapter (`q_proj,v_proj`); `all`: every linear layer
    that is not frozen, except the output layer."""
    freeze_vision_tower: bool = True
    """Freeze the vision tower, with and without LoRA."""
    freeze_multi_modal_projector: bool = True
    """Freeze the projector between vision tower and language model."""
    freeze_language_model: bool = False
    """Freeze the language model; requires an unfrozen vision tower or projector."""
    cutoff_len: int = Field(default=16384, ge=16)
    """Maximum length of a training sample in tokens, image tokens included."""
    per_device_train_batch_size: int = Field(default=3, ge=1)
    """Training micro-batch size per process, in samples."""
    gradient_accumulation_steps: int = Field(default=4, ge=1)
    """Micro-batches per optimizer step: the global batch size is this times the number of processes times
    `per_device_train_batch_size`."""
    learning_rate: float = Field(default=1e-6, gt=0)
    """Learning rate after the warm-up."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    """Maximum gradient norm (clipping threshold)."""
    weight_decay: float = Field(default=0.01, ge=0)
    """AdamW's decoupled weight decay coefficient."""
    num_train_epochs: float = Field(default=2, gt=0)
    """Number of epochs of one training."""
    warmup_steps: int | float = Field(default=30, ge=0)
    """Number of warm-up steps of a new optimizer; below 1: their fraction of the training's steps. A training that
    carries over the optimizer state has no warm-up."""
    lr_scheduler_type: str = "constant_with_warmup"
    """Learning rate schedule, by its name in transformers (`constant_with_warmup`, `cosine`, `linear`, ...)."""
    logging_steps: int = Field(default=1, ge=1)
    """Interval of loss logging, in optimizer steps."""
    bf16: bool = True
    """Train in bfloat16; refused on a CPU, where it is several hundred times slower."""
    do_eval: bool = False
    """Evaluate on the held-out trajectories during training."""
    eval_strategy: Literal["no", "steps", "epoch"] = "epoch"
    """Evaluation schedule when `do_eval` is set."""
    eval_steps: int | float | None = Field(default=None, gt=0)
    """Interval of evaluations with `eval_strategy=steps`, in optimizer steps; below 1: a fraction of an epoch; null: as
    `logging_steps`."""
    save_steps: int | float = Field(default=999999, gt=0)
    """Interval of checkpoints within a training, in optimizer steps; below 1: a fraction of an epoch. The final
    checkpoint is always written."""
    save_only_model: bool = False
    """Omit the optimizer state from checkpoints; the next training then starts with a new optimizer."""
    min_token_length: int = Field(default=10, ge=0)
    """Minimum length of a response in tokens; samples with shorter ones are dropped."""
    disable_gradient_checkpointing: bool = False
    """Keep all activations for the backward pass instead of recomputing them: more memory, less time."""
    deepspeed_config_filename: str | None = "ds_config_b200_zero1.json"
    """DeepSpeed configuration: the name of a shipped one or a path; null: no DeepSpeed."""
    report_to: str | list[str] = "wandb"
    """Reporting integrations of the trainer, by their names in transformers (`wandb`, `tensorboard`, `none`, ...);
    without a key Weights & Biases logs offline."""

    @property
    def held_out_ratio(self) -> float:
        """Fraction of the trajectories that are held out: none where no evaluation would read them."""
        return when(self.do_eval, self.val_split_ratio)


class FilterSettings(ConfigSection):
    """Filters of datasets for imitation, in addition to WebGym's; off by default. Each reports what it dropped. Policy
    gradients train on all episodes."""

    only_sites: tuple[str, ...] = ()
    """Sites of eligible tasks: registrable domains (`example.com`), or an environment's name for tasks without an
    address (`miniwob`). Empty: every site."""
    exclude_sites: tuple[str, ...] = ()
    """Sites of excluded tasks, in the same form."""
    difficulties: tuple[DifficultyBand, ...] = ()
    """Difficulty bands of eligible tasks: `easy`, `medium`, `hard`. Empty: every band."""
    max_age_hours: float | None = Field(default=None, gt=0)
    """Maximum age of a trajectory, in hours before the start of the newest one of the training split; null: any age."""
    min_agreement: float = Field(default=0.0, ge=0, le=1)
    """Minimum fraction of the judge's votes that agreed with its decision, on the most disputed question. Trajectories
    that their environment scored have no votes and pass."""
    stable_pages: bool = False
    """Drop a step if its page was still loading or moving, or if the page's HTTP status was an error (the index's
    `loading` and `status`)."""
    drop_older_repeats: bool = False
    """Drop a step if a newer iteration has one of the same task with the same screenshot and response."""
    max_steps_per_trajectory: int | None = Field(default=None, ge=1)
    """Maximum number of eligible steps per trajectory, sampled by the seed; null: all."""
    max_steps_per_task: int | None = Field(default=None, ge=1)
    """Maximum number of eligible steps per task over all iterations read, sampled by the seed; null: all."""
