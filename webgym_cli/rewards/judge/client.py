"""Client of a judge model behind any server with the OpenAI chat protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from webgym_cli.agent.client.chat import (
    REPLY_SCHEMA,
    ChatClient,
    JudgeReply,
    ReplyFormat,
    RequestCounter,
    require_endpoint,
)
from webgym_cli.config.judge import JudgeJob, JudgeSettings
from webgym_cli.config.model_servers import is_model_server
from webgym_cli.errors import SettingsError
from webgym_cli.rewards.judge.question import JudgeQuestion, QuestionKind, build_messages
from webgym_cli.store.screenshots import data_url

# Maps a screenshot's SHA-256 to its bytes (PNG or WebP). Raises `StoreError`.
ImageLoader = Callable[[str], bytes]

# Questions that are jobs with optional settings of their own (`judge.jobs`).
_JOBS: dict[str, JudgeJob] = {QuestionKind.KEY_POINT: "key_points", QuestionKind.BLOCKING: "blocking"}


@dataclass(slots=True)
class JudgeContext(RequestCounter):
    """Context of one trajectory: its images, encoded once, and the counts of its requests."""

    images: ImageLoader = field(kw_only=True)
    _urls: dict[str, str] = field(default_factory=dict)

    def url(self, sha256: str) -> str:
        """Return an image as a data URL. Raises `StoreError`."""
        if sha256 not in self._urls:
            self._urls[sha256] = data_url(self.images(sha256))
        return self._urls[sha256]


class JudgeClient:
    """Judge behind OpenAI-compatible base URLs, each with a limit on concurrent requests."""

    def __init__(self, settings: JudgeSettings) -> None:
        """Initialize without connecting. Raises `SettingsError` without a usable `judge.base_url`."""
        require_judge(settings)
        self._settings = settings
        self._clients: dict[str, ChatClient] = {}
        for job in (*_JOBS, ""):
            of_job = settings_for(settings, job)
            self._clients.setdefault(_name_client(of_job), ChatClient(of_job))

    async def ask(self, question: JudgeQuestion, case: JudgeContext) -> JudgeReply:
        """Return the reply to a question. Raises `ChatError` after the last retry, and `StoreError` for an image."""
        content = await asyncio.to_thread(build_messages, question, case.url, self._settings.image_detail)
        form = ReplyFormat(question.job, JudgeReply, REPLY_SCHEMA, question.read)
        of_job = settings_for(self._settings, question.job)
        return await self._clients[_name_client(of_job)].ask(content, form, case, model=of_job.model)

    async def close(self) -> None:
        """Close the connections."""
        for client in self._clients.values():
            await client.close()


def _name_client(settings: JudgeSettings) -> str:
    """Return a name that jobs share if nothing but their model differs: one limit on concurrent requests."""
    return settings.model_dump_json(exclude={"model"})


def require_judge(settings: JudgeSettings) -> None:
    """Raise `SettingsError` unless `judge.base_url` and those of single jobs are URLs, or it names a model server."""
    hint = "-s judge.base_url=http://HOST:PORT/v1"
    if not settings.base_url:
        raise SettingsError("judge.base_url is empty: there is no judge to ask", hint=hint)
    if is_model_server(settings.base_url):  # a command starts it
        return
    require_endpoint("judge", settings, hint)
    for name in settings.jobs:
        place = f"judge.jobs.{name}"
        require_endpoint(place, settings.for_job(name), hint.replace("judge", place))


def settings_for(settings: JudgeSettings, job: str) -> JudgeSettings:
    """Return the settings of a question."""
    return settings.for_job(_JOBS[job]) if job in _JOBS else settings
