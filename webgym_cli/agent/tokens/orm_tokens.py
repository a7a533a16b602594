"""Tokenizers of an outcome reward model (its server's or from its files), and the cutting of long prompts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from webgym_cli.agent.client.chat import ChatError
from webgym_cli.agent.prompts.orm_prompt import OrmPrompt, cut_middle, split_cut
from webgym_cli.agent.tokens.tokens import ModelTokens
from webgym_cli.config.judge import OrmSettings
from webgym_cli.records.sample import Message
from webgym_cli.util.json_values import as_object

# Maximum number of cuts of a prompt: joined texts can have a few tokens more than their parts.
MAX_CUTS = 8
# Chat template parameters: the first token is the answer, without reasoning.
NO_THINKING = {"enable_thinking": False}
_HALF_CHARACTER = "\ufffd"

FieldT = TypeVar("FieldT", int, str, list[int])
# Calls an endpoint of a vLLM server. Raises `OrmError`.
ServerCall = Callable[[str, Mapping[str, Any]], Awaitable[Any]]


class OrmError(ChatError):
    """The model returned no probability."""


class ServerTokenizer:
    """The tokenizer of a vLLM server."""

    def __init__(self, call: ServerCall) -> None:
        self._call = call

    async def count(self, messages: Sequence[Message]) -> tuple[int, int | None]:
        """Return the number of tokens of a chat up to the answer, and the model's context length."""
        body = {"messages": to_chat(messages), "chat_template_kwargs": NO_THINKING}
        answer = await self._call("tokenize", body)
        return _get_field(answer, "count", int), _get_field(answer, "max_model_len", int)

    async def ids(self, text: str) -> list[int]:
        """Encode a text."""
        return _get_field(await self._call("tokenize", {"prompt": text, "add_special_tokens": False}), "tokens", list)

    async def text(self, ids: Sequence[int]) -> str:
        """Decode token ids."""
        return _get_field(await self._call("detokenize", {"tokens": list(ids)}), "prompt", str)


class FileTokenizer:
    """The tokenizer in a model's files, for training and for servers without a tokenizer endpoint."""

    def __init__(self, model: str) -> None:
        """Raises `SettingsError` when the model has no tokenizer or chat template."""
        self._tokens = ModelTokens(model)
        self._tokens.prompt_ids([Message(role="user", content="")], [])

    async def count(self, messages: Sequence[Message]) -> tuple[int, int | None]:
        """Return the number of tokens of a chat up to the answer; None: the context length is not read."""
        return len(await asyncio.to_thread(self._tokens.prompt_ids, messages, [])), None

    async def ids(self, text: str) -> list[int]:
        """Encode a text."""
        return self._tokens.response_ids(text)

    async def text(self, ids: Sequence[int]) -> str:
        """Decode token ids, special tokens included."""
        return str(self._tokens.tokenizer.decode(list(ids), skip_special_tokens=False))


OrmTokenizer = ServerTokenizer | FileTokenizer


@dataclass(frozen=True, slots=True)
class FittedPrompt:
    """A prompt within the model's limit."""

    prompt: OrmPrompt
    count: int
    """Number of tokens, chat template included."""
    cut: int
    """Number of tokens that were cut, approximately."""


async def fit_prompt(prompt: OrmPrompt, tokens: OrmTokenizer, settings: OrmSettings) -> FittedPrompt:
    """Cut a prompt to the model's limit. Raises `OrmError` if the parts that must stay exceed it."""
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
    """Convert messages to the format of requests."""
    return [message.model_dump() for message in messages]


async def _shorten(ids: list[int], drop: int, tokens: OrmTokenizer) -> str:
    """Return the text of ids with a gap of `drop` tokens in the middle; empty if `drop` is 0."""
    if not drop:
        return ""
    head, tail = [await tokens.text(part) for part in cut_middle(ids, drop)]
    return f"{head.rstrip(_HALF_CHARACTER)}\n[{drop} tokens left out]\n{tail.lstrip(_HALF_CHARACTER)}"


def _get_field(answer: Any, name: str, kind: type[FieldT]) -> FieldT:
    """Return a field of an answer. Raises `OrmError` if it is missing or of another type."""
    value = as_object(answer).get(name)
    if not isinstance(value, kind):
        raise OrmError(f"the server's tokenizer answers without {name!r}", unavailable=True)
    return value
