"""Tokens that a model server counted."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pydantic import Field

from webgym_cli.records.base import Record
from webgym_cli.util.json_values import as_object


class TokenUsage(Record):
    """Numbers of tokens of some requests."""

    prompt: int = Field(default=0, ge=0)
    """Tokens of the prompts, images and cached tokens included."""
    cached: int = Field(default=0, ge=0)
    """Those of them that the server had cached, as far as it says so."""
    completion: int = Field(default=0, ge=0)
    """Tokens of the answers, reasoning included."""

    @property
    def total(self) -> int:
        """Tokens of prompts and answers together."""
        return self.prompt + self.completion

    def __add__(self, other: TokenUsage) -> TokenUsage:
        return TokenUsage(
            prompt=self.prompt + other.prompt,
            cached=self.cached + other.cached,
            completion=self.completion + other.completion,
        )


# Tokens, each with the names under which their model may have a price.
Requests = Collection[tuple[tuple[str, ...], TokenUsage]]


def read_usage(answer: Any) -> TokenUsage:
    """Return the usage in a parsed chat completion; zeros for what the server does not say or misstates."""
    usage = _read_mapping(answer, "usage")
    details = _read_mapping(usage, "prompt_tokens_details")
    counts = (*map(usage.get, ("prompt_tokens", "completion_tokens", "total_tokens")), details.get("cached_tokens"))
    prompt, completion, total, cached = (count if type(count) is int and count >= 0 else 0 for count in counts)
    if prompt:  # xAI and Gemini count reasoning, which they charge like the answer, in the total alone
        completion = max(completion, total - prompt)
    return TokenUsage(prompt=prompt, cached=min(cached, prompt), completion=completion)


def _read_mapping(value: Any, name: str) -> dict[str, Any]:
    return as_object(as_object(value).get(name))
