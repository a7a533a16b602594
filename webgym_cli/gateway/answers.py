"""Answers to agents: the stored step of a call as a chat completion or a response, whole or as events of a stream.

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
    deltas = [dict(choice["message"])]
    if calls := deltas[0].pop("tool_calls", ()):
        # In an event of their own: AutoGen reads no calls in one with a text.
        deltas.append({"tool_calls": [{"index": number, **call} for number, call in enumerate(calls)]})
    frame = {name: completion[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    for delta, reason in (*((one, None) for one in deltas), ({}, choice["finish_reason"])):
        yield _encode_event({**frame, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})
    if with_usage:
        yield _encode_event({**frame, "choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"


def build_response(completion: dict[str, Any]) -> dict[str, Any]:
    """Return the response object of a chat completion."""
    (choice,), usage, output = completion["choices"], completion["usage"], []
    name = completion["id"].removeprefix("chatcmpl-")
    text, calls = choice["message"]["content"], choice["message"].get("tool_calls", [])
    is_cut = choice["finish_reason"] == "length"
    if text or not calls:
        content = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]
        message = {"id": f"msg_{name}", "type": "message", "role": "assistant", "status": "completed"}
        output.append({**message, "content": content})
    for call in calls:
        facts = {"id": f"fc_{call['id']}", "type": "function_call", "status": "completed", "call_id": call["id"]}
        output.append({**facts, **call["function"]})
    return {
        "id": f"resp_{name}",
        "object": "response",
        "created_at": completion["created"],
        "model": completion["model"],
        "status": "incomplete" if is_cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
        "error": None,
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": usage["prompt_tokens_details"] | {"cache_write_tokens": 0},
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage["total_tokens"],
        },
    }


def stream_response(completion: dict[str, Any]) -> Iterator[bytes]:
    """Yield the server-sent events of a chat completion's response."""
    for number, event in enumerate(_iterate_events(build_response(completion))):
        yield b"event: %b\n" % event["type"].encode() + _encode_event({**event, "sequence_number": number})


def _iterate_events(response: dict[str, Any]) -> Iterator[dict[str, Any]]:
    empty = {**response, "status": "in_progress", "incomplete_details": None, "output": [], "usage": None}
    yield from ({"type": f"response.{state}", "response": empty} for state in ("created", "in_progress"))
    for index, item in enumerate(response["output"]):
        place = {"item_id": item["id"], "output_index": index}
        nothing: dict[str, Any] = {"content": []} if item["type"] == "message" else {"arguments": ""}
        begun = {**item, **nothing, "status": "in_progress"}
        yield {"type": "response.output_item.added", "output_index": index, "item": begun}
        if item["type"] == "message":
            (part,) = item["content"]
            text = {**place, "content_index": 0, "logprobs": []}
            yield {"type": "response.content_part.added", **place, "content_index": 0, "part": {**part, "text": ""}}
            yield {"type": "response.output_text.delta", **text, "delta": part["text"]}
            yield {"type": "response.output_text.done", **text, "text": part["text"]}
            yield {"type": "response.content_part.done", **place, "content_index": 0, "part": part}
        else:
            arguments = item["arguments"]
            yield {"type": "response.function_call_arguments.delta", **place, "delta": arguments}
            facts = {**place, "name": item["name"], "arguments": arguments}
            yield {"type": "response.function_call_arguments.done", **facts}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    # Also of an answer that was cut off, as vLLM does: after `response.incomplete` openai-agents raises, and openai's
    # own client has no final response.
    yield {"type": "response.completed", "response": response}


def _encode_event(value: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % json.dumps(value).encode()
