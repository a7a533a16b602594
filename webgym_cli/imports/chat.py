"""Messages of OpenAI's chat form, turned into webgym's plain messages.

Tools, calls and results become text in the run's call format, and turns alternate, so that the messages are what the
policy receives, whatever its chat template does with the rest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Strict,
    Tag,
    ValidationError,
    model_validator,
)

from webgym_cli.agent.actions.action_sets import CALL_FORMATS, ActionSet
from webgym_cli.agent.actions.parse import ParseError
from webgym_cli.agent.forms.reasoning import join_reasoning
from webgym_cli.agent.forms.sanitize import sanitize_page, sanitize_text
from webgym_cli.config.limits import MAX_TOOL_CALLS
from webgym_cli.imports.source import Conversation, Image, NotUnderstood
from webgym_cli.records.action import Action, ActionName, CustomAction, InteractionMode
from webgym_cli.records.base import describe_invalid
from webgym_cli.records.sample import IMAGE, Message
from webgym_cli.records.tool import ToolCall
from webgym_cli.records.trajectory import PromptSpec
from webgym_cli.util.text import replace_surrogates

# A reward of another system: a number, not a text or a boolean.
Reward = Annotated[float, Strict(), Field(ge=-1e6, le=1e6, allow_inf_nan=False)]
# Maximum number of messages, of parts and of calls of a message, and of tools in a conversation.
MAX_ITEMS = 2000
# Characters of a reply that its action shows; the whole text is the step's response.
_SHOWN = 2000


def _make_storable(value: Any) -> Any:
    """Return a JSON value with question marks for unpaired surrogates. Raises `ValueError` for an infinite number."""
    return json.loads(replace_surrogates(json.dumps(value, ensure_ascii=False, allow_nan=False)))


# An object that prompts and files can hold. Descriptions of tools are cut within an emoji: servers answered status 500.
StorableObject = Annotated[dict[str, Any], AfterValidator(_make_storable)]


class ChatPart(BaseModel):
    """An object of the chat form: unknown fields are ignored, as OpenAI's servers do with those of older models."""

    model_config = ConfigDict(extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, given: Any) -> Any:
        return {name: value for name, value in given.items() if value is not None} if isinstance(given, dict) else given


class _ImageUrl(ChatPart):
    url: str


class _Content(ChatPart):
    type: Literal["text", "input_text", "output_text", "image_url", "input_image"]
    text: str | None = None
    image_url: _ImageUrl | str | None = None

    @model_validator(mode="after")
    def _require_content(self) -> Self:
        name = "image_url" if "image" in self.type else "text"
        if getattr(self, name) is None:  # an image by the id of an uploaded file, which is not kept here
            raise ValueError(f"a part of the type {self.type} needs {name}")
        return self


# With a discriminator, so that an error is that of the part, not that a list is no text.
_Contents = Annotated[
    Annotated[str, Tag("text")] | Annotated[list[_Content], Field(max_length=MAX_ITEMS), Tag("parts")],
    Discriminator(lambda value: "parts" if isinstance(value, list) else "text"),
]


class _Function(ChatPart):
    name: str = Field(min_length=1, max_length=200)
    arguments: str | dict[str, Any] = "{}"


class _SentCall(ChatPart):
    function: _Function


class ChatMessage(ChatPart):
    """A message."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: _Contents | None = None
    reasoning_content: Any = None
    reasoning: Any = None
    """What a server's parser split off: servers don't send it on in a history."""
    tool_calls: list[_SentCall] | None = Field(default=None, max_length=MAX_ITEMS)
    weight: float | None = None
    """0: the message is context only, as in OpenAI's lines for fine-tuning."""

    @property
    def texts(self) -> list[str]:
        """The texts of its parts."""
        return [part.text or "" for part in self.content] if isinstance(self.content, list) else [self.content or ""]

    @property
    def reply(self) -> str:
        """Its text, with the reasoning in front."""
        return join_reasoning("".join(self.texts), self.reasoning_content, self.reasoning, truncated=False)


class _ToolFunction(ChatPart):
    name: str = Field(min_length=1, max_length=200)
    description: Annotated[str, AfterValidator(replace_surrogates)] = ""
    parameters: StorableObject = Field(default_factory=dict)


class ChatTool(ChatPart):
    """An offered tool."""

    type: Literal["function"]
    function: _ToolFunction


def convert_messages(
    messages: Sequence[ChatMessage],
    tools: Sequence[dict[str, Any]],
    call_format: ActionSet,
    load_image: Callable[[str], Image],
) -> Conversation[Image]:
    """Return messages as they are sent. `load_image`: returns the image of a URL. Raises `NotUnderstood`.

    Later system messages become part of the user's turns, and consecutive messages of one role one message. Before an
    answer that comes first stands an empty turn of the user.
    """
    images: list[Image] = []
    turns: list[tuple[str, str]] = []
    for message in messages:
        role, text = _convert_message(message, images, call_format, load_image)
        if role == "system" and any(before != "system" for before, _ in turns):
            role = "user"
        if turns and turns[-1][0] == role:
            text = "\n\n".join(filter(None, (turns.pop()[1], text)))
        turns.append((role, text))
    if tools and call_format.describe is not None:
        system = [turns.pop(0)[1]] if turns and turns[0][0] == "system" else []
        turns.insert(0, ("system", "\n\n".join([*system, call_format.describe(tools)])))
    if not turns or turns[-1][0] != "user":
        raise NotUnderstood("messages: the last turn must be the user's or a tool's")
    # A history that was cut off may begin with an answer; many chat templates and trainers need the user's turn first.
    first = sum(role == "system" for role, _ in turns)
    if turns[first][0] == "assistant":
        turns.insert(first, ("user", ""))
    plain = (Message.model_validate({"role": role, "content": text}) for role, text in turns)
    return Conversation(tuple(plain), tuple(images))


def convert_reply(message: ChatMessage, call_format: ActionSet) -> str:
    """Return a message of the assistant as the text that the policy writes. Raises `NotUnderstood`."""
    if isinstance(message.content, list) and any(part.image_url for part in message.content):
        raise NotUnderstood("messages: a message of the assistant has a picture, which no policy writes")
    return _write_calls(message, message.reply, call_format)


def read_reply(text: str, spec: PromptSpec) -> Action | CustomAction | ParseError:
    """Return the calls of a reply if tools are offered, else the reply as the one action `reply`."""
    if spec.tools:
        read = CALL_FORMATS.find(spec.call_format).parse(text, spec, truncated=False, max_calls=MAX_TOOL_CALLS)
        if isinstance(read, ParseError) or (isinstance(read, Action) and read.name is ActionName.CALL):
            return read
    return CustomAction(name="reply", arguments={"text": text[:_SHOWN]})


def _convert_message(
    message: ChatMessage, images: list[Image], call_format: ActionSet, load_image: Callable[[str], Image]
) -> tuple[str, str]:
    if message.content is None and message.role != "assistant":
        raise NotUnderstood(f"messages: a message of the role {message.role} has no content")
    text = "".join(convert_parts(message.content, images, load_image, is_page=message.role == "tool"))
    if message.role == "tool" and call_format.write_result is not None:
        return "user", call_format.write_result(text)
    if message.role == "assistant":
        return "assistant", _write_calls(message, text, call_format)
    return {"developer": "system"}.get(message.role, message.role), text


def _write_calls(message: ChatMessage, text: str, call_format: ActionSet) -> str:
    """Return a reply's text with its calls in the call format. Raises `NotUnderstood`."""
    if not message.tool_calls:
        if message.content is None:  # a refusal, or a call in a form that is not known here
            raise NotUnderstood("messages: a message of the assistant has neither content nor tool_calls")
        return text
    calls = tuple(_read_call(call) for call in message.tool_calls)
    action = Action(name=ActionName.CALL, calls=calls, text=text or None)
    try:
        return call_format.format_action(action, InteractionMode.COORDINATES)
    except ValueError as error:
        raise NotUnderstood(f"tool_calls: {error}") from None


def _read_call(call: _SentCall) -> ToolCall:
    given = call.function.arguments
    try:
        arguments = _make_storable(json.loads(given or "{}") if isinstance(given, str) else given)
        return ToolCall.model_validate({"name": replace_surrogates(call.function.name), "arguments": arguments})
    except ValidationError as error:
        raise NotUnderstood(f"tool_calls: {describe_invalid(error)}") from None
    except (ValueError, RecursionError):
        raise NotUnderstood("tool_calls: arguments are no JSON") from None


def convert_parts(
    content: str | list[_Content] | None,
    images: list[Image],
    load_image: Callable[[str], Image],
    *,
    is_page: bool = False,
) -> Iterator[str]:
    """Yield the texts of a message's parts, with placeholders for its images, which are appended to `images`."""
    clean = sanitize_page if is_page else sanitize_text
    if not isinstance(content, list):
        yield clean(content or "")
        return
    for part in content:
        if part.text is not None:
            yield clean(part.text)
        if part.image_url is not None:
            images.append(load_image(part.image_url if isinstance(part.image_url, str) else part.image_url.url))
            yield IMAGE
