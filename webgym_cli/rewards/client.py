"""Asks a judge: any server that speaks the OpenAI chat protocol. What can't be read is asked again, never guessed."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx
import openai
from pydantic import ValidationError

from webgym_cli.config.collect import JudgeSettings
from webgym_cli.errors import BoundaryError, SettingsError
from webgym_cli.records.base import Record
from webgym_cli.records.failure import FailureKind
from webgym_cli.rewards.prompts import REPLY_SCHEMA, Job, Question, messages
from webgym_cli.store.screenshots import data_url

ImageLoader = Callable[[str], bytes]
"""SHA-256 of a screenshot -> its bytes, a PNG or a WebP. Raises `StoreError`."""

REASON_CHARACTERS = 2000
"""So much of a reason is kept."""

_NO_KEY = "none"
_SHORT_NAME, _LONG_NAME = "max_tokens", "max_completion_tokens"
"""What servers call the limit of an answer: most know the short name, a few take only the long one."""
_FENCE = re.compile(r"\A```(?:json)?[ \t]*\n(.*)\n[ \t]*```\Z", re.DOTALL)


class JudgeError(BoundaryError):
    """The judge gave no verdict. `unavailable`: it was down or refused the request."""

    def __init__(self, message: str, *, unavailable: bool = False) -> None:
        super().__init__(FailureKind.JUDGE_FAILED, message)
        self.unavailable = unavailable


class UnreadableError(Exception):
    """An answer is not exactly one reply of the form that was asked for."""


class Reply(Record):
    """A judge's answer to one question."""

    reason: str
    verdict: Literal["yes", "no"]

    @property
    def yes(self) -> bool:
        """The verdict."""
        return self.verdict == "yes"


@dataclass(slots=True)
class Case:
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
        self._limit_name = _SHORT_NAME
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._client = openai.AsyncOpenAI(
            base_url=settings.base_url,
            api_key=api_key(settings.api_key_env_var),
            timeout=settings.timeout,
        )

    async def ask(self, question: Question, case: Case) -> Reply:
        """Return the reply to a question. Raises `JudgeError` after the last repeat, and `StoreError` for a picture."""
        content = await asyncio.to_thread(messages, question, case.url)
        left = self._settings.retries
        while True:
            answer = await self._send({"messages": content, **self._parameters(question.job)}, left, case)
            try:
                return read_completion(_parsed(answer))
            except UnreadableError as error:
                left -= answer.retries_taken + 1
                if left < 0:
                    raise JudgeError(f"{question.job}: {error}") from error

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _send(self, request: dict[str, Any], retries: int, case: Case) -> Any:
        """Return the library's raw answer; it repeats what failed, and waits between as the server asks."""
        client = self._client.with_options(max_retries=retries)
        try:
            async with self._slots:
                answer = await client.chat.completions.with_raw_response.create(**request)
        except openai.APIError as error:
            case.calls += _repeats(error.request) + 1
            if _LONG_NAME in str(error) and _SHORT_NAME in request:  # OpenAI's reasoning models refuse the short name
                self._limit_name = _LONG_NAME
                limit = {_LONG_NAME: request.pop(_SHORT_NAME)}
                return await self._send(request | limit, retries, case)
            reason = reason_of(error, client.api_key)
            raise JudgeError(f"{client.base_url}: {reason}", unavailable=True) from error
        case.calls += answer.retries_taken + 1
        return answer

    def _parameters(self, job: Job) -> dict[str, Any]:
        settings = self._settings
        parameters: dict[str, Any] = {
            "model": model_for(settings, job),
            "temperature": settings.temperature,
            self._limit_name: settings.max_tokens,
        }
        if settings.structured_output == "json_schema":
            schema = {"name": job.value, "strict": True, "schema": REPLY_SCHEMA}
            parameters["response_format"] = {"type": "json_schema", "json_schema": schema}
        elif settings.structured_output == "json_object":
            parameters["response_format"] = {"type": "json_object"}
        return parameters


def require_judge(settings: JudgeSettings) -> None:
    """Raise `SettingsError` unless `judge.base_url` is an address."""
    hint = "-s judge.base_url=http://HOST:PORT/v1"
    if not settings.base_url:
        raise SettingsError("judge.base_url is empty: there is no judge to ask", hint=hint)
    require_address("judge", settings.base_url, hint)


def require_address(section: str, base_url: str, hint: str) -> None:
    """Raise `SettingsError` unless the `base_url` of a section of the settings is one."""
    try:
        url = httpx.URL(base_url)
    except httpx.InvalidURL as error:
        raise SettingsError(f"{section}.base_url: {base_url!r} is no address: {error}", hint=hint) from error
    if url.scheme not in ("http", "https") or not url.host:
        raise SettingsError(f"{section}.base_url: {base_url!r} is no http(s) address", hint=hint)


def api_key(variable: str) -> str:
    """Return the key from the environment; `none` where there is none, as many local servers need none."""
    key = os.environ.get(variable, "").strip()
    if not key.isascii() or not key.isprintable():
        raise SettingsError(f"environment {variable}: the key holds characters that no HTTP header can carry")
    return key or _NO_KEY


def model_for(settings: JudgeSettings, job: Job) -> str:
    """Return the model that does a job."""
    if job is Job.KEY_POINT:
        return settings.key_points_model or settings.model
    if job is Job.BLOCKING:
        return settings.blocking_model or settings.model
    return settings.model


def _parsed(answer: Any) -> Any:
    try:
        return answer.parse()
    except (openai.APIError, AttributeError, TypeError, ValueError, RecursionError) as error:
        raise UnreadableError(f"the answer is no chat completion: {reason_of(error)}") from error


def read_completion(completion: Any) -> Reply:
    """Return the one reply that a chat completion holds. Raises `UnreadableError`."""
    try:
        (choice,) = completion.choices
        finished, text = choice.finish_reason, choice.message.content
    except (AttributeError, TypeError, ValueError) as error:
        raise UnreadableError("the answer is no chat completion with one choice") from error
    if finished != "stop":
        raise UnreadableError(f"the answer was not finished (finish_reason {finished!r})")
    if not isinstance(text, str):
        raise UnreadableError("the answer has no text")
    return read_reply(text)


def read_reply(text: str) -> Reply:
    """Return the reply that a text is: exactly one JSON object of our form, a code fence around it allowed.

    Raises `UnreadableError` for everything else: prose, a verdict outside of JSON, several objects, a key given twice.
    """
    text = text.encode(errors="replace").decode().strip()
    fence = _FENCE.match(text)
    try:
        value = json.loads(fence[1] if fence else text, object_pairs_hook=_unique)
        reply = Reply.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise UnreadableError(f"the answer is not of the form asked for: {place} {first['msg']}") from error
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"the answer is not one JSON object: {_excerpt(text)}") from error
    return reply.model_copy(update={"reason": reply.reason[:REASON_CHARACTERS].encode(errors="replace").decode()})


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _repeats(request: Any) -> int:
    """Return which repeat a request was: the library writes it into a header."""
    return int(request.headers.get("x-stainless-retry-count", 0))


def _excerpt(text: str) -> str:
    return repr(" ".join(text.split())[:100]) if text else "it is empty"


def reason_of(error: Exception, secret: str = _NO_KEY) -> str:
    """Return an error in one line, without the key."""
    text = " ".join(str(error).split()) or type(error).__name__
    if secret != _NO_KEY:
        text = text.replace(secret, "[key]")  # some servers repeat the key that they refuse
    return text[:300]
