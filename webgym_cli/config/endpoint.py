"""Settings of a model behind a server: one record wherever a server is asked. The text under a field is its help."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal, Self

from pydantic import Field

from webgym_cli.config.model_servers import find_model_server
from webgym_cli.config.section import ConfigSection

# Environment variable that holds the API key, unless the settings name another.
OPENAI_KEY = "OPENAI_API_KEY"


class RequestSettings(ConfigSection):
    """The requests to OpenAI-compatible servers."""

    api_key_env_var: str = OPENAI_KEY
    """Name of the environment variable that holds the API key; keys are never stored in settings."""
    timeout: float = Field(default=120.0, gt=0)
    """Time limit of one request, in seconds."""
    retries: int = Field(default=2, ge=0)
    """Maximum number of retries of a failed request, or of one whose response cannot be parsed."""


class EndpointSettings(RequestSettings):
    """A model behind an OpenAI-compatible server."""

    base_url: str = ""
    """OpenAI base URL of the server."""
    model: str = ""
    """The model's name on the server."""
    concurrency: int = Field(default=16, ge=1)
    """Maximum number of concurrent requests."""

    def as_answered(self) -> Self:
        """Return the settings with the model that answers: that of a model server that `base_url` names."""
        server = find_model_server(self.base_url)
        return self.model_copy(update={"model": server.model}) if server else self

    @asynccontextmanager
    async def reach(self) -> AsyncIterator[Self]:
        """Yield the settings with their server's address; a server that is named runs for the time of the block."""
        server = find_model_server(self.base_url)
        if server is None:
            yield self
            return
        async with server.start() as address:
            yield self.as_answered().model_copy(update={"base_url": address})


class ChatEndpointSettings(EndpointSettings):
    """A model that answers chats, with the sampling of its answers."""

    temperature: float = Field(default=0.0, ge=0)
    """Sampling temperature; 0: greedy decoding."""
    max_new_tokens: int = Field(default=1024, ge=16)
    """Maximum length of a response, in tokens."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """Nucleus sampling: cumulative probability of the tokens that are sampled from; null: the server's default."""
    structured_output: Literal["json_schema", "json_object", "none"] = "json_schema"
    """`response_format` of a request; `none`: JSON is requested in the prompt only."""
    extra_body: dict[str, Any] = Field(default_factory=dict)
    """Additional fields of a request, such as `{"reasoning_effort": "low"}`; `model`, `messages`, `n` and `stream` are
    refused."""
