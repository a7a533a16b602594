"""Settings of the outcome reward model (ORM)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from webgym_cli.config.section import ConfigSection


class OrmSettings(ConfigSection):
    """The model that tells how probable it is that a task was done, by the first token of its answer: YES or NO."""

    base_url: str = ""
    """OpenAI base URL of the server that has it, vLLM for preference; empty: `webgym score` serves `orm.model` itself
    while it scores."""
    model: str = ""
    """Folder or hub id where we serve it; at `orm.base_url` its name there, empty: the only one that the server has."""
    api_key_env_var: str = "OPENAI_API_KEY"
    """Name of the environment variable that holds the key; the key itself never stands in settings."""
    threshold: float = Field(default=0.5, ge=0, le=1)
    """From this probability on the task counts as done. Another threshold needs no new answers: what is scored is
    decided anew."""
    system_prompt: str = ""
    """What the model is told first; empty: our own words. A model that was trained with other words wants those."""
    max_tokens: int = Field(default=16384, ge=256)
    """Longest prompt, in tokens. What is too long loses the middle of the last page, then that of the actions."""
    retries: int = Field(default=2, ge=0)
    """Repeats of a request that the server did not answer."""
    timeout: float = Field(default=120.0, gt=0)
    """Deadline of one request, in seconds."""
    concurrency: int = Field(default=16, ge=1)
    """Trajectories at once."""
    labels: tuple[Literal["environment", "judge", "orm"], ...] = Field(default=("environment", "judge"), min_length=1)
    """Whose verdict on a trajectory is trained on (`webgym prepare --target orm`): the first of these that has one.
    `orm`: another model's; its own verdicts would only teach it what it thinks already."""
    balanced: bool = True
    """Train on as many trajectories of either kind, done and not done: of the more frequent kind the rest is left out
    by the seed. false: on all of them."""
