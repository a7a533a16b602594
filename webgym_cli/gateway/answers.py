"""Answers to agents: the stored step of a call as a chat completion or a response, whole or as server-sent events.

An answer follows from its step alone, so that a repeated request gets the same bytes, also after a restart.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from webgym_cli.agent.forms.reasoning import strip_reasoning
from webgym_cli.gateway.responses import build_response, iterate_response_events
from webgym_cli.gateway.sessions import GatewayCall
from webgym_cli.records.action import Action, ActionName
from webgym_cli.records.base import moment_of


class GatewayAnswer:
    """The answer to a call, in both dialects."""

    def __init__(self, call: GatewayCall, session: str, model: str, *, thinking: bool) -> None:
        step, generation = call.step, call.step.generation
        self._name = f"{session}-{call.number}"
        self._created = int(moment_of(call.at).timestamp())
        self._model = model
        self._cut = generation.finish_reason == "length"
        self._text = strip_reasoning(step.response, thinking=thinking)
        self._calls: list[dict[str, Any]] = []
        if isinstance(step.action, Action) and step.action.name is ActionName.CALL:
            self._text = step.action.text or ""
            for number, one in enumerate(step.action.calls or ()):
                function = {"name": one.name, "arguments": json.dumps(one.arguments, ensure_ascii=False)}
                self._calls.append({"id": f"call_{self._name}-{number}", "type": "function", "function": function})
        prompt, sampled = generation.prompt_tokens or 0, len(generation.token_ids or ())
        self._usage = {"prompt_tokens": prompt, "completion_tokens": sampled, "total_tokens": prompt + sampled}

    @property
    def completion(self) -> dict[str, Any]:
        """The chat completion."""
        message: dict[str, Any] = {"role": "assistant", "content": self._text or (None if self._calls else "")}
        message |= {"tool_calls": self._calls} if self._calls else {}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._finish_reason}
        return {**self._head("chat.completion"), "choices": [choice], "usage": self._usage}

    @property
    def response(self) -> dict[str, Any]:
        """The response object."""
        return build_response(self._name, self.completion)

    def stream_completion(self, *, with_usage: bool) -> Iterator[bytes]:
        """Yield the server-sent events of the chat completion."""
        head = self._head("chat.completion.chunk")
        calls = [{"index": number, **call} for number, call in enumerate(self._calls)]
        delta: dict[str, Any] = {"role": "assistant", "content": self._text}
        delta |= {"tool_calls": calls} if calls else {}
        for part, reason in ((delta, None), ({}, self._finish_reason)):
            yield _encode({**head, "choices": [{"index": 0, "delta": part, "finish_reason": reason}]})
        if with_usage:
            yield _encode({**head, "choices": [], "usage": self._usage})
        yield b"data: [DONE]\n\n"

    def stream_response(self) -> Iterator[bytes]:
        """Yield the server-sent events of the response object."""
        for number, event in enumerate(iterate_response_events(self.response)):
            yield b"event: %b\n" % event["type"].encode() + _encode({**event, "sequence_number": number})

    @property
    def _finish_reason(self) -> str:
        if self._calls:
            return "tool_calls"
        return "length" if self._cut else "stop"

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": f"chatcmpl-{self._name}", "object": kind, "created": self._created, "model": self._model}


def _encode(value: Mapping[str, Any]) -> bytes:
    return b"data: %b\n\n" % json.dumps(value).encode()
