"""Settings of `webgym tasks generate`: the model that derives new tasks from failed ones, and the filters."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from webgym_cli.config.endpoint import ChatEndpointSettings

Share = Annotated[float, Field(ge=0, le=1)]


class GenerateSettings(ChatEndpointSettings):
    """The model that generates tasks, and the filters of its output."""

    base_url: str = ""
    """OpenAI base URL of the model's server; `scripted`: the shipped rule-based server, for demonstrations."""
    model: str = "gpt-4o"
    temperature: float = Field(default=1.0, ge=0)
    """Sampling temperature of new tasks; the feasibility check uses 0."""
    top_p: float | None = Field(default=1.0, gt=0, le=1)
    max_new_tokens: int = Field(default=4096, ge=64)
    timeout: float = Field(default=300.0, gt=0)
    concurrency: int = Field(default=8, ge=1)
    seeds_per_request: int = Field(default=10, ge=1)
    """Number of failed tasks in the prompt of a request."""
    tasks_per_request: int = Field(default=10, ge=1, le=100)
    """Number of new tasks that a request asks for."""
    requests_per_site: int = Field(default=2, ge=1)
    """Maximum number of requests per site."""
    tasks: int | None = Field(default=None, ge=1)
    """Target number of new tasks: requests end once this many passed all filters. null: bounded by `requests_per_site`
    only."""
    near_duplicate: float = Field(default=0.9, gt=0, le=1)
    """Similarity from which two tasks count as duplicates: the overlap of their word sets, from 0 to 1 (the same
    words)."""
    critic: Literal["auto", "critic", "orm", "none"] = "auto"
    """Model that estimates the policy's success probability from the task and its first page. `critic`: that of the
    run's newest `webrl` training; `orm`: the outcome reward model (`orm`); `none`: no estimate. `auto`: the first of
    these that exists."""
    critic_window: tuple[Share, Share] = (0.05, 0.75)
    """Range of success probabilities of accepted tasks, by any head of the critic; others are too hard or too easy."""
    feasibility: bool = True
    """Ask the model for each task whether it is feasible on its site."""

    @model_validator(mode="after")
    def _window_is_one(self) -> GenerateSettings:
        if self.critic_window[0] >= self.critic_window[1]:
            raise ValueError("critic_window: the first number must be below the second")
        return self
