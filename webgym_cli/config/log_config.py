"""Settings `log_config`: Weights & Biases. The text under a field is its help."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from webgym_cli.config.section import ConfigSection


class LogSettings(ConfigSection):
    """Weights & Biases."""

    run_name: str = "webgym-"
    """Name of the run there."""
    wandb_key_env_var: str = "WANDB_API_KEY"
    """Name of the environment variable that holds the key; the key itself never stands in settings."""
    entity_name: str = ""
    """User or team that the run belongs to; empty: the default of the account."""
    project_name: str = "rl"
    """Project that the run belongs to."""
    run_id: str = Field(default="", pattern=r"^[^/\\#?%:]{0,128}$")
    """Id of the run there, to continue one; empty: an id of its own, the same for every command on the run."""
    tracking: Literal["auto", "online", "offline", "disabled"] = "auto"
    """How Weights & Biases gets what `metrics.jsonl` has. `auto`: online with a key, else offline, as files to be sent
    later. The stricter of this and `WANDB_MODE` in the environment counts; `disabled` holds for the trainer, too."""
    sample_trajectories: int = Field(default=8, ge=0, le=100)
    """Trajectories of each iteration and evaluation in its table there, with up to three screenshots each."""
    wait_seconds: float = Field(default=60.0, gt=0)
    """Longest that a command waits for Weights & Biases, before a training and at its end; the rest is sent later."""
