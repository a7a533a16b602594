"""Settings of the judge."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from webgym_cli.config.section import ConfigSection

# Value of a `base_url` that starts the shipped judge of plain rules for the time of a command.
SCRIPTED = "scripted"


class JudgeSettings(ConfigSection):
    """The judge of episodes that the environment itself can't score: any OpenAI-compatible server."""

    base_url: str = ""
    """Base URL; empty: no judge, the rewards stay unknown until `webgym judge`; `scripted`: the shipped judge of plain
    rules, for demonstrations and tests."""
    protocol: str = "webgym"
    """What the judge is asked and how its answers become a verdict: `webgym` (blocking, key points, claims, facts,
    reference answer), or one of your own, by the name that a plugin registered or as `path/to/file.py:my_protocol`."""
    model: str = "gemini-3-flash-preview"
    """The model that gives the verdicts."""
    key_points_model: str = ""
    """The model that picks the screenshots that matter; empty: `model`."""
    blocking_model: str = ""
    """The model that tells whether the site blocked the browser; empty: `model`."""
    api_key_env_var: str = "OPENAI_API_KEY"
    """Name of the environment variable that holds the key; the key itself never stands in settings."""
    structured_output: Literal["json_schema", "json_object", "none"] = "json_schema"
    """How the server is told to answer in JSON; `none`: by the prompt alone."""
    temperature: float = Field(default=0.0, ge=0)
    """Sampling temperature; votes differ by it."""
    max_tokens: int = Field(default=1024, ge=16)
    """Longest answer, in tokens."""
    votes: int = Field(default=1, ge=1)
    """Independent verdicts on each fact; the majority counts, a tie is no success."""
    retries: int = Field(default=2, ge=0)
    """Repeats of a call whose answer can't be read; then the judgement failed."""
    timeout: float = Field(default=120.0, gt=0)
    """Deadline of one call, in seconds."""
    concurrency: int = Field(default=16, ge=1)
    """Calls at once."""
    max_images: int = Field(default=48, ge=1)
    """Screenshots shown for a verdict at most: the newest of those that matter."""
    max_blocking_images: int = Field(default=20, ge=1)
    """Screenshots shown for the question whether the site blocked the browser."""
    check_claims: bool = True
    """Also ask whether everything that the answer claims can be seen on the screenshots (WebGym's criterion B)."""
