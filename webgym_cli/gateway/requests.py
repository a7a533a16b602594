"""Requests of agents: OpenAI's chat completions and Responses, validated and turned into webgym's plain messages.

Tools, calls and results become text in the run's call format, and turns alternate, so that the stored messages are what
the policy received, whatever its chat template does with the rest.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from webgym_cli.agent.actions.action_sets import ActionSet
from webgym_cli.agent.forms.sanitize import sanitize_page, sanitize_text
from webgym_cli.imports.pictures import UnreadableImage, convert_png
from webgym_cli.records.action import Action, ActionName, InteractionMode
from webgym_cli.records.base import describe_invalid
from webgym_cli.records.sample import IMAGE, Message
from webgym_cli.records.tool import MAX_DEPTH, ToolCall
from webgym_cli.util.text import replace_surrogates

# Maximum number of messages, of parts of a message, and of tools in a request.
_MOST = 2000
_MOST_IMAGES = 64


class RequestError(Exception):
    """A refused request, answered in OpenAI's error form."""

    def __init__(self, status: int, message: str, code: str, kind: str = "invalid_request_error") -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.kind = kind


def refuse_key(message: str) -> RequestError:
    """Return the refusal of a key."""
    return RequestError(401, message, "invalid_api_key", "authentication_error")


class _Part(BaseModel):
    """A request's object: unknown fields are ignored, as OpenAI's servers do with those of older models."""

    model_config = ConfigDict(extra="ignore")


class _ImageUrl(_Part):
    url: str


class _Content(_Part):
    type: Literal["text", "input_text", "output_text", "image_url", "input_image"]
    text: str | None = None
    image_url: _ImageUrl | str | None = None


class _Function(_Part):
    name: str = Field(min_length=1, max_length=200)
    arguments: str = "{}"


class _SentCall(_Part):
    function: _Function


class ChatMessage(_Part):
    """A message of a chat request."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[_Content] | None = Field(default=None)
    tool_calls: list[_SentCall] | None = None


class _ToolFunction(_Part):
    name: str = Field(min_length=1, max_length=200)
    description: str = ""
    parameters: dict[str, Any] = Field(default_factory=dict)


class _OfferedTool(_Part):
    type: Literal["function"]
    function: _ToolFunction


class _StreamOptions(_Part):
    include_usage: bool = False


class ChatRequest(_Part):
    """A chat request; the sampling parameters are the run's, those of the request are ignored."""

    model: str = Field(max_length=200)
    messages: list[ChatMessage] = Field(min_length=1, max_length=_MOST)
    tools: list[_OfferedTool] | None = Field(default=None, max_length=_MOST)
    response_format: dict[str, Any] | None = None
    stop: str | list[str] | None = None
    n: Literal[1] | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None

    @property
    def schemas(self) -> tuple[dict[str, Any], ...]:
        """The schemas of the tools."""
        return tuple(tool.model_dump() for tool in self.tools or ())

    @property
    def fields(self) -> dict[str, Any]:
        """Fields that are passed on: they constrain the answer but don't change the sampling parameters."""
        return self.model_dump(include={"response_format", "stop"}, exclude_none=True)


@dataclass(frozen=True, slots=True)
class Conversation:
    """The messages that are sent, and their images as PNG, in the order of the placeholders."""

    messages: tuple[Message, ...]
    images: tuple[bytes, ...]


def parse_json(body: bytes) -> dict[str, Any]:
    """Return the object of a request body. Raises `RequestError`."""
    try:
        value = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise RequestError(400, f"the body is no JSON: {str(error)[:200]}", "invalid_json") from None
    if not isinstance(value, dict) or _is_deep(value):
        raise RequestError(400, "the body is no JSON object, or nested too deeply", "invalid_json")
    return value


def validate(model: Callable[[Any], Any], value: Any) -> Any:
    """Return a validated request. Raises `RequestError` with its first problem."""
    try:
        return model(value)
    except ValidationError as error:
        raise RequestError(400, describe_invalid(error)[:300], "invalid_value") from None


def parse_chat(value: dict[str, Any]) -> ChatRequest:
    """Return a chat request. Raises `RequestError`."""
    request: ChatRequest = validate(ChatRequest.model_validate, value)
    return request


def convert_messages(request: ChatRequest, call_format: ActionSet) -> Conversation:
    """Return the messages of a request as they are sent. Raises `RequestError`.

    Later system messages become part of the user's turns, and consecutive messages of one role one message.
    """
    images: list[bytes] = []
    turns: list[tuple[str, str]] = []
    for message in request.messages:
        role, text = _convert_message(message, images, call_format)
        role = "user" if role == "system" and any(before != "system" for before, _ in turns) else role
        if turns and turns[-1][0] == role:
            text = "\n\n".join(filter(None, (turns.pop()[1], text)))
        turns.append((role, text))
    if request.schemas and call_format.describe is not None:
        system = [turns.pop(0)[1]] if turns[0][0] == "system" else []
        turns.insert(0, ("system", "\n\n".join([*system, call_format.describe(request.schemas)])))
    speakers = [role for role, _ in turns if role != "system"]
    if not speakers or speakers[0] != "user" or speakers[-1] != "user":
        raise RequestError(400, "messages: the first and the last turn must be the user's or a tool's", "invalid_value")
    messages = (Message.model_validate({"role": role, "content": text}) for role, text in turns)
    return Conversation(tuple(messages), tuple(images))


def _convert_message(message: ChatMessage, images: list[bytes], call_format: ActionSet) -> tuple[str, str]:
    if message.content is None and message.role != "assistant":
        raise RequestError(400, f"messages: a message of the role {message.role} has no content", "invalid_value")
    text = "".join(_convert_parts(message.content, images, is_page=message.role == "tool"))
    if message.role == "tool" and call_format.write_result is not None:
        return "user", call_format.write_result(text)
    if message.role == "assistant" and message.tool_calls:
        calls = tuple(_read_call(call) for call in message.tool_calls[:_MOST])
        action = Action(name=ActionName.CALL, calls=calls, text=text or None)
        try:
            return "assistant", call_format.format_action(action, InteractionMode.COORDINATES)
        except ValueError as error:
            raise RequestError(400, f"tool_calls: {error}", "invalid_value") from None
    return {"developer": "system"}.get(message.role, message.role), text


def _read_call(call: _SentCall) -> ToolCall:
    try:
        arguments = json.loads(replace_surrogates(call.function.arguments) or "{}")
    except (ValueError, RecursionError):
        raise RequestError(400, "tool_calls: arguments are no JSON", "invalid_value") from None
    name = replace_surrogates(call.function.name)
    called: ToolCall = validate(ToolCall.model_validate, {"name": name, "arguments": arguments})
    return called


def _convert_parts(content: str | list[_Content] | None, images: list[bytes], *, is_page: bool) -> Iterator[str]:
    """Yield the texts of a message's parts, with placeholders for its images."""
    clean = sanitize_page if is_page else sanitize_text
    if not isinstance(content, list):
        yield clean(content or "")
        return
    for part in content[:_MOST]:
        if part.text is not None:
            yield clean(part.text)
        if part.image_url is not None:
            images.append(_read_image(part.image_url if isinstance(part.image_url, str) else part.image_url.url))
            if len(images) > _MOST_IMAGES:
                raise RequestError(400, f"more than {_MOST_IMAGES} images", "invalid_image")
            yield IMAGE


def _read_image(url: str) -> bytes:
    """Return the image of a data URL as PNG. Other addresses are refused: fetching them would reach any host."""
    head, comma, data = url.partition(",")
    if not comma or not head.startswith("data:image/") or not head.endswith(";base64"):
        raise RequestError(400, "image_url: only data:image/...;base64 URLs are taken", "invalid_image")
    try:
        return convert_png(base64.b64decode(data, validate=True), "image_url")
    except (binascii.Error, ValueError, UnreadableImage) as error:
        raise RequestError(400, f"image_url: {str(error)[:200]}", "invalid_image") from None


def _is_deep(value: Any) -> bool:
    level: Sequence[Any] = [value]
    for _ in range(2 * MAX_DEPTH):
        level = [
            inner
            for item in level
            if isinstance(item, dict | list)
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
    return bool(level)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")
