"""OpenAI's Responses dialect: its requests as chat requests, and a chat completion as a response, whole or streamed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from webgym_cli.gateway.answers import encode_event
from webgym_cli.gateway.requests import RequestError


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
    chat["messages"] = [*system, *chain.from_iterable(_convert_item(item, earlier) for item in items)]
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


# Status and details of a response by the chat completion's reason to end.
_ENDS = {"length": ("incomplete", {"reason": "max_output_tokens"})}


def build_response(completion: dict[str, Any]) -> dict[str, Any]:
    """Return the response object of a chat completion."""
    (choice,), usage, output = completion["choices"], completion["usage"], []
    name = completion["id"].removeprefix("chatcmpl-")
    text, calls = choice["message"]["content"], choice["message"].get("tool_calls", [])
    status, details = _ENDS.get(choice["finish_reason"], ("completed", None))
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
        "status": status,
        "incomplete_details": details,
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
        yield b"event: %b\n" % event["type"].encode() + encode_event({**event, "sequence_number": number})


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


def _convert_tool(tool: Any) -> dict[str, Any]:
    if not isinstance(tool, dict) or tool.get("type") != "function":
        raise RequestError(400, "tools: only functions can be called", "unsupported_value")
    function = {name: tool[name] for name in ("name", "description", "parameters") if tool.get(name) is not None}
    return {"type": "function", "function": function}
