"""Asks a judge: any server that speaks the OpenAI chat protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import AfterValidator

from webgym_cli.agent.chat import ChatClient, ReplyFormat, require_address
from webgym_cli.config.judge import JudgeSettings
from webgym_cli.errors import SettingsError
from webgym_cli.records.base import Record
from webgym_cli.rewards.judge.question import REPLY_SCHEMA, JudgeQuestion, QuestionKind, build_messages
from webgym_cli.store.screenshots import data_url

# SHA-256 of a screenshot -> its bytes, a PNG or a WebP. Raises `StoreError`.
ImageLoader = Callable[[str], bytes]

# So much of a reason is kept.
REASON_CHARACTERS = 2000


def _truncate_reason(reason: str) -> str:
    return reason[:REASON_CHARACTERS].encode(errors="replace").decode()


class JudgeReply(Record):
    """A judge's answer to one question."""

    reason: Annotated[str, AfterValidator(_truncate_reason)]
    verdict: Literal["yes", "no"]

    @property
    def yes(self) -> bool:
        """The verdict."""
        return self.verdict == "yes"


@dataclass(slots=True)
class JudgeContext:
    """What belongs to one trajectory: its pictures, encoded once, and the requests that it took."""

    images: ImageLoader
    calls: int = 0
    """Requests, repeats included."""
    _urls: dict[str, str] = field(default_factory=dict)

    def url(self, sha256: str) -> str:
        """Return a picture as a data URL. Raises `StoreError`."""
        if sha256 not in self._urls:
            self._urls[sha256] = data_url(self.images(sha256))
        return self._urls[sha256]


class JudgeClient:
    """A judge behind an OpenAI-compatible base URL, with a limit on the calls at once."""

    def __init__(self, settings: JudgeSettings) -> None:
        """Connect to nothing yet. Raises `SettingsError` without a usable `judge.base_url`."""
        require_judge(settings)
        self._settings = settings
        self._client = ChatClient(settings)

    async def ask(self, question: JudgeQuestion, case: JudgeContext) -> JudgeReply:
        """Return the reply to a question. Raises `ChatError` after the last repeat, and `StoreError` for a picture."""
        content = await asyncio.to_thread(build_messages, question, case.url)
        form = ReplyFormat(question.job, JudgeReply, REPLY_SCHEMA)
        return await self._client.ask(content, form, case, model=model_for(self._settings, question.job))

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


def require_judge(settings: JudgeSettings) -> None:
    """Raise `SettingsError` unless `judge.base_url` is an address."""
    hint = "-s judge.base_url=http://HOST:PORT/v1"
    if not settings.base_url:
        raise SettingsError("judge.base_url is empty: there is no judge to ask", hint=hint)
    require_address("judge", settings.base_url, hint)


def model_for(settings: JudgeSettings, job: str) -> str:
    """Return the model that does a job."""
    if job == QuestionKind.KEY_POINT:
        return settings.key_points_model or settings.model
    if job == QuestionKind.BLOCKING:
        return settings.blocking_model or settings.model
    return settings.model
