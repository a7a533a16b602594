"""Asks any server that speaks the OpenAI chat protocol for one JSON object. What can't be read is asked again."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeVar, cast

import httpx
import openai
from pydantic import ValidationError

from webgym_cli.config.generate import GenerateSettings
from webgym_cli.config.judge import JudgeSettings
from webgym_cli.errors import BoundaryError, SettingsError
from webgym_cli.records.base import Record
from webgym_cli.records.failure import FailureKind
from webgym_cli.util.http_client import MAX_ANSWER, BoundedClient
from webgym_cli.util.text import hide_passwords

RecordT = TypeVar("RecordT", bound=Record)
# The sections of the settings that name a server, and how it is asked.
ChatSettings = JudgeSettings | GenerateSettings

_NO_KEY = "none"
# What servers call the limit of an answer: most know the short name, a few take only the long one.
_SHORT_NAME, _LONG_NAME = "max_tokens", "max_completion_tokens"
_FENCE = re.compile(r"\A```(?:json)?[ \t]*\n(.*)\n[ \t]*```\Z", re.DOTALL)


class ChatError(BoundaryError):
    """The model gave no answer that can be read. `unavailable`: its server was down or refused the request."""

    def __init__(self, message: str, *, unavailable: bool = False) -> None:
        super().__init__(FailureKind.JUDGE_FAILED, message)
        self.unavailable = unavailable


class UnreadableError(Exception):
    """An answer is not exactly one reply of the form that was asked for."""


class RequestCounter(Protocol):
    """Counts requests."""

    calls: int
    """Requests, repeats included."""


@dataclass(frozen=True, slots=True)
class ReplyFormat(Generic[RecordT]):
    """How an answer must look."""

    name: str
    """Of the schema, and what an error calls the question."""
    kind: type[RecordT]
    schema: Mapping[str, Any]
    """The JSON schema of `kind`, for servers that hold a model to one."""


class ChatClient:
    """A server behind an OpenAI-compatible base URL, with a limit on the calls at once."""

    def __init__(self, settings: ChatSettings) -> None:
        """Connect to nothing yet. Raises `SettingsError` for a key that no header can carry."""
        self._settings = settings
        self._limit_name = _SHORT_NAME
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._client = openai_client(settings.base_url, read_api_key(settings.api_key_env_var), settings.timeout)

    async def ask(
        self,
        messages: Sequence[Mapping[str, Any]],
        form: ReplyFormat[RecordT],
        counter: RequestCounter | None = None,
        *,
        model: str,
        sampling: Mapping[str, Any] = MappingProxyType({}),
    ) -> RecordT:
        """Return the answer to a chat. `sampling`: parameters beside the temperature.

        Raises `ChatError` after the last repeat.
        """
        left = self._settings.retries
        while True:
            request = {"messages": messages, "model": model, **self._parameters(form), **sampling}
            answer = await self._send(request, left, counter)
            try:
                return read_completion(answer, form.kind)
            except UnreadableError as error:
                left -= answer.retries_taken + 1
                if left < 0:
                    raise ChatError(f"{form.name}: {error}") from error

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _send(self, request: dict[str, Any], retries: int, counter: RequestCounter | None) -> Any:
        """Return the library's raw answer; it repeats what failed, and waits between as the server asks."""
        client = self._client.with_options(max_retries=retries)
        try:
            async with self._slots:
                answer = await client.chat.completions.with_raw_response.create(**request)
        except openai.APIError as error:
            if counter:  # the library writes into a header which repeat a request was
                counter.calls += int(error.request.headers.get("x-stainless-retry-count", 0)) + 1
            if _LONG_NAME in str(error) and _SHORT_NAME in request:  # OpenAI's reasoning models refuse the short name
                self._limit_name = _LONG_NAME
                limit = {_LONG_NAME: request.pop(_SHORT_NAME)}
                return await self._send(request | limit, retries, counter)
            reason = describe_error(error, client.api_key)
            raise ChatError(f"{hide_passwords(str(client.base_url))}: {reason}", unavailable=True) from error
        if counter:
            counter.calls += answer.retries_taken + 1
        return answer

    def _parameters(self, form: ReplyFormat[RecordT]) -> dict[str, Any]:
        settings = self._settings
        parameters: dict[str, Any] = {
            "temperature": settings.temperature,
            self._limit_name: settings.max_tokens,
        }
        if settings.structured_output == "json_schema":
            schema = {"name": form.name, "strict": True, "schema": form.schema}
            parameters["response_format"] = {"type": "json_schema", "json_schema": schema}
        elif settings.structured_output == "json_object":
            parameters["response_format"] = {"type": "json_object"}
        return parameters


def openai_client(
    base_url: str, key: str, timeout: float, *, retries: int = 2, max_answer: int = MAX_ANSWER
) -> openai.AsyncOpenAI:
    """Return a client of a server that is not trusted; `timeout` is the deadline of a whole request, in seconds."""
    # the library's newer versions take this kind of client too, but don't declare it
    http_client = cast("Any", BoundedClient(max_answer=max_answer))
    return openai.AsyncOpenAI(
        base_url=base_url, api_key=key or _NO_KEY, timeout=timeout, max_retries=retries, http_client=http_client
    )


def require_address(section: str, base_url: str, hint: str) -> None:
    """Raise `SettingsError` unless the `base_url` of a section of the settings is one."""
    try:
        url = httpx.URL(base_url)
    except httpx.InvalidURL as error:
        raise SettingsError(
            f"{section}.base_url: {hide_passwords(base_url)!r} is no address: {error}", hint=hint
        ) from error
    if url.scheme not in ("http", "https") or not url.host:
        raise SettingsError(f"{section}.base_url: {hide_passwords(base_url)!r} is no http(s) address", hint=hint)


def read_api_key(variable: str) -> str:
    """Return the key from the environment; `none` where there is none, as many local servers need none."""
    key = os.environ.get(variable, "").strip()
    if not key.isascii() or not key.isprintable():
        raise SettingsError(f"environment {variable}: the key holds characters that no HTTP header can carry")
    return key or _NO_KEY


def read_completion(answer: Any, kind: type[RecordT]) -> RecordT:
    """Return the one record that the library's raw answer to a chat holds. Raises `UnreadableError`."""
    try:
        (choice,) = answer.parse().choices
        finished, text = choice.finish_reason, choice.message.content
    except (openai.APIError, AttributeError, TypeError, ValueError, RecursionError) as error:
        raise UnreadableError(f"the answer is no chat completion with one choice: {describe_error(error)}") from error
    if finished != "stop":
        raise UnreadableError(f"the answer was not finished (finish_reason {finished!r})")
    if not isinstance(text, str):
        raise UnreadableError("the answer has no text")
    return read_object(text, kind)


def read_object(text: str, kind: type[RecordT]) -> RecordT:
    """Return the record that a text is: exactly one JSON object of its form, a code fence around it allowed.

    Raises `UnreadableError` for everything else: prose, an object within prose, several objects, a key given twice.
    """
    text = text.encode(errors="replace").decode().strip()
    fence = _FENCE.match(text)
    try:
        value = json.loads(fence[1] if fence else text, object_pairs_hook=_reject_duplicate_keys)
        return kind.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise UnreadableError(f"the answer is not of the form asked for: {place} {first['msg']}") from error
    except (ValueError, RecursionError) as error:
        excerpt = repr(" ".join(text.split())[:100]) if text else "it is empty"
        raise UnreadableError(f"the answer is not one JSON object: {excerpt}") from error


def fence_data(data: Mapping[str, Any]) -> str:
    """Return foreign text as JSON in its fence; no text in it can close the fence."""
    text = json.dumps(data, ensure_ascii=False, indent=1).replace("<", "\\u003c")
    return f"<data>\n{text.encode(errors='replace').decode()}\n</data>"


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise ValueError("a key stands twice")
    return entries


def describe_error(error: Exception, secret: str = _NO_KEY) -> str:
    """Return an error in one line, without the key."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, openai.APIConnectionError) and str(error.__cause__ or ""):
        text = f"{text} {' '.join(str(error.__cause__).split())}"  # its own message has no reason
    if secret and secret != _NO_KEY:
        text = text.replace(secret, "[key]")  # some servers repeat the key that they refuse
    return text[:300]
