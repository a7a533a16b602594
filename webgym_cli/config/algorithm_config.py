"""Settings `algorithm_config`: the dataset and LLaMA-Factory's training. The text under a field is its help."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from webgym_cli.config.section import ConfigSection


class AlgorithmSettings(ConfigSection):
    """The dataset and its training, under the names of WebGym's `update_online.yaml`."""

    model_output_name: str = "model.pt"
    """Name of the current policy in the run directory."""
    last_n_iterations: int = Field(default=4, ge=1)
    """How many of the newest iterations are read."""
    filter_successful_only: bool = True
    """Train on successful trajectories only."""
    filter_same_screenshot: bool = True
    """Drop steps after which the screen looked the same."""
    filter_retokenized: bool = True
    """Drop responses whose text has other token ids than were sampled: training would see what was never served."""
    min_trajectory_steps: int = Field(default=2, ge=1)
    """Trajectories with fewer steps are dropped."""
    positive_samples_to_train: int | None = Field(default=1800, ge=1)
    """Steps in the dataset; null: all that are eligible."""
    weighting: Literal["iteration", "position"] = "iteration"
    """What the recency bias counts. `iteration`: each iteration has a share, and within it every step is alike;
    `position`: each step has a weight of its own by its place in time, as WebGym draws."""
    recency_bias_power: float = Field(default=2.0, ge=0, allow_inf_nan=False)
    """A share or weight is proportional to (i+1)^power, i counting from the oldest iteration that was read, or from
    the oldest eligible step; 0: no bias."""
    val_split_ratio: float = Field(default=0.05, ge=0, lt=1)
    """Share of the trajectories held out into `finetune_val.json`."""
    seed: int | None = None
    """Seed of the draw; null: the run's seed."""
    finetuning_type: Literal["full", "lora"] = "full"
    """What is trained: the model's own weights, or a low-rank adapter that is merged into them after each training."""
    lora_rank: int = Field(default=8, ge=1)
    """Rank of the adapter's matrices (LoRA only, as are the other `lora_` settings)."""
    lora_alpha: int | None = Field(default=None, ge=1)
    """Scale of the adapter: it counts lora_alpha / lora_rank times; null: twice the rank."""
    lora_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of the adapter's inputs that are dropped in training."""
    lora_target: str = "all"
    """Modules that get an adapter, by parts of their names with commas between (`q_proj,v_proj`); `all`: every linear
    one that is not frozen, the output layer left out."""
    freeze_vision_tower: bool = True
    """Leave the vision tower as it is, with and without LoRA."""
    freeze_multi_modal_projector: bool = True
    """Leave the projector between vision tower and language model as it is."""
    freeze_language_model: bool = False
    """Leave the language model as it is; needs a vision tower or projector that is not frozen."""
    cutoff_len: int = Field(default=16384, ge=16)
    """Longest training sample in tokens, images counted."""
    per_device_train_batch_size: int = Field(default=3, ge=1)
    """Samples that a process takes at once."""
    per_device_eval_batch_size: int = Field(default=3, ge=1)
    """The same for the evaluation during training."""
    gradient_accumulation_steps: int = Field(default=4, ge=1)
    """Passes whose gradients make one optimizer step: the batch is this times the processes times their samples."""
    learning_rate: float = Field(default=1e-6, gt=0)
    """Learning rate after the warm-up."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    """Gradients with a larger norm are scaled down to it."""
    weight_decay: float = Field(default=0.01, ge=0)
    """AdamW's decoupled weight decay."""
    num_train_epochs: float = Field(default=2, gt=0)
    """Passes over the dataset in one training."""
    warmup_steps: int = Field(default=30, ge=0)
    """Warm-up of a fresh optimizer; a training that keeps its optimizer's moments has none."""
    lr_scheduler_type: str = "constant_with_warmup"
    """Course of the learning rate: a name that transformers knows (`constant_with_warmup`, `cosine`, `linear`, ...)."""
    logging_steps: int = Field(default=1, ge=1)
    """Optimizer steps between two reports of the loss."""
    bf16: bool = True
    """Train in bfloat16; refused on a CPU, where it would be several hundred times slower."""
    do_eval: bool = False
    """Evaluate on the held-out trajectories during training."""
    eval_strategy: Literal["no", "steps", "epoch"] = "epoch"
    """When `do_eval` evaluates."""
    save_strategy: Literal["steps", "epoch"] = "steps"
    """When a training writes checkpoints: every `save_steps`, or after each epoch."""
    save_steps: int = Field(default=999999, ge=1)
    """Steps between checkpoints within a training; the last one is always written."""
    save_total_limit: int = Field(default=1, ge=1)
    """Checkpoints that a training keeps while it runs, the newest."""
    save_only_model: bool = False
    """Leave out the optimizer's states; the next training then starts with a fresh optimizer."""
    preprocessing_num_workers: int = Field(default=16, ge=1)
    """Processes that tokenize the dataset; no more than there are cores and samples."""
    dataloader_num_workers: int = Field(default=2, ge=0)
    """Processes that load batches, for each training process."""
    dataloader_pin_memory: bool = True
    """Load batches into pinned memory (CUDA only)."""
    remove_unused_columns: bool = False
    """Drop columns that the model does not name; keep it off, images are among them."""
    min_token_length: int = Field(default=10, ge=0)
    """Samples whose response is shorter, in tokens, are dropped."""
    gradient_checkpointing: bool = False
    """Compute activations again in the backward pass: less memory, more time."""
    plot_loss: bool = False
    """Have LLaMA-Factory draw the loss into the checkpoint's folder."""
    deepspeed_config_filename: str | None = "ds_config_b200_zero1.json"
    """A shipped DeepSpeed configuration or a path; null: no DeepSpeed."""
    report_to: Literal["wandb", "none"] = "wandb"
    """Where the trainer reports; without a key Weights & Biases logs offline."""
