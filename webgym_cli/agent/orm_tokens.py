"""Counts an outcome reward model's tokens, by its server or by its files, and cuts prompts that are too long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from webgym_cli.agent.chat import ChatError
from webgym_cli.agent.orm_prompt import OrmPrompt, cut_middle, format_gap, split_cut
from webgym_cli.agent.tokens import ModelTokens
from webgym_cli.config.orm import OrmSettings
from webgym_cli.records.sample import Message

# So often a prompt is cut shorter: joined again, texts have a few tokens more than their parts had.
MAX_CUTS = 8
# Told to vLLM's chat templates: the answer is the first token, no thought.
NO_THINKING = {"enable_thinking": False}
_HALF_CHARACTER = "\ufffd"

FieldT = TypeVar("FieldT", int, str, list[int])
# Asks one of a vLLM server's own addresses. Raises `OrmError`.
ServerCall = Callable[[str, Mapping[str, Any]], Awaitable[Any]]


class OrmError(ChatError):
    """The model gave no probability."""


class ServerTokenizer:
    """The tokenizer of a vLLM server."""

    def __init__(self, call: ServerCall) -> None:
        self._call = call

    async def count(self, messages: Sequence[Message]) -> tuple[int, int | None]:
        """Return the tokens of a chat up to the answer, and the model's own limit of both."""
        body = {"messages": to_chat(messages), "chat_template_kwargs": NO_THINKING}
        answer = await self._call("tokenize", body)
        return _get_field(answer, "count", int), _get_field(answer, "max_model_len", int)

    async def ids(self, text: str) -> list[int]:
        """Ask for a text's ids."""
        return _get_field(await self._call("tokenize", {"prompt": text, "add_special_tokens": False}), "tokens", list)

    async def text(self, ids: Sequence[int]) -> str:
        """Ask for the text of ids."""
        return _get_field(await self._call("detokenize", {"tokens": list(ids)}), "prompt", str)


class FileTokenizer:
    """The tokenizer of a model's files: for training, and for a server that doesn't have one to ask."""

    def __init__(self, model: str) -> None:
        """Raises `SettingsError` when the model has no tokenizer or chat template."""
        self._tokens = ModelTokens(model)
        self._tokens.prompt_ids([Message(role="user", content="")], [])

    async def count(self, messages: Sequence[Message]) -> tuple[int, int | None]:
        """Return how long a chat is; of the model's limit the files say nothing."""
        return len(await asyncio.to_thread(self._tokens.prompt_ids, messages, [])), None

    async def ids(self, text: str) -> list[int]:
        """Return a text's ids."""
        return self._tokens.response_ids(text)

    async def text(self, ids: Sequence[int]) -> str:
        """Return the text of ids."""
        return str(self._tokens.tokenizer.decode(list(ids), skip_special_tokens=False))


OrmTokenizer = ServerTokenizer | FileTokenizer


@dataclass(frozen=True, slots=True)
class FittedPrompt:
    """A prompt that the model can take."""

    prompt: OrmPrompt
    count: int
    """Tokens, the chat's frame included."""
    cut: int
    """Tokens that it lost, about."""


async def fit_prompt(prompt: OrmPrompt, tokens: OrmTokenizer, settings: OrmSettings) -> FittedPrompt:
    """Return as much of a prompt as the model takes. Raises `OrmError` where not even its ends fit."""
    drop, shown = 0, prompt
    parts: tuple[list[int], list[int]] | None = None
    for _ in range(MAX_CUTS):
        count, most = await tokens.count(shown.messages(settings.system_prompt))
        limit = min(settings.max_tokens, most - 1) if most else settings.max_tokens  # one is the answer
        if count <= limit:
            return FittedPrompt(shown, count, drop)
        drop += count - limit
        parts = parts or (await tokens.ids(prompt.page), await tokens.ids(prompt.actions))
        if (lost := split_cut(drop, *map(len, parts))) is None:
            break
        page, actions = [await _shorten(ids, less, tokens) for ids, less in zip(parts, lost, strict=True)]
        shown = replace(prompt, page=page or prompt.page, actions=actions or prompt.actions)
    raise OrmError(f"the prompt can't be cut to {limit} tokens: the parts that stay are longer")


def to_chat(messages: Sequence[Message]) -> list[dict[str, str]]:
    """Return messages as requests have them."""
    return [message.model_dump() for message in messages]


async def _shorten(ids: list[int], drop: int, tokens: OrmTokenizer) -> str:
    """Return the text of ids without so many in its middle; empty where all stay."""
    if not drop:
        return ""
    head, tail = [await tokens.text(part) for part in cut_middle(ids, drop)]
    return head.rstrip(_HALF_CHARACTER) + format_gap(drop) + tail.lstrip(_HALF_CHARACTER)


def _get_field(answer: Any, name: str, kind: type[FieldT]) -> FieldT:
    """Return a field of an answer. Raises `OrmError` where it is not there."""
    value = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(value, kind):
        raise OrmError(f"the server's tokenizer answers without {name!r}", unavailable=True)
    return value
