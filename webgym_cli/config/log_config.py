"""Settings `log_config`: Weights & Biases. The text under a field is its help."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from webgym_cli.config.section import ConfigSection


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
