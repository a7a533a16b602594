"""Requests of agents: OpenAI's chat completions and Responses, validated and turned into webgym's plain messages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from webgym_cli.agent.actions.action_sets import ActionSet
from webgym_cli.agent.actions.parse import ParseError
from webgym_cli.gateway.answers import build_response
from webgym_cli.imports.chat import MAX_ITEMS, ChatMessage, ChatPart, ChatTool, StorableObject, convert_messages
from webgym_cli.imports.files import UnreadableImage, convert_png, decode_data_url
from webgym_cli.imports.source import Conversation, NotUnderstood
from webgym_cli.records.base import describe_invalid
from webgym_cli.records.tool import MAX_DEPTH, measure_depth
from webgym_cli.records.trajectory import ParseErrorKind, Screenshot
from webgym_cli.store.screenshots import ScreenshotStore

_MOST_IMAGES, _MOST_STOPS, _MAX_MESSAGE = 64, 64, 500
_ERROR_TYPES, _SERVER_ERROR = {401: "authentication_error", 429: "rate_limit_error"}, 500
# Fields of both dialects that are ignored: sampling parameters, which are the run's, and the client's book-keeping.
_IGNORED = frozenset(
    (
        *("temperature", "top_p", "top_k", "min_p", "seed", "max_tokens", "max_completion_tokens", "max_output_tokens"),
        *("frequency_penalty", "presence_penalty", "repetition_penalty", "logprobs", "top_logprobs"),
        *("reasoning", "reasoning_effort", "verbosity", "prediction", "truncation", "max_tool_calls", "include"),
        *("store", "metadata", "user", "safety_identifier", "service_tier", "prompt_cache_key"),
        *("prompt_cache_retention", "prompt_cache_options"),
    )
)
Model = TypeVar("Model", bound=BaseModel)


class RequestError(Exception):
    """A refused request, answered in OpenAI's error form."""

    def __init__(self, status: int, message: str, code: str) -> None:
        super().__init__(message[:_MAX_MESSAGE])
        self.status = status
        self.code = code

    @property
    def body(self) -> dict[str, Any]:
        """The answer's body. OpenAI's clients choose their exception by the status, other programs by the type."""
        kind = _ERROR_TYPES.get(self.status, "invalid_request_error" if self.status < _SERVER_ERROR else "server_error")
        return {"error": {"message": str(self), "type": kind, "param": None, "code": self.code}}


class ChatRequest(ChatPart):
    """A chat request. Unknown fields are refused unless they are empty: they may ask for another answer."""

    model_config = ConfigDict(extra="allow")

    model: str = Field(max_length=200)
    messages: list[ChatMessage] = Field(min_length=1, max_length=MAX_ITEMS)
    tools: list[ChatTool] | None = Field(default=None, max_length=MAX_ITEMS)
    tool_choice: Literal["none", "auto", "required"] | ChatTool | None = None
    parallel_tool_calls: bool | None = None
    response_format: StorableObject | None = None
    stop: str | Annotated[list[str], Field(max_length=_MOST_STOPS)] | None = None
    n: Literal[1] | None = None
    modalities: list[Literal["text"]] | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _refuse_unmet(self) -> Self:
        unknown = [name for name, value in (self.model_extra or {}).items() if value and name not in _IGNORED]
        if unknown:
            raise ValueError(f"not offered here: {', '.join(unknown)}")
        if self._named and self._named not in [tool.function.name for tool in self.tools or ()]:
            raise ValueError(f"tool_choice: no tool is named {self._named}")
        return self

    @property
    def schemas(self) -> tuple[dict[str, Any], ...]:
        """The schemas of the tools that may be called."""
        return () if self.tool_choice == "none" else tuple(tool.model_dump() for tool in self.tools or ())

    @property
    def _named(self) -> str:
        """The function that `tool_choice` names; empty if it names none."""
        return self.tool_choice.function.name if isinstance(self.tool_choice, ChatTool) else ""

    def find_violation(self, calls: Sequence[str]) -> ParseError | None:
        """Return why an answer that calls these functions is not one that the request allows; None if it is."""
        is_asked = bool(self.schemas) and self.tool_choice not in (None, "auto")
        if is_asked and (not calls or self._named not in ("", *calls)):
            return ParseError(ParseErrorKind.NO_TOOL_CALL, f"tool_choice asks for a call {self._named}".rstrip())
        if len(calls) > 1 and self.parallel_tool_calls is False:
            return ParseError(ParseErrorKind.SEVERAL_TOOL_CALLS, f"{len(calls)} calls, parallel_tool_calls is false")
        return None


def parse_json(body: bytes) -> dict[str, Any]:
    """Return the object of a request body. Raises `RequestError`."""
    try:
        value = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise RequestError(400, f"the body is no JSON: {str(error)[:200]}", "invalid_json") from None
    if not isinstance(value, dict) or measure_depth(value) > 2 * MAX_DEPTH:
        raise RequestError(400, "the body is no JSON object, or nested too deeply", "invalid_json")
    return value


def convert_to_chat(value: dict[str, Any], completions: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return a Responses request as a chat request. `completions`: those of its session. Raises `RequestError`."""
    given = value.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(items, list):
        raise RequestError(400, "input: a text or a list is needed", "invalid_value")
    earlier: dict[str, Any] = {}
    if any(map(_is_reference, items)):
        earlier = {item["id"]: item for completion in completions for item in build_response(completion)["output"]}
    system = [{"role": "system", "content": value["instructions"]}] if value.get("instructions") else []
    chat = {name: item for name, item in value.items() if name not in ("input", "instructions", "text")}
    chat["messages"] = _join_calls([*system, *chain.from_iterable(_convert_item(item, earlier) for item in items)])
    if isinstance(value.get("tools"), list):
        chat["tools"] = [_convert_tool(tool) for tool in value["tools"]]
    if isinstance(value.get("tool_choice"), dict):
        chat["tool_choice"] = _convert_tool(value["tool_choice"])
    form = value["text"].get("format") if isinstance(value.get("text"), dict) else None
    if isinstance(form, dict) and form.get("type") == "json_schema":
        schema = {name: item for name, item in form.items() if name != "type"}
        chat["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif isinstance(form, dict) and form.get("type") != "text":
        chat["response_format"] = form
    return chat


def validate(model: type[Model], value: Any) -> Model:
    """Return a validated request. Raises `RequestError` with its first problem."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise RequestError(400, describe_invalid(error), "invalid_value") from None


def convert_request(
    request: ChatRequest, call_format: ActionSet, pixels: range, store: ScreenshotStore
) -> Conversation[Screenshot]:
    """Return the messages of a request as they are sent, and its images, which it stores. Raises `RequestError`.

    `pixels`: allowed numbers of an image's pixels.
    """
    allowed = iter(range(_MOST_IMAGES))

    def store_image(url: str) -> Screenshot:
        if next(allowed, None) is None:
            raise UnreadableImage(f"more than {_MOST_IMAGES} images")
        # Other addresses than data URLs are refused: to fetch them would reach any host.
        return store.put(convert_png(decode_data_url(url), "image_url", pixels))

    try:
        return convert_messages(request.messages, request.schemas, call_format, store_image)
    except NotUnderstood as error:
        code = "invalid_image" if isinstance(error, UnreadableImage) else "invalid_value"
        raise RequestError(400, str(error), code) from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _is_reference(item: Any) -> bool:
    return isinstance(item, dict) and item.get("type") == "item_reference"


def _convert_item(item: Any, earlier: Mapping[str, Any]) -> list[dict[str, Any]]:
    if _is_reference(item):
        item = earlier.get(str(item.get("id")), item)
    if not isinstance(item, dict):
        raise RequestError(400, "input: an item is no object", "invalid_value")
    kind = item.get("type", "message")
    if kind == "message":
        return [{"role": item.get("role"), "content": item.get("content")}]
    if kind == "function_call":
        function = {name: item.get(name) for name in ("name", "arguments")}
        return [{"role": "assistant", "tool_calls": [{"function": function}]}]
    if kind == "function_call_output":
        return [{"role": "tool", "content": item.get("output")}]
    if kind == "reasoning":  # carries nothing for the policy
        return []
    raise RequestError(400, f"input: items of the type {str(kind)[:60]!r} are not known here", "unsupported_value")


def _join_calls(messages: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages in which calls belong to the answer before them, so that a history has it as it was sampled."""
    joined: list[dict[str, Any]] = []
    for message in messages:
        if joined and "tool_calls" in message and joined[-1]["role"] == "assistant":
            # in place: there may be 100,000
            joined[-1].setdefault("tool_calls", []).extend(message["tool_calls"])
        else:
            joined.append(message)
    return joined


def _convert_tool(tool: Any) -> dict[str, Any]:
    if not isinstance(tool, dict) or tool.get("type") != "function":
        raise RequestError(400, "tools: only functions can be called", "unsupported_value")
    function = {name: tool[name] for name in ("name", "description", "parameters") if tool.get(name) is not None}
    return {"type": "function", "function": function}
