"""Settings of `webgym tasks generate`: who makes new tasks of failed ones, and what is kept of them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from webgym_cli.config.section import ConfigSection

Share = Annotated[float, Field(ge=0, le=1)]


class GenerateSettings(ConfigSection):
    """The model that makes new tasks, and the filters that they pass."""

    base_url: str = ""
    """OpenAI base URL of the server that has it; `scripted`: the shipped one of plain rules, for demonstrations."""
    model: str = "gpt-4o"
    """Its name there."""
    api_key_env_var: str = "OPENAI_API_KEY"
    """Name of the environment variable that holds the key; the key itself never stands in settings."""
    structured_output: Literal["json_schema", "json_object", "none"] = "json_schema"
    """How the server is told to answer in JSON; `none`: by the prompt alone."""
    temperature: float = Field(default=1.0, ge=0)
    """Sampling temperature of new tasks; whether one can be done is asked at 0."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Only the likeliest tokens that have this probability together are sampled from."""
    max_tokens: int = Field(default=4096, ge=64)
    """Longest answer, in tokens."""
    retries: int = Field(default=2, ge=0)
    """Repeats of a request whose answer can't be read."""
    timeout: float = Field(default=300.0, gt=0)
    """Deadline of one request, in seconds."""
    concurrency: int = Field(default=8, ge=1)
    """Requests at once."""
    seeds_per_request: int = Field(default=10, ge=1)
    """Failed tasks that a request shows."""
    tasks_per_request: int = Field(default=10, ge=1, le=100)
    """New tasks that it asks for."""
    requests_per_site: int = Field(default=2, ge=1)
    """Requests about each site at most."""
    tasks: int | None = Field(default=None, ge=1)
    """New tasks that are wanted: once so many passed all filters, no further round of requests is made. null: what
    `requests_per_site` gives."""
    near_duplicate: float = Field(default=0.9, gt=0, le=1)
    """A task is another one said again when their words, each counted once, agree to this share; 1: the same words."""
    critic: Literal["auto", "critic", "orm", "none"] = "auto"
    """Who tells how likely the policy's success is, shown the task and its first page before anything was done.
    `critic`: that of the run's newest training by `webrl`; `orm`: the outcome reward model (`orm`); `none`: nobody.
    `auto`: the first of these that there is."""
    critic_window: tuple[Share, Share] = (0.05, 0.75)
    """Tasks whose success is less or more likely than this are too hard or too easy."""
    feasibility: bool = True
    """Ask the model of each task whether it can be done on its site at all."""

    @model_validator(mode="after")
    def _window_is_one(self) -> GenerateSettings:
        if self.critic_window[0] >= self.critic_window[1]:
            raise ValueError("critic_window: the first number must be below the second")
        return self
