"""The scripted judge by name: `judge.base_url=scripted`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from webgym_cli.config.judge import SCRIPTED, JudgeSettings


@asynccontextmanager
async def judge_settings(settings: JudgeSettings) -> AsyncIterator[JudgeSettings]:
    """Give the settings by which the judge is asked; the scripted one runs for the time of the block."""
    if settings.base_url != SCRIPTED:
        yield settings
        return
    from webgym_cli.rewards.judge.scripted_server import MODEL, ScriptedJudgeServer

    async with ScriptedJudgeServer() as server:
        own = dict.fromkeys(("key_points_model", "blocking_model", "key_points_base_url", "blocking_base_url"), "")
        yield settings.model_copy(update={"base_url": server.base_url, "model": MODEL, **own})
