"""Settings of the outcome reward model (ORM)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from webgym_cli.config.endpoint import EndpointSettings


class OrmSettings(EndpointSettings):
    """The outcome reward model: the probability of success is that of YES as the first token of its answer."""

    base_url: str = ""
    """OpenAI base URL of the model's server, preferably vLLM; empty: `webgym score` serves `orm.model` itself while it
    scores."""
    model: str = ""
    """Folder or hub id of the model that `webgym score` serves; at `orm.base_url` its name there, empty: the server's
    only model."""
    threshold: float = Field(default=0.5, ge=0, le=1)
    """Minimum probability of a success. A change of the threshold re-evaluates stored probabilities without new
    requests."""
    system_prompt: str = ""
    """System prompt; empty: the built-in one. A model that was trained with another prompt needs that one."""
    max_tokens: int = Field(default=16384, ge=256)
    """Maximum length of a prompt, in tokens. A longer one is truncated in the middle of the last page, then in the
    middle of the actions."""
    labels: tuple[Literal["environment", "judge", "orm"], ...] = Field(default=("environment", "judge"), min_length=1)
    """Sources of training labels (`webgym prepare --target orm`), by priority: the first that has a verdict on a
    trajectory. `orm`: the verdicts of another model; its own would only confirm its current predictions."""
