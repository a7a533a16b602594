"""Settings `train`: how the trainer is run. The text under a field is its help."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from webgym_cli.config.section import ConfigSection


class TrainSettings(ConfigSection):
    """How the trainer is run."""

    algorithm: str = "sft"
    """How a policy learns. `sft`: it imitates chosen episodes, with LLaMA-Factory (`algorithm_config`). The others:
    policy gradients on all episodes of an iteration (`rl`), by the advantage estimator that is named: `grpo`, `rloo`,
    `reinforce_plus_plus`, `remax`, `gae`; `webrl`: WebRL's critic and actor (`rl.webrl`); or a training backend or
    estimator of yours (`plugins`). Iterations of demonstrations have `loop.demonstration_algorithm`."""
    nproc_per_node: int | None = Field(default=None, ge=1)
    """Processes on this machine; null: one for each GPU that `CUDA_VISIBLE_DEVICES` leaves, one on CPU."""
    keep_optimizer_state: bool = True
    """Carry Adam's moments from one iteration's training into the next."""
    time_limit_minutes: float = Field(default=1440.0, gt=0)
    """Deadline of one training."""
    stop_grace: float = Field(default=30.0, gt=0)
    """Seconds between TERM and KILL."""
    executor: Literal["local", "ray"] = "local"
    """`local`: on this machine, or on as many as `NNODES` says, each running the same command; `ray`: on this machine
    and on others of the Ray cluster (`rollout.ray_address`)."""
    nodes: int = Field(default=1, ge=1)
    """Nodes that train together with `executor: ray`, this one included."""
    node_storage: Literal["auto", "separate"] = "auto"
    """`auto`: a node that Ray placed works in the run's folder where it sees it, else it is sent what it needs;
    `separate`: it is sent what it needs in any case."""
    node_timeout: float = Field(default=120.0, ge=1)
    """Seconds of silence after which a node of a training over several nodes counts as dead. It is also how long the
    nodes wait for each other at the beginning."""
    keep_checkpoints: int = Field(default=2, ge=1)
    """Newest checkpoints that keep their optimizer's states; older ones keep only the weights."""
    keep_weights: int | None = Field(default=None, ge=1)
    """Newest checkpoints that keep their weights; older ones keep only their records. null: all. Weights that a server
    on this machine was started with stay until the training after its end."""
    check_disk_space: bool = True
    """Refuse a training that needs more disk space than is free: its weights, optimizer states and their copies."""
    extra: dict[str, Any] = Field(default_factory=dict)
    """More LLaMA-Factory settings, written into `train_config.yaml` as they stand."""
