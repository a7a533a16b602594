"""Registry of model servers that a command starts itself, by the name that `base_url` has in place of an address."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from webgym_cli.util.registry import Registry, lazy


@dataclass(frozen=True, slots=True)
class ModelServer:
    """A server that speaks OpenAI's chat protocol on the loopback interface while a command runs."""

    model: str
    """The name of its model, which is stored with what it answers."""
    start: Callable[[], AbstractAsyncContextManager[str]]
    """Starts the server; the value is its OpenAI base URL."""
    by_rules: bool = False
    """Whether rules answer: what only a model can judge is not asked, and its agreement comes with a caution."""


_START = "webgym_cli.rewards.judge.scripted_server:start_scripted_judge"
SCRIPTED = ModelServer("scripted-judge", lazy(_START), by_rules=True)
# Servers by name, for the judge and for the model that generates tasks.
MODEL_SERVERS: Registry[ModelServer] = Registry(
    noun="model server",
    setting="judge.base_url",
    item_type=ModelServer,
    builtin={"scripted": f"{__name__}:SCRIPTED"},
    usage="MODEL_SERVERS.register(NAME, ModelServer(...)) of webgym_cli.config.model_servers",
)


def find_model_server(base_url: str) -> ModelServer | None:
    """Return the server that a `base_url` names; None for an address."""
    return MODEL_SERVERS.find(base_url) if is_model_server(base_url) else None


def is_model_server(base_url: str) -> bool:
    """Whether a `base_url` is the name of a server and no address, without importing the server."""
    return "://" not in base_url and base_url in MODEL_SERVERS.names()
