"""WebGym's trajectory files, such as `train_trajectories.pt.iteration3`: torch archives of pickled records."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import TypeAdapter

from webgym_cli.agent.forms.web_actions import WEBGYM as WEBGYM_ACTIONS
from webgym_cli.imports.chat import ChatMessage, convert_parts
from webgym_cli.imports.files import find_picture
from webgym_cli.imports.pickle_stubs import PickleRefused
from webgym_cli.imports.pickled import read_pickle
from webgym_cli.imports.source import (
    Conversation,
    ImportedEpisode,
    ImportedStep,
    ImportFormat,
    NotUnderstood,
    Picture,
    SkippedEpisode,
    SkipReason,
    Unfinished,
    compute_digest,
    format_time,
    parse_response,
    read_episode,
    to_fields,
    to_plain,
    to_text,
    with_stop,
)
from webgym_cli.imports.webgym_outcome import read_error, read_outcome
from webgym_cli.records.action import Action, InteractionMode
from webgym_cli.records.failure import Stop
from webgym_cli.records.sample import Message
from webgym_cli.records.task import Split
from webgym_cli.records.trajectory import PromptSpec
from webgym_cli.tasks.format import read_task
from webgym_cli.util.json_values import as_object

# WebGym's classes in its files.
RECORDS = frozenset(
    f"webgym.data.components.{name}" for name in ("Action", "Observation", "Response", "Reward", "Task")
)
_NAME = re.compile(r"\.pt\.iteration(\d+)(?:_rank_\d+)?(?:\.checkpoint)?$")
_TASK_FIELDS = (
    *("task_name", "domain", "subdomain", "website", "difficulty", "evaluator_reference", "reference_answer"),
    "task_id",
)
# WebGym's action key -> ours. `wait` is left out, because WebGym uses it for responses that it can't parse.
_ACTION_NAMES = {name: name for name in ("click", "type", "hover", "scroll", "answer", "navigate")} | {
    "goback": "go_back"
}
_FILE = "file://"
_MESSAGES = TypeAdapter(list[ChatMessage])


def find(path: Path) -> list[Path]:
    """Return the trajectory files at or under a path, by iteration; a `path` to a file may have any name."""
    if path.is_file():
        return [path]
    files = [file for file in path.rglob("*.pt.iteration*") if _NAME.search(file.name)]
    return sorted(files, key=lambda file: (read_iteration(file) or 0, file))


def read_iteration(source: Path) -> int | None:
    """Return the iteration in a file's name; None if it has none."""
    match = _NAME.search(source.name)
    return int(match[1]) if match else None


def read(source: Path, images: Path | None) -> Iterator[ImportedEpisode | SkippedEpisode]:
    """Yield the episodes of a file. Raises `PickleRefused`."""
    value = read_pickle(source, RECORDS)
    if not isinstance(value, dict):
        value = {"trajectories": value}
    trajectories = value.get("trajectories")
    if not isinstance(trajectories, list):
        raise PickleRefused(f"{source}: holds no 'trajectories', as WebGym's files do")
    file = _File(source, images, as_object(value.get("metadata")))
    for number, steps in enumerate(trajectories):
        where = f"{source}, trajectory {number}"
        if steps:
            yield read_episode(where, partial(file.to_imported, where, steps))
        else:
            yield SkippedEpisode(SkipReason.EMPTY, where)


class _File:
    def __init__(self, source: Path, images: Path | None, metadata: dict[str, Any]) -> None:
        self._roots = [images] if images else [source.parent.parent, source.parent]
        self._split = Split.TEST if "test" in (to_text(metadata.get("split")) or source.name) else Split.TRAIN
        self._policy = to_text(metadata.get("solution_model")) or "webgym"
        self._judge = to_text(metadata.get("judge_model")) or "unknown"
        self._written = _parse_time(to_text(metadata.get("timestamp")), source)
        self._pictures: dict[str, Path] = {}
        """Screenshots by name, for the current episode."""

    def to_imported(self, where: str, value: Any) -> ImportedEpisode:
        """Convert one episode. Raises `NotUnderstood`, `BadTask`."""
        steps = [to_fields(step, "a step") for step in (value if isinstance(value, list) else [])]
        if not steps:
            raise NotUnderstood("no list of steps")
        if not (observed := [step["observation"] for step in steps if step.get("observation") is not None]):
            raise NotUnderstood("no step has an observation")
        record = to_fields(to_fields(observed[0], "an observation").get("task"), "a task")
        line = {name: to_plain(record[name]) for name in _TASK_FIELDS if record.get(name) is not None}
        if isinstance(number := line.get("difficulty"), float) and number.is_integer():
            line["difficulty"] = int(number)
        task = read_task(line)
        answered = _select_answered(steps)
        # The files don't record which prompt was used; the responses reveal it.
        responses = [to_text(to_fields(step["response"], "a response").get("raw_response")) for step in answered]
        marks = any('"web_interaction"' in response for response in responses)
        prompt = PromptSpec(
            version="webgym" if any("Progress:" in text for text in responses) else "webgym_vanilla",
            interaction_mode=InteractionMode.SET_OF_MARKS if marks else InteractionMode.COORDINATES,
            thinking=any("</think>" in response for response in responses),
        )
        self._pictures = {_picture_name(step): find_picture(_image_path(step), self._roots) for step in answered}
        imported = tuple(self._read_step(step, prompt) for step in answered)
        outcome, verdict = read_outcome(steps, len(answered), task, self._judge, self._written)
        content = [[step.response, step.url, _picture_name(of)] for step, of in zip(imported, answered, strict=True)]
        return ImportedEpisode(
            where=where,
            digest=compute_digest(
                task.key, content, outcome.model_dump(mode="json"), to_plain(record.get("trajectory_index"))
            ),
            task=task,
            policy=self._policy,
            prompt=prompt,
            steps=imported,
            outcome=with_stop(outcome, imported, Stop.STEP_LIMIT),
            started_at=self._written,
            split=self._split,
            verdict=verdict,
            lost_steps=len(steps) - len(answered),
        )

    def _read_step(self, step: dict[str, Any], prompt: PromptSpec) -> ImportedStep:
        observation = to_fields(step["observation"], "an observation")
        response = to_fields(step["response"], "a response")
        page = as_object(observation.get("page_metadata"))
        sent = read_sent(to_text(response.get("raw_prompt")), self._pictures)
        parsed = parse_response(
            to_text(response.get("raw_response")),
            prompt.interaction_mode,
            thinking=prompt.thinking,
            known_action=_convert_action(step.get("action")),
            as_it_is=sent is not None,
            actions=WEBGYM_ACTIONS,
        )
        same = step.get("same_as_next_screenshot")
        return replace(
            parsed,
            picture=self._pictures[_picture_name(step)],
            url=to_text(page.get("url")),
            title=to_text(page.get("title")),
            prompt=to_text(response.get("raw_prompt")),
            sent=sent,
            page_changed=None if not isinstance(same, bool) else not same,
        )


def _image_path(step: dict[str, Any]) -> str:
    return to_text(to_fields(step["observation"], "an observation").get("image_path"))


def _picture_name(step: dict[str, Any]) -> str:
    return shorten_path(_image_path(step))


def _select_answered(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the steps that don't record an error. Raises `Unfinished` if one of them was never executed."""
    answered = [step for step in steps if not read_error(step)]
    for number, step in enumerate(answered):
        # WebGym does not train on such an episode either.
        missing = [name for name in ("observation", "response", "action") if step.get(name) is None]
        if missing or not _image_path(step):
            raise Unfinished(f"step {number} has no {(*missing, 'picture')[0]}: it was never carried out")
    return answered


def _convert_action(record: Any) -> Action | None:
    """Convert WebGym's parsed action; None if it has no counterpart. Coordinates are taken over unchanged."""
    if record is None:
        return None
    content = to_fields(record, "an action").get("action")
    if not isinstance(content, dict) or not isinstance(arguments := content.get("arguments"), dict):
        return None
    # None for `wait`, which WebGym uses for responses that it can't parse.
    name = _ACTION_NAMES.get(to_text(content.get("key")))
    point = arguments.get("coordinates")
    texts = [arguments[key] for key in ("text", "content") if isinstance(arguments.get(key), str)]
    try:
        return Action.model_validate(
            {
                "name": name,
                "coordinate": tuple(point) if isinstance(point, list | tuple) else None,
                "text": next(iter(texts), None),
                **{field: arguments.get(field) for field in ("element_id", "direction", "url")},
                "submit": name == "type" or None,  # WebGym's typing always presses Enter
            }
        )
    except ValueError:
        return None


def _parse_time(written: str, source: Path) -> str:
    """Return the time of a file: its recorded timestamp (UTC unless it has a zone), else its modification time."""
    try:
        moment = datetime.fromisoformat(written)
    except ValueError:
        return format_time(source.stat().st_mtime)
    zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return zoned.astimezone(UTC).isoformat(timespec="milliseconds")


WEBGYM = ImportFormat(
    find,
    read,
    "a file like train_trajectories.pt.iteration3, or a folder that holds such files",
    iteration_of=read_iteration,
)


def shorten_path(path: str) -> str:
    """Return the end of a screenshot's path that identifies it: the episode's folder and the file."""
    return "/".join(PurePosixPath(path).parts[-2:])


def read_sent(raw: str, screenshots: Mapping[str, Path]) -> Conversation[Picture] | None:
    """Parse the messages that were sent; None if they are invalid or refer to images of other episodes.

    `screenshots`: those of the episode, by `shorten_path`. Messages stay as they were: none are joined.
    """
    pictures: list[Picture] = []
    messages: list[Message] = []

    try:
        for message in _MESSAGES.validate_python(json.loads(raw)):
            if message.content is None:
                return None
            parts = convert_parts(
                message.content, pictures, lambda url: screenshots[shorten_path(url.removeprefix(_FILE))]
            )
            messages.append(Message.model_validate({"role": message.role, "content": "".join(parts)}))
    except (ValueError, KeyError):
        return None
    is_prompt = bool(messages) and messages[-1].role == "user"
    return Conversation(tuple(messages), tuple(pictures)) if is_prompt else None
