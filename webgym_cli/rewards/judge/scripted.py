"""The scripted judge as a server address: `judge.base_url=scripted`, `generate.base_url=scripted`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

from webgym_cli.config.generate import GenerateSettings
from webgym_cli.config.judge import SCRIPTED, SCRIPTED_MODEL, JudgeSettings

SettingsT = TypeVar("SettingsT", JudgeSettings, GenerateSettings)


@asynccontextmanager
async def open_scripted(settings: SettingsT) -> AsyncIterator[SettingsT]:
    """Yield the settings with the address of the model; a scripted one runs for the time of the block."""
    if settings.base_url != SCRIPTED:
        yield settings
        return
    from webgym_cli.rewards.judge.scripted_server import ScriptedJudgeServer

    async with ScriptedJudgeServer() as server:
        answered = settings.as_answered() if isinstance(settings, JudgeSettings) else settings
        yield answered.model_copy(update={"base_url": server.base_url, "model": SCRIPTED_MODEL})
