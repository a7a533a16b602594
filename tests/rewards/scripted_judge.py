"""The scripted judge with replies in place of its decisions, and a record of what it was asked."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from webgym_cli.rewards.judge import scripted_server
from webgym_cli.rewards.judge.scripted_server import build_completion, read_data, refuse


@dataclass(frozen=True)
class ScriptedReply:
    """One reply that is given in place of a decision."""

    content: str | None = None
    """The text of the message; None: none at all."""
    finish_reason: str = "stop"
    status: int = 200
    """HTTP status; with another one than 200 there is no completion."""
    body: bytes | None = None
    """The whole body, sent as it is."""
    silent: bool = False
    """Never answer: the request stays open until the client or the server closes it."""
    step: int | None = None
    """Number of the step whose page is asked about: questions of one moment arrive in any order. None: any question."""


@dataclass(frozen=True)
class ReceivedQuestion:
    """A question as it arrived."""

    job: str
    data: Mapping[str, Any]
    """The fenced fields."""
    images: tuple[str, ...]
    """The pictures' data URLs."""
    request: Mapping[str, Any]
    """The request without its messages."""
    authorization: str


class ScriptedJudgeServer(scripted_server.ScriptedJudgeServer):
    def __init__(self) -> None:
        super().__init__()
        self.requests: list[ReceivedQuestion] = []
        """The questions so far, oldest first."""
        self._scripts: dict[str, list[ScriptedReply]] = {}
        self._arrived = asyncio.Condition()

    def script(self, *replies: ScriptedReply | str, job: str = "") -> None:
        """Answer the next questions (of this job) by these replies; a text is the content of a finished message."""
        scripted_replies = [ScriptedReply(reply) if isinstance(reply, str) else reply for reply in replies]
        self._scripts.setdefault(job, []).extend(scripted_replies)

    async def arrived(self, count: int, job: str = "") -> None:
        """Wait until so many questions (of this job) have arrived."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: sum(job in ("", question.job) for question in self.requests) >= count)

    async def _complete(self, request: web.Request) -> web.Response:
        usual = await super()._complete(request)
        if usual.status != 200:
            return usual
        body = await request.json()
        question = _read(body, request.headers.get("Authorization", ""))
        async with self._arrived:
            self.requests.append(question)
            self._arrived.notify_all()
        scripts = self._scripts.get(question.job) or self._scripts.get("")
        if not scripts:
            return usual
        page = question.data.get("page")
        step = page.get("step") if isinstance(page, dict) else None
        scripted = next(reply for reply in scripts if reply.step in (None, step))
        scripts.remove(scripted)
        if scripted.silent:
            await self.closing.wait()
        if scripted.body is not None:
            return web.Response(body=scripted.body, status=scripted.status, content_type="application/json")
        if scripted.status != 200:
            return refuse(scripted.status, "scripted")
        return web.json_response(build_completion(body, scripted.content, scripted.finish_reason))


def _read(body: Mapping[str, Any], authorization: str) -> ReceivedQuestion:
    data = read_data(body)
    parts = body["messages"][-1]["content"]
    images = tuple(part["image_url"]["url"] for part in parts if part["type"] == "image_url")
    request = {name: value for name, value in body.items() if name != "messages"}
    return ReceivedQuestion(data["question"], data, images, request, authorization)
