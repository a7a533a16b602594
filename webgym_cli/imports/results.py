"""Results of WebVoyager and Online-Mind2Web, a folder an episode, as their scorers read them: they await a judge.

The replies stay texts. The action in each is in the words of the other system, for judges that see the actions.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from webgym_cli.imports import files
from webgym_cli.imports.messages import ChatRecord, make_chat_format, make_image_part, make_text_part
from webgym_cli.imports.source import ImportFormat, NotUnderstood, to_fields, to_text
from webgym_cli.records.action import CustomAction
from webgym_cli.records.task import Split
from webgym_cli.util.json_values import as_list, as_text
from webgym_cli.util.text import replace_surrogates

_MESSAGES, _RESULT, _SHOTS = "interact_messages.json", "result.json", "trajectory"
# The beginning of WebVoyager's first message.
_TASK = re.compile(r"Now given a task:(.+?)Please interact with (\S*) and get the answer", re.DOTALL)
_PAGE = "Observation:"
_PART = re.compile(f"Thought:|Action:|{_PAGE}")
# Some models write the labels in Markdown, which WebVoyager's agent reads all the same.
_ANSWER = re.compile(r"Action:[\s*]*ANSWER[; ]+(.+)", re.DOTALL)
# An answer in brackets, which may hold others; what follows is on lines of their own.
_WRAPPED = re.compile(r"\s*\[((?:[^][]|\[[^][]*\])*)\][ .*]*(?:\n[^[]*)?")
# The schema of Online-Mind2Web's results in which each step names its screenshot.
_NAMED = "online-mind2web-v2"
_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")
_LONGEST = 2000


def _find_folders(name: str, beside: str, path: Path) -> list[Path]:
    """Return the folders of the files with a name at or under a path that have something beside them."""
    listed = [path] if path.is_file() else sorted(path.rglob(name))
    return [file.parent for file in listed if file.name == name and any(file.parent.glob(beside))]


def _convert_webvoyager(source: Path) -> ChatRecord:
    """Return WebVoyager's episode. The n-th message of its user has the n-th screenshot, unless it tells an error."""
    messages: list[dict[str, Any]] = []
    actions: list[CustomAction | None] = []
    pages, text = 0, ""
    for given in as_list(files.read_object(source / _MESSAGES)):
        message = to_fields(given, "a message")
        role, text = message.get("role"), _join_texts(message.get("content"))
        content: Any = text
        if role == "user":
            pages += 1
            if pages == 1 or _PAGE in text:
                content = [make_text_part(text), _name_image(source, f"screenshot{pages}.png")]
        elif role == "assistant":
            if messages and messages[-1]["role"] == "assistant":
                continue  # an answer alone, as at the end of webgym's own exports, is no step
            actions.append(_make_action(_find_action(text)))
        messages.append({"role": role, "content": content})
    first = next((one["content"] for one in messages if one["role"] == "user"), None)
    task = _TASK.search(first[0]["text"]) if first else None
    if task is None:
        raise NotUnderstood(f"{_MESSAGES}: its first message of the user has no task in WebVoyager's form")
    answer = _ANSWER.search(text)  # of the last message
    value = {"messages": messages, "task": task[1].strip(), "start_url": task[2], "model": "webvoyager"}
    value |= {"id": source.name.removeprefix("task"), "answer": answer and _unwrap(answer[1])}
    return ChatRecord(value | {"metadata": {"benchmark": "webvoyager"}}, actions=actions)


def _find_action(reply: str) -> str | None:
    """Return the action of a reply of WebVoyager's; None if it lacks one or its thought, which counts as an error."""
    _, label, rest = reply.partition("Action:")
    return _PART.split(rest)[0].strip("* \n") if label and "Thought:" in reply else None


def _unwrap(answer: str) -> str | None:
    wrapped = _WRAPPED.fullmatch(answer)
    return (wrapped[1] if wrapped else _PART.split(answer)[0]).strip("* \n") or None


def _convert_om2w(source: Path) -> ChatRecord:
    """Return Online-Mind2Web's episode, of either schema."""
    result = to_fields(files.read_object(source / _RESULT), "the result")
    answers = [_to_words(result.get(name)) for name in ("agent_final_answer", "final_result_response")]
    answer = next(filter(None, map(str.strip, answers)), None)
    steps = [to_fields(step, "a step") for step in _list_steps(source, result, answer)]
    if not (task := to_text(result.get("task")).strip()):
        raise NotUnderstood(f"{_RESULT}: no task")
    if not any(to_text(step.get("screenshot")) for step in steps):
        raise files.UnreadableImage(f"{_SHOTS}: no screenshots")
    messages: list[dict[str, Any]] = []
    actions: list[CustomAction | None] = []
    for number, step in enumerate(steps):
        image = [_name_image(source, f"{_SHOTS}/{shot}")] if (shot := to_text(step.get("screenshot"))) else []
        thought, action = (_to_words(step.get(name)) for name in ("thought", "action"))
        reply = "\n".join(f"{name}: {text}" for name, text in (("Thought", thought), ("Action", action)) if text)
        messages.append({"role": "user", "content": [*image, make_text_part("" if number else task)]})
        messages.append({"role": "assistant", "content": reply})
        actions.append(_make_action(action))
    pages = [(to_text(step.get("url")), "") for step in steps]
    starts = [*(url for url, _ in pages[:1]), *(to_text(result.get(name)) for name in ("start_url", "website"))]
    value = {"messages": messages, "task": task, "model": "online-mind2web", "answer": answer}
    value |= {"id": to_text(result.get("task_id")) or source.name, "start_url": next(filter(None, starts), "")}
    facts = {"benchmark": "online-mind2web", "reference_length": result.get("reference_length")}
    return ChatRecord(value | {"metadata": facts}, pages=pages, actions=actions)


def _list_steps(source: Path, result: dict[str, Any], answer: str | None) -> list[Any]:
    """Return the steps of a result. In the first schema the number of a screenshot tells the step."""
    history = as_list(result.get("action_history"))
    if result.get("schema_version") == _NAMED:
        return history
    shots = sorted((file.name for file in (source / _SHOTS).iterdir() if file.suffix.lower() in _SUFFIXES), key=_order)
    count = max(len(shots), len(history) + (answer is not None))
    numbers = [_order(name)[0] for name in shots]
    # Some agents save none between actions of one reply; other numbers, as of times, tell no step.
    if len({*numbers}) < len(shots) or any(number - numbers[0] >= count for number in numbers):
        numbers = list(range(len(shots)))
    named = {number - numbers[0]: name for number, name in zip(numbers, shots, strict=True)}
    thoughts = dict(enumerate(as_list(result.get("thoughts"))))
    columns = {"screenshot": named, "thought": thoughts, "action": dict(enumerate(history))}
    steps = [{name: values.get(number) for name, values in columns.items()} for number in range(count)]
    if answer is not None:  # so that the last action is the answer, as in the second schema
        steps[-1]["action"] = f"ANSWER; {answer}"
    return steps


def _order(name: str) -> tuple[int, str]:
    number = re.search(r"\d+", name)
    return int(number[0]) if number else -1, name


def _name_image(source: Path, name: str) -> dict[str, Any]:
    """Return an image of an episode's folder; a folder of pictures (`--images`) may hold those of several episodes."""
    return make_image_part(f"{source.name}/{name}")


def _make_action(text: str | None) -> CustomAction | None:
    return CustomAction(name="act", arguments={"text": text[:_LONGEST]}) if text else None


def _to_words(value: Any) -> str:
    return "" if value in (None, [], {}) else replace_surrogates(as_text(value))


def _join_texts(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(to_text(to_fields(part, "a part").get("text")) for part in content)
    return to_text(content)


def _make_format(name: str, beside: str, convert: Callable[[Path], ChatRecord]) -> ImportFormat:
    return make_chat_format(
        partial(_find_folders, name, beside),
        lambda source: iter([(str(source), partial(convert, source))]),
        f"folders with {name} and {beside}",
        split=Split.TEST,
        caution="they go to the test split, on which nothing is trained, as results on a benchmark's tasks",
    )


WEBVOYAGER = _make_format(_MESSAGES, "screenshot*.png", _convert_webvoyager)
OM2W = _make_format(_RESULT, _SHOTS, _convert_om2w)
