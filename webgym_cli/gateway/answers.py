"""Answers to agents: the stored step of a call as a chat completion, whole or as the chunks of a stream.

An answer follows from its step alone, so that a repeated request gets the same bytes, also after a restart.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from webgym_cli.agent.forms.reasoning import strip_reasoning
from webgym_cli.gateway.sessions import GatewayCall
from webgym_cli.records.action import Action, ActionName
from webgym_cli.records.base import moment_of
from webgym_cli.records.trajectory import count_tokens


def build_completion(call: GatewayCall, session: str, model: str, *, thinking: bool) -> dict[str, Any]:
    """Return the chat completion of a call."""
    step, generation, name = call.step, call.step.generation, f"{session}-{call.number}"
    message: dict[str, Any] = {"role": "assistant", "content": strip_reasoning(step.response, thinking=thinking)}
    reason = "length" if generation.finish_reason == "length" else "stop"
    if isinstance(step.action, Action) and step.action.name is ActionName.CALL:
        calls = []
        for number, one in enumerate(step.action.calls or ()):
            function = {"name": one.name, "arguments": json.dumps(one.arguments, ensure_ascii=False)}
            calls.append({"id": f"call_{name}-{number}", "type": "function", "function": function})
        message |= {"content": step.action.text or None, "tool_calls": calls}
        reason = "tool_calls"
    tokens = count_tokens([step])
    return {
        "id": f"chatcmpl-{name}",
        "object": "chat.completion",
        "created": int(moment_of(call.at).timestamp()),
        "model": model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": reason}],
        "usage": {
            "prompt_tokens": tokens.prompt,
            "completion_tokens": tokens.completion,
            "total_tokens": tokens.total,
            "prompt_tokens_details": {"cached_tokens": tokens.cached},
        },
    }


def stream_completion(completion: dict[str, Any], *, with_usage: bool) -> Iterator[bytes]:
    """Yield the server-sent events of a chat completion."""
    (choice,), usage = completion["choices"], completion["usage"]
    delta = dict(choice["message"])
    if "tool_calls" in delta:
        delta["tool_calls"] = [{"index": number, **call} for number, call in enumerate(delta["tool_calls"])]
    frame = {name: completion[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    for part, reason in ((delta, None), ({}, choice["finish_reason"])):
        yield encode_event({**frame, "choices": [{"index": 0, "delta": part, "finish_reason": reason}]})
    if with_usage:
        yield encode_event({**frame, "choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"


def encode_event(value: dict[str, Any]) -> bytes:
    """Return a server-sent event with a JSON value."""
    return b"data: %b\n\n" % json.dumps(value).encode()
