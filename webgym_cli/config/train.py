"""Settings `train`, `venvs` and `log_config`: how a training runs, in which environment, and where it is reported."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from webgym_cli.config.section import ConfigSection
from webgym_cli.config.serve import GpuNames


class TrainSettings(ConfigSection):
    """The execution of a training."""

    algorithm: str = "sft"
    """Training algorithm. `sft`: supervised fine-tuning on selected episodes with LLaMA-Factory (`algorithm_config`).
    Policy gradients on all episodes of an iteration (`rl`), by advantage estimator: `grpo`, `rloo`,
    `reinforce_plus_plus`, `remax`, `gae`, `gigpo`; `webrl`: WebRL's actor-critic (`rl.webrl`); or a training backend or
    estimator of yours (`plugins`). Demonstration iterations use `loop.demonstration_algorithm`."""
    nproc_per_node: int | None = Field(default=None, ge=1)
    """Number of training processes on this machine; null: one per GPU (`train.gpus`), one on a CPU."""
    gpus: GpuNames = ()
    """GPUs of this machine's training, by the names that `CUDA_VISIBLE_DEVICES` takes; none: all that it leaves."""
    keep_optimizer_state: bool = True
    """Carry over the optimizer state from one iteration's training to the next."""
    time_limit_minutes: float = Field(default=1440.0, gt=0)
    """Time limit of one training, and of each process beside it, in minutes."""
    stall_minutes: float = Field(default=30.0, gt=0)
    """Time without progress after which a training, or a process beside it such as the critic, is stopped, in minutes:
    nothing new in its log and its folder. It is at least ten times the longest such time before, so that it follows the
    training's own step time."""
    executor: Literal["local", "ray"] = "local"
    """`local`: this machine; `ray`: this machine and others of the Ray cluster (`rollout.ray_address`)."""
    nodes: int | None = Field(default=None, ge=1)
    """Number of training nodes with `executor: ray`, including this one; null: all nodes of the cluster that have as
    many GPUs as a training uses on this one."""
    keep_checkpoints: int = Field(default=2, ge=1)
    """Number of newest checkpoints that keep their optimizer state; older ones keep only the weights."""
    keep_weights: int | None = Field(default=None, ge=1)
    """Number of newest checkpoints that keep their weights; older ones keep only their records. null: all. Weights that
    a server on this machine was started with are kept until the next training after it ends."""
    check_disk_space: bool = True
    """Refuse a training that needs more disk space than is free for its weights, optimizer state and their copies."""
    check_template: bool = True
    """Refuse data for LLaMA-Factory whose template renders other prompts than the model was served: both renderings of
    some samples are compared token by token, when they are prepared and before they are trained on; about ten seconds
    for each new tokenizer or template."""
    extra: dict[str, Any] = Field(default_factory=dict)
    """Additional LLaMA-Factory settings, written into `train_config.yaml` unchanged."""


class LogSettings(ConfigSection):
    """Weights & Biases."""

    run_name: str = "webgym-"
    """Name of the Weights & Biases run."""
    wandb_key_env_var: str = "WANDB_API_KEY"
    """Name of the environment variable that holds the API key; keys are never stored in settings."""
    entity_name: str = ""
    """Weights & Biases user or team that owns the run; empty: the account's default."""
    project_name: str = "rl"
    """Weights & Biases project of the run."""
    run_id: str = Field(default="", pattern=r"^[^/\\#?%:]{0,128}$")
    """Id of the Weights & Biases run, to continue an existing one; empty: a generated id, shared by all commands on the
    run."""
    tracking: Literal["auto", "online", "offline", "disabled"] = "auto"
    """Upload mode of the metrics in `metrics.jsonl`. `auto`: online with a key, else offline, as files that can be
    synced later. The stricter of this and the variable `WANDB_MODE` applies; `disabled` also applies to the trainer."""
    sample_trajectories: int = Field(default=8, ge=0, le=100)
    """Number of trajectories of each iteration and evaluation in the Weights & Biases table, with up to three
    screenshots each."""
    wait_seconds: float = Field(default=60.0, gt=0)
    """Maximum wait of a command for the upload, before a training and at its end, in seconds; the rest is uploaded
    later."""


class VenvsSettings(ConfigSection):
    """The Python environments of vLLM and LLaMA-Factory (`webgym setup`)."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Hardware of the environments; `auto`: cuda if an NVIDIA driver responds."""
    serve: str = ""
    """Python interpreter, or virtual environment folder, with vLLM; empty: the one of `webgym setup`."""
    train: str = ""
    """Python interpreter, or virtual environment folder, with LLaMA-Factory; empty: the one of `webgym setup`."""
