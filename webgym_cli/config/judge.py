"""Settings of the judge."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from webgym_cli.config.section import ConfigSection

# Value of a `base_url` that starts the shipped judge of plain rules for the time of a command.
SCRIPTED = "scripted"


class JudgeSettings(ConfigSection):
    """The judge of episodes that their environment does not score: any OpenAI-compatible server."""

    base_url: str = ""
    """OpenAI base URL; empty: no judge, rewards stay unknown until `webgym judge`; `scripted`: the shipped rule-based
    judge, for demonstrations and tests."""
    protocol: str = "webgym"
    """Judge protocol, its questions and how the answers form a verdict: `webgym` (blocking, key points, claims, facts,
    reference answer), or your own, by its registered name or as `path/to/file.py:my_protocol`."""
    model: str = "gemini-3-flash-preview"
    """Model of the verdicts."""
    key_points_model: str = ""
    """Model that selects the relevant screenshots; empty: `model`."""
    key_points_base_url: str = ""
    """OpenAI base URL of `key_points_model`; empty: `base_url`."""
    key_points_api_key_env_var: str = ""
    """Name of the environment variable that holds its API key; empty: `api_key_env_var`, or none with an address of its
    own."""
    blocking_model: str = ""
    """Model that detects whether the site blocked the browser; empty: `model`."""
    blocking_base_url: str = ""
    """OpenAI base URL of `blocking_model`; empty: `base_url`."""
    blocking_api_key_env_var: str = ""
    """Name of the environment variable that holds its API key; empty: `api_key_env_var`, or none with an address of its
    own."""
    api_key_env_var: str = "OPENAI_API_KEY"
    """Name of the environment variable that holds the API key; keys are never stored in settings."""
    structured_output: Literal["json_schema", "json_object", "none"] = "json_schema"
    """`response_format` of a request; `none`: JSON is requested in the prompt only."""
    temperature: float = Field(default=0.0, ge=0)
    """Sampling temperature; at 0 all votes tend to be the same."""
    max_tokens: int = Field(default=1024, ge=16)
    """Maximum length of a response, in tokens."""
    votes: int = Field(default=1, ge=1)
    """Number of independent votes on each fact; the majority decides, and a tie is a failure."""
    retries: int = Field(default=2, ge=0)
    """Maximum number of retries of a call whose response cannot be parsed; after them the judgement fails."""
    timeout: float = Field(default=120.0, gt=0)
    """Time limit of one call, in seconds."""
    concurrency: int = Field(default=16, ge=1)
    """Maximum number of concurrent calls of a server."""
    max_images: int = Field(default=48, ge=1)
    """Maximum number of screenshots per verdict, the newest of the relevant ones."""
    max_blocking_images: int = Field(default=20, ge=1)
    """Maximum number of screenshots for the question whether the site blocked the browser."""
    check_claims: bool = True
    """Also check that the screenshots support every claim of the answer (WebGym's criterion B)."""
