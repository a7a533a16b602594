"""AgentRewardBench's trajectories, which people labelled: a JSON file an episode in `cleaned/`, and `screenshots/`."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

from webgym_cli.imports.calls import name_arguments, read_single_call
from webgym_cli.imports.json_files import read_object
from webgym_cli.imports.messages import ChatRecord, make_chat_format
from webgym_cli.imports.pictures import find_picture, is_file
from webgym_cli.imports.published import add_turn, build_call, list_tools, name_call
from webgym_cli.imports.source import to_fields, to_text
from webgym_cli.records.action import NOT_FEASIBLE
from webgym_cli.records.base import is_finite
from webgym_cli.util.files import open_regular
from webgym_cli.util.json_values import as_list, as_object

# The beginning of a file, by which it is known: whole ones have megabytes of accessibility trees.
_START = re.compile(rb'\s*\{\s*"benchmark"\s*:\s*"[^"]*"\s*,\s*"agent"\s*:')
_BYTES = 500
# BrowserGym's call of an answer; that of an impossible task has the reason.
_ANSWER, _INFEASIBLE = "send_msg_to_user", "report_infeasible"


def _find(path: Path) -> list[Path]:
    files = [path] if path.is_file() and path.suffix == ".json" else sorted(path.rglob("*.json"))
    return [file for file in files if file.is_file() and _START.match(_read_start(file))]


def _read_start(file: Path) -> bytes:
    with open_regular(file) as opened:
        return opened.read(_BYTES)


def _convert(source: Path) -> ChatRecord:
    """Return the episode of a file. Its last step, the page after the last action, has no action and is left out."""
    data = to_fields(read_object(source), "the episode")
    steps = [step for step in map(as_object, as_list(data.get("steps"))) if to_text(step.get("action"))]
    root = next((folder for folder in source.parents if (folder / "screenshots").is_dir()), source.parent)
    messages: list[dict[str, Any]] = []
    images: dict[str, bytes] = {}
    for step in steps:
        name = to_text(step.get("screenshot_path"))
        if is_file(file := find_picture(name, (root,))):
            images[name] = file.read_bytes()
        reply = build_call(to_text(step.get("reasoning")), *_read_action(to_text(step["action"])))
        add_turn(messages, to_text(data.get("goal")), name, reply)
    value = {
        "messages": messages,
        "tools": list_tools(messages),
        "task": to_text(data.get("goal")).strip(),
        "id": source.stem,
        "start_url": to_text(steps[0].get("url")) if steps else "",
        "answer": _find_answer(messages),
        "model": to_text(data.get("agent")),
        "metadata": {"benchmark": to_text(data.get("benchmark"))},
    }
    pages = [(to_text(step.get("url")), to_text(step.get("axtree"))) for step in steps]
    summary = as_object(data.get("summary_info"))
    reward = None if summary.get("err_msg") else summary.get("cum_reward")  # of a crash it is 0
    return ChatRecord(value, images, pages, reward if is_finite(reward) else None)


def _read_action(text: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the arguments of an action; one that is not a single call is code."""
    call = read_single_call(text)
    if call is None:
        return "python", {"code": text}
    return call.name, name_arguments(call)


def _find_answer(messages: list[dict[str, Any]]) -> str | None:
    """Return the answer with which an episode ended; None without one."""
    name = name_call(messages[-1]) if messages else ""
    if name == _INFEASIBLE:
        return NOT_FEASIBLE
    given = messages[-1]["tool_calls"][0]["function"]["arguments"] if name == _ANSWER else {}
    return next(iter(map(str, given.values())), None)


AGENTREWARDBENCH = make_chat_format(
    _find,
    lambda source: iter([(str(source), partial(_convert, source))]),
    "the folder of the data set, with cleaned/ and screenshots/",
    suffixes=(".json",),
)
