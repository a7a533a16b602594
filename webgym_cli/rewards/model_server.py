"""Starts the registered model server that settings name in place of an address."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

from webgym_cli.config.endpoint import EndpointSettings
from webgym_cli.config.model_servers import find_model_server

SettingsT = TypeVar("SettingsT", bound=EndpointSettings)


@asynccontextmanager
async def open_model_server(settings: SettingsT) -> AsyncIterator[SettingsT]:
    """Yield the settings with the address of their server; one that is named runs for the time of the block."""
    server = find_model_server(settings.base_url)
    if server is None:
        yield settings
        return
    async with server.start() as address:
        yield settings.as_answered().model_copy(update={"base_url": address})
