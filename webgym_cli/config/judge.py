"""Settings of what scores episodes: the judge, and the outcome reward model (ORM)."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, field_serializer

from webgym_cli.config.endpoint import ChatEndpointSettings, EndpointSettings
from webgym_cli.config.model_servers import is_model_server
from webgym_cli.util.optional import when

# Jobs that may have a model or server of their own; all others give the verdicts.
JudgeJob = Literal["key_points", "blocking"]


class JudgeSettings(ChatEndpointSettings):
    """The judge of episodes that their environment does not score: any OpenAI-compatible server."""

    base_url: str = ""
    """OpenAI base URL; empty: no judge, rewards stay unknown until `webgym judge`; `scripted`: the shipped rule-based
    judge, for demonstrations and tests; or the name of a plugin's model server."""
    model: str = "gemini-3-flash-preview"
    """Model of the verdicts."""
    jobs: dict[JudgeJob, ChatEndpointSettings] = Field(default_factory=dict)
    """Fields that differ for a job: `key_points` selects the relevant screenshots, `blocking` detects whether the site
    blocked the browser: `{"blocking": {"model": "small"}}`. With a `base_url` of its own a job needs its own
    `api_key_env_var`, or sends no key."""
    protocol: str = "webgym"
    """Judge protocol, its questions and how the answers form a verdict: `webgym` (blocking, key points, claims, facts,
    reference answer), the published `webvoyager`, `webjudge`, `agenttrek` and `agentrewardbench`, or your own, by its
    registered name or as `path/to/file.py:my_protocol`."""
    votes: int = Field(default=1, ge=1)
    """Number of independent votes on each fact; the majority decides, and a tie is a failure. At temperature 0 all
    votes tend to be the same."""
    max_images: int | None = Field(default=None, ge=1)
    """Maximum number of screenshots per verdict, the newest of the relevant ones; null: the protocol's own (`webgym`
    48, `webvoyager` 15, `webjudge` 50; the others show one)."""
    max_blocking_images: int = Field(default=20, ge=1)
    """Maximum number of screenshots for the question whether the site blocked the browser."""
    with_checks: bool = False
    """Also judge episodes that the check of their task scored. Their reward stays the check's; `webgym judge` reports
    the agreement."""
    image_detail: Literal["auto", "low", "high"] = "auto"
    """The `detail` of each screenshot in a request; `auto`: none is sent, the server decides."""
    check_claims: bool = True
    """Also check that the screenshots support every claim of the answer (WebGym's criterion B)."""

    @field_serializer("jobs")
    def _keep_given(self, jobs: dict[JudgeJob, ChatEndpointSettings]) -> dict[str, Any]:
        # A default that is written down would override the judge's own value when it is read again.
        return {name: job.model_dump(mode="json", exclude_unset=True) for name, job in jobs.items()}

    def as_answered(self) -> Self:
        """Return the settings with the models that answer: a model server does the jobs of others, too."""
        return super().as_answered().model_copy(update=when(is_model_server(self.base_url), {"jobs": {}}))

    def for_job(self, name: JudgeJob) -> JudgeSettings:
        """Return the settings of a job."""
        job = self.jobs.get(name, ChatEndpointSettings())
        own = {field: value for field in job.model_fields_set if (value := getattr(job, field)) != ""}
        if "base_url" in own:  # never send another server's key
            own.setdefault("api_key_env_var", "")
        return self.model_copy(update=own)


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
