"""Published trajectories of OpenWebRL, Fara (also CUAVerifierBench's), MolmoWeb and AgentRewardBench, in chat form.

The calls keep the names and coordinates of the other system: they train an agent with its tools.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate, chain, groupby
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyarrow import ArrowException

from webgym_cli.imports import files
from webgym_cli.imports.calls import name_arguments, read_single_call
from webgym_cli.imports.messages import ChatRecord, make_chat_format, make_image_part, make_text_part
from webgym_cli.imports.source import ImportFormat, NotUnderstood, to_fields, to_number, to_text
from webgym_cli.records.action import NOT_FEASIBLE
from webgym_cli.records.base import is_finite
from webgym_cli.util.files import open_regular
from webgym_cli.util.json_values import as_list, as_object
from webgym_cli.util.optional import when

_PLACEHOLDER = "<|vision_start|><|image_pad|><|vision_end|>"
_TOOLS = re.compile(r"<tools>\n(.*?)\n</tools>", re.DOTALL)
_LOG, _TASK, _FINAL_ANSWER = "web_surfer.log", "task_data.json", "*_final_answer.json"
# Columns of files with an episode a row.
_MOLMOWEB = ("sample_id", "instruction", "trajectory", "images", "image_paths")
_CUA = ("task_id", "instruction", "init_url", "final_answer", "web_surfer_log", "screenshots")
# CUAVerifierBench's final answer of an episode without one.
_NO_ANSWER = "<no_answer>"
# Rows that are in memory at a time, with their images.
_ROWS = 16
# The beginning of a file of AgentRewardBench, by which it is known: whole ones have megabytes of accessibility trees.
_START = re.compile(rb'\s*\{\s*"benchmark"\s*:\s*"[^"]*"\s*,\s*"agent"\s*:')
_BYTES = 500
# BrowserGym's call of an answer; that of an impossible task has the reason.
_ANSWER, _INFEASIBLE = "send_msg_to_user", "report_infeasible"
Records = Iterator[tuple[str, Callable[[], ChatRecord]]]


def _read_openwebrl(source: Path) -> Records:
    """Yield the episodes of a file whose lines are turns; those of an episode follow one another."""
    values = (as_object(value) for _, value in files.read_json_lines(source))
    # A damaged line may be a turn of the episode before it, which is refused.
    lines = accumulate(values, lambda before, turn: turn or before | {"damaged": True})
    turns = (turn | {"metadata": as_object(turn.get("metadata"))} for turn in lines)
    rollouts = groupby(turns, lambda turn: (turn["metadata"].get("task_id"), turn.get("rollout_idx")))
    for (task, rollout), group in rollouts:
        yield f"{source}, task {task}, rollout {rollout}", partial(_join_turns, list(group))


def _join_turns(turns: list[dict[str, Any]]) -> ChatRecord:
    """Return an episode: the last turn has all messages, and each turn the image that was new in it."""
    turns = sorted(turns, key=lambda turn: to_number(turn["metadata"].get("turn_index")))
    last, facts = turns[-1], turns[-1]["metadata"]
    given = map(to_text, chain.from_iterable(turn["metadata"].get("images") or () for turn in turns))
    urls = [url if url.startswith("data:") else f"data:image/png;base64,{url}" for url in given]
    messages = [message for message in facts.get("messages") or () if isinstance(message, dict)]
    texts = [to_text(message.get("content")) for message in messages]
    if not messages or "damaged" in chain(*turns) or sum(text.count(_PLACEHOLDER) for text in texts) != len(urls):
        raise NotUnderstood(f"{len(urls)} images for the placeholders in its messages, or a damaged line")
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
    first, *others = text.split(_PLACEHOLDER)
    parts = [make_text_part(first)]
    for other in others:
        parts += [make_image_part(next(urls)), make_text_part(other)]
    return parts


def _convert_fara(source: Path) -> ChatRecord:
    """Return the episode of a folder: actions in web_surfer.log, and a screenshot before each of them."""
    task = files.read_object(source / _TASK) if (source / _TASK).is_file() else {}
    task = to_fields(next(iter(as_list(task)), None), _TASK)
    answer = as_object(next((files.read_object(file) for file in sorted(source.glob(_FINAL_ANSWER))), None))
    named = (to_text(task.get(name)) for name in ("confirmed_task", "instruction", "task_summary"))
    return ChatRecord(
        _describe_fara(
            next(filter(None, named), ""),
            (value for _, value in files.read_json_lines(source / _LOG)),
            id=to_text(task.get("task_id")) or source.name,
            start_url=to_text(task.get("init_url")),
            answer=to_text(answer.get("final_answer")) or None,
            failure=when(answer.get("is_aborted"), "the agent was stopped (is_aborted)"),
        )
    )


def _describe_fara(instruction: str, lines: Iterable[Any], **facts: Any) -> dict[str, Any]:
    """Return an episode of Fara, with a call in each line of its log."""
    values, turns = list(lines), []
    if None in values:  # without its action the screenshots would be those of other actions
        raise NotUnderstood("a line of its log is no JSON")
    actions = [line["arguments"] for line in map(as_object, values) if isinstance(line.get("arguments"), dict)]
    for number, arguments in enumerate(actions):
        given = {name: value for name, value in arguments.items() if name != "thoughts"}
        reply = _build_call(to_text(arguments.get("thoughts")), "computer_use", given)
        turns.append((f"screenshot{number}.png", reply))
    return _build_episode(instruction, turns, model="fara", **facts)


def _convert_cua(row: dict[str, Any]) -> ChatRecord:
    """Return an episode of Fara with CUAVerifierBench's labels, which awaits the judge that is compared with them."""
    instruction, answer = to_text(row["instruction"]), to_text(row["final_answer"])
    contents = map(_read_content, row["screenshots"] or ())
    value = _describe_fara(
        instruction,
        map(files.parse_json, filter(str.strip, to_text(row["web_surfer_log"]).splitlines())),
        id=to_text(row["task_id"]),
        start_url=to_text(row["init_url"]),
        answer=when(answer != _NO_ANSWER, answer) or None,
        metadata={"benchmark": "cuaverifierbench"},
    )
    return ChatRecord(value, {f"screenshot{number}.png": one for number, one in enumerate(contents) if one})


def _find_rows(columns: Sequence[str], path: Path) -> list[Path]:
    """Return the Parquet files at or under a path that have these columns, and damaged ones beside them."""
    names = {file: _read_names(file) for file in files.list_files(path, ".parquet")}
    has_own = any(map(set(columns).issubset, names.values()))
    return [file for file, known in names.items() if has_own and (not known or known.issuperset(columns))]


def _read_names(file: Path) -> set[str]:
    """Return the columns of a Parquet file; none of a damaged one."""
    try:
        return set(pq.read_schema(file).names)
    except (ArrowException, OSError):
        return set()


def _read_rows(columns: Sequence[str], convert: Callable[[dict[str, Any]], ChatRecord], source: Path) -> Records:
    for batch in pq.ParquetFile(source).iter_batches(_ROWS, columns=list(columns)):
        for row in batch.to_pylist():
            yield f"{source}, {columns[0]} {row[columns[0]]}", partial(convert, row)


def _read_content(image: Any) -> bytes | None:
    """Return the content of an image: a struct with `bytes`, or these alone."""
    if isinstance(image, bytes):
        return image
    return as_object(image).get("bytes")


def _make_rows_format(columns: Sequence[str], convert: Callable[[dict[str, Any]], ChatRecord]) -> ImportFormat:
    """Return a format of Parquet files with an episode a row; the first of the columns names it."""
    find, read = partial(_find_rows, columns), partial(_read_rows, columns, convert)
    return make_chat_format(find, read, f"parquet files with the columns {', '.join(columns)}", suffixes=(".parquet",))


def _convert_molmoweb(row: dict[str, Any]) -> ChatRecord:
    """Return an episode of MolmoWeb: demonstrations, which are successes."""
    contents = map(_read_content, row["images"] or ())
    pictures = {to_text(name): content for name, content in zip(row["image_paths"] or (), contents, strict=False)}
    levels, steps = (as_object(files.parse_json(to_text(row[name]))) for name in ("instruction", "trajectory"))
    named = (to_text(levels.get(level)) for level in ("high_level", "mid_level", "low_level"))
    instruction = next(filter(None, named), "") or to_text(row["instruction"])
    turns = []
    for key in sorted(steps, key=int):
        step = to_fields(steps[key], "a step")
        action, picture = to_fields(step.get("action"), "an action"), to_text(step.get("screenshot"))
        call = read_single_call(to_text(action.get("action_str")))
        if call is None or not picture:
            # A gap in the history would be a prompt that nobody answered so.
            raise NotUnderstood(f"step {key} has no action in the form of a call, or no screenshot")
        reply = _build_call(to_text(action.get("action_description")), call.name, name_arguments(call))
        turns.append((picture, reply))
    start = to_fields(steps[min(steps, key=int)], "a step").get("other_obs") if steps else None
    value = _build_episode(
        instruction,
        turns,
        reward=1.0,
        id=to_text(row["sample_id"]),
        start_url=to_text(as_object(start).get("url")),
        model="molmoweb",
    )
    return ChatRecord(value, {name: content for name, content in pictures.items() if content})


def _build_episode(instruction: str, turns: Iterable[tuple[str, dict[str, Any]]], **facts: Any) -> dict[str, Any]:
    """Return an episode of turns: screenshots, the first one with the instruction, and the calls that answer them.

    Of the tools only the names are known.
    """
    messages: list[dict[str, Any]] = []
    for picture, reply in turns:
        role, text = ("tool", "") if messages else ("user", instruction)
        messages += [{"role": role, "content": [make_image_part(picture), make_text_part(text)]}, reply]
    if not messages:
        raise NotUnderstood("it has no action")
    names = sorted({_read_call(reply)["name"] for reply in messages[1::2]})
    tools = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in names]
    return {"messages": messages, "tools": tools, "task": instruction, **facts}


def _read_call(reply: dict[str, Any]) -> dict[str, Any]:
    return as_object(reply["tool_calls"][0]["function"])


def _build_call(thought: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"role": "assistant", "content": thought, "tool_calls": [{"type": "function", "function": function}]}


def _find_labelled(path: Path) -> list[Path]:
    return [file for file in files.list_files(path, ".json") if file.is_file() and _START.match(_read_start(file))]


def _read_start(file: Path) -> bytes:
    with open_regular(file) as opened:
        return opened.read(_BYTES)


def _convert_labelled(source: Path) -> ChatRecord:
    """Return AgentRewardBench's episode. Its last step, the page after the last action, has none and is left out."""
    data = to_fields(files.read_object(source), "the episode")
    steps = [step for step in map(as_object, as_list(data.get("steps"))) if to_text(step.get("action"))]
    root = next((folder for folder in source.parents if (folder / "screenshots").is_dir()), source.parent)
    turns, images = [], dict[str, bytes]()
    for step in steps:
        name = to_text(step.get("screenshot_path"))
        if files.is_file(file := files.find_picture(name, (root,))):
            images[name] = file.read_bytes()
        turns.append((name, _build_call(to_text(step.get("reasoning")), *_read_action(to_text(step["action"])))))
    value = _build_episode(
        to_text(data.get("goal")),
        turns,
        id=source.stem,
        start_url=next((to_text(step.get("url")) for step in steps), ""),
        answer=_find_answer([_read_call(reply) for _, reply in turns]),
        model=to_text(data.get("agent")),
        metadata={"benchmark": to_text(data.get("benchmark"))},
    )
    pages = [(to_text(step.get("url")), to_text(step.get("axtree"))) for step in steps]
    summary = as_object(data.get("summary_info"))
    reward = None if summary.get("err_msg") else summary.get("cum_reward")  # of a crash it is 0
    return ChatRecord(value, images, pages, reward if is_finite(reward) else None)


def _read_action(text: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the arguments of an action; one that is not a single call is code."""
    if (call := read_single_call(text)) is None:
        return "python", {"code": text}
    return call.name, name_arguments(call)


def _find_answer(calls: Sequence[dict[str, Any]]) -> str | None:
    """Return the answer of the last call of an episode; None without one."""
    for call in calls[-1:]:
        if call["name"] == _INFEASIBLE:
            return NOT_FEASIBLE
        if call["name"] == _ANSWER:
            return next(iter(map(str, call["arguments"].values())), None)
    return None


OPENWEBRL = make_chat_format(
    lambda path: files.find_lines(path, lambda value: {"metadata", "group_index"} <= as_object(value).keys()),
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
AGENTREWARDBENCH = make_chat_format(
    _find_labelled,
    lambda source: iter([(str(source), partial(_convert_labelled, source))]),
    "the folder of the data set, with cleaned/ and screenshots/",
    suffixes=(".json",),
)
