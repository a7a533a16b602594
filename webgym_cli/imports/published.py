"""Published trajectories of OpenWebRL, Fara (also CUAVerifierBench's) and MolmoWeb, as episodes in chat form.

The calls keep the names and coordinates of the other system: they train an agent with its tools.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyarrow import ArrowException

from webgym_cli.imports.calls import name_arguments, read_single_call
from webgym_cli.imports.json_files import find_lines, parse_json, read_json_lines, read_object
from webgym_cli.imports.messages import ChatRecord, make_chat_format
from webgym_cli.imports.source import ImportFormat, NotUnderstood, to_fields, to_number, to_text
from webgym_cli.util.json_values import as_list, as_object
from webgym_cli.util.optional import when

_PLACEHOLDER = "<|vision_start|><|image_pad|><|vision_end|>"
_TOOLS = re.compile(r"<tools>\n(.*?)\n</tools>", re.DOTALL)
_LOG, _TASK, _ANSWER = "web_surfer.log", "task_data.json", "*_final_answer.json"
# Columns of files with an episode a row.
_MOLMOWEB = ("sample_id", "instruction", "trajectory", "images", "image_paths")
_CUA = ("task_id", "instruction", "init_url", "final_answer", "web_surfer_log", "screenshots")
# CUAVerifierBench's final answer of an episode without one.
_NO_ANSWER = "<no_answer>"
# Rows that are in memory at a time, with their images.
_ROWS = 16
Records = Iterator[tuple[str, Callable[[], ChatRecord]]]


def _read_openwebrl(source: Path) -> Records:
    """Yield the episodes of a file whose lines are turns; those of an episode follow one another."""
    lines = (as_object(value) for _, value in read_json_lines(source))
    turns = (turn | {"metadata": as_object(turn.get("metadata"))} for turn in lines)
    for (task, rollout), group in groupby(
        turns, lambda turn: (turn["metadata"].get("task_id"), turn.get("rollout_idx"))
    ):
        yield f"{source}, task {task}, rollout {rollout}", partial(_join_turns, list(group))


def _join_turns(turns: list[dict[str, Any]]) -> ChatRecord:
    """Return an episode: the last turn has all messages, and each turn the image that was new in it."""
    turns = sorted(turns, key=lambda turn: to_number(turn["metadata"].get("turn_index")))
    last, facts = turns[-1], turns[-1]["metadata"]
    given = list(chain.from_iterable(turn["metadata"].get("images") or () for turn in turns))
    urls = [url if url.startswith("data:") else f"data:image/png;base64,{url}" for url in map(to_text, given)]
    messages = [message for message in facts.get("messages") or () if isinstance(message, dict)]
    texts = [to_text(message.get("content")) for message in messages]
    if sum(text.count(_PLACEHOLDER) for text in texts) != len(urls) or not messages:
        raise NotUnderstood(f"{len(urls)} images for the placeholders in its messages")
    if messages[-1].get("role") != "assistant":
        messages, texts = [*messages, {"role": "assistant"}], [*texts, to_text(last.get("response"))]
    rest = iter(urls)
    chat = [
        {"role": message.get("role"), "content": _split(text, rest)}
        for message, text in zip(messages, texts, strict=True)
    ]
    listed = _TOOLS.search(to_text(last.get("prompt")))
    value = {
        "messages": chat,
        "tools": [json.loads(line) for line in listed[1].splitlines()] if listed else [],
        "reward": last.get("reward"),
        "id": to_text(facts.get("task_id")),
        "task": to_text(facts.get("intent")),
        "start_url": to_text(facts.get("start_url")),
        "model": "openwebrl",
    }
    return ChatRecord(value)


def _split(text: str, urls: Iterator[str]) -> list[dict[str, Any]]:
    """Return a text as parts, with an image for each placeholder."""
    first, *others = text.split(_PLACEHOLDER)
    parts = [text_part(first)]
    for other in others:
        parts += [image_part(next(urls)), text_part(other)]
    return parts


def _convert_fara(source: Path) -> ChatRecord:
    """Return the episode of a folder: actions in web_surfer.log, and a screenshot before each of them."""
    task = read_object(source / _TASK) if (source / _TASK).is_file() else {}
    task = to_fields(next(iter(as_list(task)), None), _TASK)
    answer = as_object(next((read_object(file) for file in sorted(source.glob(_ANSWER))), None))
    named = (to_text(task.get(name)) for name in ("confirmed_task", "instruction", "task_summary"))
    return ChatRecord(
        _describe_fara(
            next(filter(None, named), ""),
            (value for _, value in read_json_lines(source / _LOG)),
            id=to_text(task.get("task_id")) or source.name,
            start_url=to_text(task.get("init_url")),
            answer=to_text(answer.get("final_answer")) or None,
            failure=when(answer.get("is_aborted"), "the agent was stopped (is_aborted)"),
        )
    )


def _describe_fara(instruction: str, lines: Iterable[Any], **facts: Any) -> dict[str, Any]:
    """Return an episode of Fara, with a call in each line of its log."""
    actions = [line["arguments"] for line in map(as_object, lines) if isinstance(line.get("arguments"), dict)]
    messages: list[dict[str, Any]] = []
    for number, arguments in enumerate(actions):
        given = {name: value for name, value in arguments.items() if name != "thoughts"}
        reply = build_call(to_text(arguments.get("thoughts")), "computer_use", given)
        add_turn(messages, instruction, f"screenshot{number}.png", reply)
    return {"messages": messages, "tools": list_tools(messages), "task": instruction, "model": "fara", **facts}


def _convert_cua(row: dict[str, Any]) -> ChatRecord:
    """Return an episode of Fara with CUAVerifierBench's labels, which awaits the judge that is compared with them."""
    instruction, answer = to_text(row["instruction"]), to_text(row["final_answer"])
    contents = ((image or {}).get("bytes") for image in row["screenshots"] or ())
    value = _describe_fara(
        instruction,
        map(parse_json, to_text(row["web_surfer_log"]).splitlines()),
        id=to_text(row["task_id"]),
        start_url=to_text(row["init_url"]),
        answer=when(answer != _NO_ANSWER, answer) or None,
        metadata={"benchmark": "cuaverifierbench"},
    )
    return ChatRecord(value, {f"screenshot{number}.png": one for number, one in enumerate(contents) if one})


def _find_rows(columns: Sequence[str], path: Path) -> list[Path]:
    """Return the Parquet files at or under a path that have these columns."""
    files = [path] if path.is_file() and path.suffix == ".parquet" else sorted(path.rglob("*.parquet"))
    return [file for file in files if _has_columns(file, columns)]


def _has_columns(file: Path, columns: Sequence[str]) -> bool:
    try:
        return set(columns) <= set(pq.read_schema(file).names)
    except (ArrowException, OSError):
        return False


def _read_rows(columns: Sequence[str], convert: Callable[[dict[str, Any]], ChatRecord], source: Path) -> Records:
    for batch in pq.ParquetFile(source).iter_batches(_ROWS, columns=list(columns)):
        for row in batch.to_pylist():
            yield f"{source}, {columns[0]} {row[columns[0]]}", partial(convert, row)


def _make_rows_format(columns: Sequence[str], convert: Callable[[dict[str, Any]], ChatRecord]) -> ImportFormat:
    """Return a format of Parquet files with an episode a row; the first of the columns names it."""
    expects = f"parquet files with the columns {', '.join(columns)}"
    find, read = partial(_find_rows, columns), partial(_read_rows, columns, convert)
    return make_chat_format(find, read, expects, suffixes=(".parquet",))


def _convert_molmoweb(row: dict[str, Any]) -> ChatRecord:
    """Return an episode of MolmoWeb: demonstrations, which are successes."""
    contents = ((image or {}).get("bytes") for image in row["images"] or ())
    pictures = {to_text(name): content for name, content in zip(row["image_paths"] or (), contents, strict=False)}
    levels, steps = (as_object(parse_json(to_text(row[name]))) for name in ("instruction", "trajectory"))
    named = (to_text(levels.get(level)) for level in ("high_level", "mid_level", "low_level"))
    instruction = next(filter(None, named), "") or to_text(row["instruction"])
    messages: list[dict[str, Any]] = []
    for key in sorted(steps, key=int):
        step = to_fields(steps[key], "a step")
        action, picture = to_fields(step.get("action"), "an action"), to_text(step.get("screenshot"))
        call = read_single_call(to_text(action.get("action_str")))
        if call is None or not picture:
            # A gap in the history would be a prompt that nobody answered so.
            raise NotUnderstood(f"step {key} has no action in the form of a call, or no screenshot")
        reply = build_call(to_text(action.get("action_description")), call.name, name_arguments(call))
        add_turn(messages, instruction, picture, reply)
    start = to_fields(steps[min(steps, key=int)], "a step").get("other_obs") if steps else None
    value = {
        "messages": messages,
        "tools": list_tools(messages),
        "reward": 1.0,
        "id": to_text(row["sample_id"]),
        "task": instruction,
        "start_url": to_text(as_object(start).get("url")),
        "model": "molmoweb",
    }
    return ChatRecord(value, {name: content for name, content in pictures.items() if content})


def text_part(text: str) -> dict[str, Any]:
    """Return a text as a part of a message."""
    return {"type": "text", "text": text}


def image_part(url: str) -> dict[str, Any]:
    """Return an image as a part of a message."""
    return {"type": "image_url", "image_url": {"url": url}}


def add_turn(messages: list[dict[str, Any]], instruction: str, picture: str, reply: dict[str, Any]) -> None:
    """Append a screenshot, the first one with the instruction, and the call that answers it."""
    role, text = ("tool", "") if messages else ("user", instruction)
    messages += [{"role": role, "content": [image_part(picture), text_part(text)]}, reply]


def name_call(reply: dict[str, Any]) -> str:
    """Return the name of the function that a message calls."""
    return str(reply["tool_calls"][0]["function"]["name"])


def list_tools(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the tools that turns call, of which only the names are known."""
    names = sorted({name_call(reply) for reply in messages[1::2]})
    return [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in names]


def build_call(thought: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return a message of the assistant with one call."""
    function = {"name": name, "arguments": arguments}
    return {"role": "assistant", "content": thought, "tool_calls": [{"type": "function", "function": function}]}


OPENWEBRL = make_chat_format(
    lambda path: find_lines(path, lambda value: {"metadata", "group_index"} <= as_object(value).keys()),
    _read_openwebrl,
    "OpenWebRL_SFT_trajectories.jsonl, a turn a line",
    suffixes=(".jsonl",),
)
FARA = make_chat_format(
    lambda path: sorted(log.parent for log in path.rglob(_LOG)),
    lambda source: iter([(str(source), partial(_convert_fara, source))]),
    "folders with web_surfer.log and screenshots",
)
MOLMOWEB = _make_rows_format(_MOLMOWEB, _convert_molmoweb)
CUAVERIFIERBENCH = _make_rows_format(_CUA, _convert_cua)
