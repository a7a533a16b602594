"""Client of OpenAI-compatible chat servers for single JSON objects. Requests with unreadable answers are retried."""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, Generic, Literal, TypeVar, cast

import httpx
import openai
from pydantic import AfterValidator, BeforeValidator, ValidationError

from webgym_cli.config.endpoint import ChatEndpointSettings, EndpointSettings
from webgym_cli.errors import BoundaryError, SettingsError
from webgym_cli.records.base import Record
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.usage import TokenUsage, read_usage
from webgym_cli.util.http_client import MAX_ANSWER, BoundedClient
from webgym_cli.util.optional import when
from webgym_cli.util.secrets import expand_variables, redact, require_header_value
from webgym_cli.util.text import replace_surrogates

RecordT = TypeVar("RecordT", bound=Record)

_NO_KEY = "none"
# Parameter for the maximum length of an answer: most servers accept the short name, a few only the long one.
_SHORT_NAME, _LONG_NAME = "max_tokens", "max_completion_tokens"
# Fields that webgym sets: by `extra_body` another model answered than the one that is recorded and priced, or no answer
# could be read.
_OWN_FIELDS = ("model", "messages", "n", "stream")
# The end of the reasoning of a model that thinks first, whose server does not separate it.
_THOUGHT_END = re.compile(r"</think>\s*(?=[{`])")
_FENCE = re.compile(r"\A```(?:json)?\s*(\{.*\})\s*```\Z", re.DOTALL | re.IGNORECASE)

# Maximum stored length of a reason.
REASON_CHARACTERS = 2000
# JSON schema of replies; the reason comes before the verdict.
REPLY_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"reason": {"type": "string"}, "verdict": {"type": "string", "enum": ["yes", "no"]}},
    "required": ["reason", "verdict"],
    "additionalProperties": False,
}


class ChatError(BoundaryError):
    """The model gave no readable answer. `unavailable`: its server was down or refused the request."""

    def __init__(self, message: str, *, unavailable: bool = False) -> None:
        super().__init__(FailureKind.JUDGE_FAILED, message)
        self.unavailable = unavailable


class UnreadableError(Exception):
    """An answer is not exactly one reply in the requested format."""


class JudgeReply(Record):
    """The judge's answer to one question."""

    reason: Annotated[str, AfterValidator(lambda reason: replace_surrogates(reason[:REASON_CHARACTERS]))]
    verdict: Annotated[Literal["yes", "no"], BeforeValidator(lambda verdict: str(verdict).strip().lower())]

    @property
    def yes(self) -> bool:
        """The verdict."""
        return self.verdict == "yes"


@dataclass(slots=True)
class RequestCounter:
    """Counter of requests."""

    calls: int = 0
    """Number of requests, retries included."""
    tokens: TokenUsage = field(default_factory=TokenUsage)
    """Tokens of the requests that were answered."""
    tokens_by_model: defaultdict[str, TokenUsage] = field(default_factory=lambda: defaultdict(TokenUsage))
    """The same by the model that was asked."""


@dataclass(frozen=True, slots=True)
class ReplyFormat(Generic[RecordT]):
    """Format of an answer."""

    name: str
    """Name of the schema, also used in error messages."""
    kind: type[RecordT]
    schema: Mapping[str, Any]
    """JSON schema of `kind`, for servers with structured output."""
    read: Callable[[str], RecordT] | None = None
    """Reads an answer that is plain text, or raises `UnreadableError`; None: the answer is one JSON object."""


class ChatClient:
    """Client of the server at an OpenAI-compatible base URL, with a limit on concurrent requests."""

    def __init__(self, settings: ChatEndpointSettings) -> None:
        """Open no connection yet. Raises `SettingsError` for an API key that is invalid in an HTTP header."""
        self._settings = settings
        self._limit_name = _SHORT_NAME
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._client = openai_client(settings)

    async def ask(
        self,
        messages: Sequence[Mapping[str, Any]],
        form: ReplyFormat[RecordT],
        counter: RequestCounter | None = None,
        *,
        model: str,
        sampling: Mapping[str, Any] = MappingProxyType({}),
    ) -> RecordT:
        """Send a chat and return the parsed answer. `sampling`: additional sampling parameters.

        Raises `ChatError` after the last retry.
        """
        left = self._settings.retries
        while True:
            request = {"messages": messages, "model": model, **self._parameters(form), **sampling}
            answer = await self._send(request, left, counter)
            try:
                return await asyncio.to_thread(read_completion, answer, form.kind, form.read)  # it may have 16 MB
            except UnreadableError as error:
                left -= answer.retries_taken + 1
                if left < 0:
                    raise ChatError(f"{form.name}: {error}") from error

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _send(self, request: dict[str, Any], retries: int, counter: RequestCounter | None) -> Any:
        """Return the openai library's raw response; the library retries failures and honours `Retry-After`."""
        client = self._client.with_options(max_retries=retries)
        try:
            async with self._slots:
                answer = await client.chat.completions.with_raw_response.create(**request)
        except openai.APIError as error:
            if counter:  # the library stores the number of retries in a header
                counter.calls += int(error.request.headers.get("x-stainless-retry-count", 0)) + 1
            if _LONG_NAME in str(error) and _SHORT_NAME in request:  # OpenAI's reasoning models refuse the short name
                self._limit_name = _LONG_NAME
                limit = {_LONG_NAME: request.pop(_SHORT_NAME)}
                return await self._send(request | limit, retries, counter)
            reason = describe_error(error, client.api_key)
            raise ChatError(f"{self._settings.base_url}: {reason}", unavailable=True) from error
        if counter:
            counter.calls += answer.retries_taken + 1
            usage = await asyncio.to_thread(_read_usage, answer)  # it may have 16 MB
            counter.tokens += usage  # after the await: other votes count here meanwhile
            counter.tokens_by_model[request["model"]] += usage
        return answer

    def _parameters(self, form: ReplyFormat[RecordT]) -> dict[str, Any]:
        settings = self._settings
        parameters: dict[str, Any] = {"temperature": settings.temperature, self._limit_name: settings.max_new_tokens}
        if settings.top_p is not None:
            parameters["top_p"] = settings.top_p
        if settings.extra_body:
            parameters["extra_body"] = settings.extra_body
        if form.read is not None:
            return parameters
        if settings.structured_output == "json_schema":
            schema = {"name": form.name, "strict": True, "schema": form.schema}
            parameters["response_format"] = {"type": "json_schema", "json_schema": schema}
        elif settings.structured_output == "json_object":
            parameters["response_format"] = {"type": "json_object"}
        return parameters


def openai_client(
    endpoint: EndpointSettings, *, max_answer: int = MAX_ANSWER, proxied: bool = True
) -> openai.AsyncOpenAI:
    """Return a client of an untrusted server. `proxied`: see `BoundedClient.trust_env`.

    The base URL's query is sent with each request. Raises `SettingsError` for a key that is invalid in an HTTP header.
    """
    url = httpx.URL(expand_variables(endpoint.base_url))
    # newer versions of the library accept this kind of client, too, but don't declare it
    http_client = cast("Any", BoundedClient(max_answer=max_answer, refuse_errors=True, trust_env=proxied))
    return openai.AsyncOpenAI(
        base_url=str(url.copy_with(query=None, fragment=None)),
        default_query=dict(url.params),
        api_key=read_api_key(endpoint.api_key_env_var),
        timeout=endpoint.timeout,
        max_retries=endpoint.retries,
        http_client=http_client,
    )


def require_endpoint(section: str, settings: ChatEndpointSettings, hint: str) -> None:
    """Raise `SettingsError` as `require_address`, and for a field of `extra_body` that webgym sets itself."""
    require_address(section, settings.base_url, hint)
    for name in filter(_OWN_FIELDS.__contains__, settings.extra_body):
        raise SettingsError(
            f"{section}.extra_body.{name}: webgym sets {name} itself, and reads and records answers by it",
            hint=f"leave it out; the model is {section}.model",
        )


def require_address(section: str, base_url: str, hint: str) -> None:
    """Raise `SettingsError` unless the `base_url` of a settings section is an http(s) URL."""
    try:
        url = httpx.URL(expand_variables(base_url))
    except httpx.InvalidURL as error:
        raise SettingsError(f"{section}.base_url: {base_url!r} is no address: {error}", hint=hint) from error
    if url.scheme not in ("http", "https") or not url.host:
        raise SettingsError(f"{section}.base_url: {base_url!r} is no http(s) address", hint=hint)


def read_api_key(variable: str) -> str:
    """Return the API key in an environment variable; `none` if unset, because many local servers need none.

    Raises `SettingsError` for characters that are invalid in an HTTP header.
    """
    return require_header_value(variable) or _NO_KEY


def _read_usage(answer: Any) -> TokenUsage:
    try:
        return read_usage(answer.http_response.json())
    except (ValueError, RecursionError):  # the reader of the reply says what is wrong
        return TokenUsage()


def read_completion(answer: Any, kind: type[RecordT], read: Callable[[str], RecordT] | None = None) -> RecordT:
    """Parse the single record in the openai library's raw response. Raises `UnreadableError`."""
    try:
        (choice,) = answer.parse().choices
        finished, text = choice.finish_reason, choice.message.content
    except (openai.APIError, AttributeError, TypeError, ValueError, RecursionError) as error:
        raise UnreadableError(f"the answer is no chat completion with one choice: {describe_error(error)}") from error
    if finished != "stop":
        raise UnreadableError(f"the answer was not finished (finish_reason {finished!r})")
    if not isinstance(text, str):
        raise UnreadableError("the answer has no text")
    return read(_drop_thoughts(replace_surrogates(text))) if read else read_object(text, kind)


def _drop_thoughts(text: str) -> str:
    """Return an answer without the reasoning that it begins with; empty if it has no known end."""
    thoughts, end, answer = text.lstrip().partition("</think>")
    if not thoughts.startswith("<think>"):
        return text
    # a page that is quoted may say </think> too: then nobody knows where the answer begins
    return "" if end in answer else answer


def read_object(text: str, kind: type[RecordT]) -> RecordT:
    """Parse a text that is exactly one JSON object of the record type, optionally in a code fence, after reasoning.

    Raises `UnreadableError` for everything else: prose, an object within prose, several objects, duplicate keys.
    """
    text = replace_surrogates(text).strip("\ufeff \t\r\n")
    if not text.startswith(("{", "```")) and (thought := _THOUGHT_END.search(text)):
        text = text[thought.end() :]
    fence = _FENCE.match(text)
    try:
        value = json.loads(fence[1] if fence else text, strict=False, object_pairs_hook=_reject_duplicate_keys)
        return kind.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise UnreadableError(f"the answer is not of the form asked for: {place} {first['msg']}") from error
    except (ValueError, RecursionError) as error:
        excerpt = repr(" ".join(text.split())[:100]) if text else "it is empty"
        raise UnreadableError(f"the answer is not one JSON object: {excerpt}") from error


def fence_data(data: Mapping[str, Any]) -> str:
    """Format untrusted data as JSON between `<data>` tags, which no text in it can close."""
    text = json.dumps(data, ensure_ascii=False, indent=1).replace("<", "\\u003c")
    return f"<data>\n{text.encode(errors='replace').decode()}\n</data>"


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise ValueError("a key stands twice")
    return entries


def describe_error(error: Exception, secret: str = _NO_KEY) -> str:
    """Return an error's message in one line of at most 300 characters, without the API key."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, openai.APIConnectionError) and str(error.__cause__ or ""):
        text = f"{text} {' '.join(str(error.__cause__).split())}"  # the message itself has no reason
    # some servers repeat the key that they refuse
    text = redact(text, "" if secret == _NO_KEY else secret)[:300]
    request = getattr(error, "_request", None) or getattr(error, "request", None)
    proxy = request.extensions.get("proxy") if isinstance(request, httpx.Request) else None
    return text + when(proxy, f" (through the proxy in {proxy})")
