"""Results of AgentLab and BrowserGym: one folder per episode, with a gzipped pickle and a screenshot per step."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from webgym_cli.agent.web_actions import BASIC, FULL
from webgym_cli.imports.agentlab_actions import convert_action
from webgym_cli.imports.arrays import NUMPY, Array
from webgym_cli.imports.containers import read_pickle
from webgym_cli.imports.pickle_stubs import AllowedNames, PickleRefused, Stub
from webgym_cli.imports.pictures import load_size
from webgym_cli.imports.source import (
    ImportedEpisode,
    ImportedStep,
    ImportFormat,
    NotUnderstood,
    SkippedEpisode,
    Unfinished,
    compute_digest,
    format_time,
    parse_response,
    read_episode,
    to_fields,
    to_number,
    to_plain,
    to_text,
    with_stop,
)
from webgym_cli.records.action import Action, InteractionMode
from webgym_cli.records.failure import FailureKind, Stop
from webgym_cli.records.task import Task
from webgym_cli.records.trajectory import Outcome, PromptSpec, PromptVersion, Score
from webgym_cli.tasks.registry import find_benchmark

# All classes of their packages, because each agent has its own, and numpy's arrays.
RESULTS = AllowedNames(packages=("agentlab", "browsergym", "bgym"), makers=NUMPY)
_STEP = re.compile(r"step_(\d+)\.pkl\.gz$")
# Folder names: date, agent, task and seed.
_FOLDER = re.compile(r"_on_(?P<task>.+)_(?P<seed>\d+)(?:_\d+)?$")


def find(path: Path) -> list[Path]:
    """Return the folders of the episodes at or under a path."""
    if not path.is_dir():
        return []
    return sorted({file.parent for name in ("step_*.pkl.gz", "exp_args.pkl") for file in path.rglob(name)})


def read(source: Path, images: Path | None) -> Iterator[ImportedEpisode | SkippedEpisode]:
    """Yield the episode of a folder. Raises `PickleRefused`."""
    yield read_episode(str(source), lambda: _read_episode(source, (images / source.name) if images else source))


def _read_summary(source: Path) -> dict[str, Any]:
    file = source / "summary_info.json"
    try:
        value = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None
    except (OSError, ValueError) as error:
        raise PickleRefused(f"{file}: can't be read: {error}") from None
    summary = value if isinstance(value, dict) else {}
    # AgentLab writes the summary at the end; without it, the episode is still running or was killed.
    if not (summary.get("terminated") or summary.get("truncated") or summary.get("err_msg")):
        raise Unfinished("its summary_info.json does not tell of an end")
    return summary


def _read_episode(source: Path, pictures: Path) -> ImportedEpisode:
    summary = _read_summary(source)
    name, seed, policy = _read_identity(source)
    records = [to_fields(read_pickle(file, RESULTS), "a step") for file in _list_steps(source)]
    observed = [(number, record) for number, record in enumerate(records) if isinstance(record.get("obs"), Stub | dict)]
    first = to_fields(observed[0][1]["obs"], "an observation") if observed else {}
    task = _build_task(name, _read_goal(source, first), to_text(first.get("url")))
    answered = [(number, record) for number, record in observed if _read_reply(record)]
    steps = tuple(_read_step(pictures, number, record) for number, record in answered)
    outcome = _read_outcome(summary, steps)
    content = [[step.response, step.url] for step in steps]
    last = to_fields(records[-1].get("profiling"), "its times") if records and records[-1].get("profiling") else {}
    start = to_fields(records[0].get("profiling"), "its times") if records and records[0].get("profiling") else {}
    started = to_number(start.get("env_start"))
    return ImportedEpisode(
        where=str(source),
        digest=compute_digest(task.key, seed, policy, content, outcome.model_dump(mode="json")),
        task=task,
        policy=policy,
        prompt=PromptSpec(version=_choose_version(steps), interaction_mode=InteractionMode.COORDINATES),
        steps=steps,
        outcome=outcome,
        started_at=format_time(started or source.stat().st_mtime),
        seed=seed,
        seconds=max(0.0, to_number(last.get("env_stop")) - started) if started else 0.0,
        lost_steps=len(records) - len(answered),
    )


def _choose_version(steps: tuple[ImportedStep, ...]) -> str:
    """Return the basic prompt version if it has all actions of an episode, else the full one."""
    try:
        for step in steps:
            if isinstance(step.action, Action):
                BASIC.write(step.action, InteractionMode.COORDINATES)
    except ValueError:
        return "full_vanilla"
    return PromptVersion.VANILLA


def _list_steps(source: Path) -> list[Path]:
    """Return the step files in order. Raises `NotUnderstood` for a gap."""
    numbers = {int(match[1]): file for file in source.glob("step_*.pkl.gz") if (match := _STEP.search(file.name))}
    # A gap is a lost file: the history after it would differ from the agent's.
    if sorted(numbers) != list(range(len(numbers))):
        raise NotUnderstood(f"a step is missing: there are {sorted(numbers)}")
    return [numbers[number] for number in sorted(numbers)]


def _read_identity(source: Path) -> tuple[str, int, str]:
    """Return the task's name, its seed and the agent's name from exp_args.pkl, else from the folder's name."""
    file = source / "exp_args.pkl"
    try:
        arguments = to_fields(read_pickle(file, RESULTS), "its arguments") if file.is_file() else {}
        task_args = to_fields(arguments.get("env_args"), "the task's arguments")
        agent = to_fields(arguments.get("agent_args"), "the agent's arguments")
        name = to_text(task_args.get("task_name"))
        return name, int(to_number(task_args.get("task_seed"))), to_text(agent.get("agent_name")) or "agentlab"
    # exp_args.pkl may contain classes of a custom agent, which are refused; the folder's name has the same data.
    except (PickleRefused, NotUnderstood) as error:
        if not (match := _FOLDER.search(source.name)):
            raise NotUnderstood(f"neither exp_args.pkl nor the folder's name tells the task: {error}") from None
        return match["task"], int(match["seed"]), "agentlab"


def _read_goal(source: Path, first: dict[str, Any]) -> str:
    """Return the instruction: the text parts of the goal, from the first step or goal_object.pkl.gz."""
    goal = first.get("goal_object")
    file = source / "goal_object.pkl.gz"
    if not goal and file.is_file():
        goal = read_pickle(file, RESULTS)
    return _join_content(goal) or to_text(first.get("goal"))


def _build_task(name: str, goal: str, url: str) -> Task:
    if not name or not goal:
        raise NotUnderstood("the task has no name or no goal")
    family, _, page = name.partition(".")
    source = find_benchmark(family)
    return Task(
        id=page if source.has_named_pages else name,
        instruction=goal,
        start_url=f"{page}.html" if source.has_named_pages else url,
        environment=source.name,
        extra={"browsergym_task": name},
    )


def _read_reply(record: dict[str, Any]) -> str:
    """Return the agent's response: its model's last message, else its thought and action."""
    agent_info = record.get("agent_info")
    info = to_fields(agent_info, "the agent's words") if isinstance(agent_info, Stub | dict) else {}
    chat = info.get("chat_messages")
    messages = chat.get("messages") if isinstance(chat, Stub) and not chat.elements else chat
    messages = messages.elements if isinstance(messages, Stub) else messages
    # The last answer counts; earlier ones could not be parsed and were retried.
    for message in reversed(messages if isinstance(messages, list | tuple) else []):
        parsed = to_fields(message, "a message") if isinstance(message, Stub | dict) else {}
        if parsed.get("role") == "assistant" and (text := _join_content(parsed.get("content"))):
            return text
    action = to_text(record.get("action"))
    return "\n".join(filter(None, (to_text(info.get("think")), action))) if action else ""


def _join_content(content: Any) -> str:
    if isinstance(content, list | tuple):
        parts = [to_fields(part, "a part") for part in content if isinstance(part, Stub | dict)]
        return "\n".join(filter(None, (to_text(part.get("text")) for part in parts)))
    return to_text(content)


def _read_step(folder: Path, number: int, record: dict[str, Any]) -> ImportedStep:
    obs = to_fields(record["obs"], "an observation")
    picture = _find_picture(folder, number, obs.get("screenshot"))
    width, height = load_size(picture)
    action = convert_action(to_text(record.get("action")), obs.get("extra_element_properties"), width, height)
    parsed = parse_response(_read_reply(record), InteractionMode.COORDINATES, known_action=action, actions=FULL)
    titles, active = obs.get("open_pages_titles"), obs.get("active_page_index")
    at = int(active.numbers()[0]) if isinstance(active, Array) and active.shape == (1,) else 0
    title = titles[at] if isinstance(titles, list | tuple) and 0 <= at < len(titles) else ""
    stats = to_plain(record.get("stats")) if isinstance(record.get("stats"), dict) else {}
    return replace(
        parsed,
        picture=picture,
        url=to_text(obs.get("url")),
        title=to_text(title),
        policy_seconds=max(0.0, to_number(stats.get("agent_elapsed"))),
        environment_seconds=max(0.0, to_number(stats.get("step_elapsed"))),
    )


def _find_picture(folder: Path, number: int, inside: Any) -> Path | Array:
    if isinstance(inside, Array):
        return inside
    files = [folder / f"screenshot_step_{number}.{ending}" for ending in ("png", "jpg")]
    return next((file for file in files if file.is_file()), files[0])


def _read_outcome(summary: dict[str, Any], steps: tuple[ImportedStep, ...]) -> Outcome:
    """Return the outcome. An error of the agent or the browser is a failure, whatever the recorded reward."""
    if error := to_text(summary.get("err_msg")):
        return Outcome(failure=FailureKind.ENVIRONMENT_ERROR, failure_detail=error[:500])
    if not steps:
        # Without an answered step there is nothing to score, whatever the summary contains.
        return Outcome(failure=FailureKind.CANCELLED, failure_detail="it has no step that the agent answered")
    given = summary.get("cum_reward")
    if isinstance(given, float) and not math.isfinite(given):
        return Outcome(failure=FailureKind.ENVIRONMENT_ERROR, failure_detail=f"its cum_reward is {given}")
    value = to_number(given)
    score = Score(source="environment", value=value, detail="cum_reward of summary_info.json")
    outcome = Outcome(reward=value, scores=(score,))
    return with_stop(outcome, steps, Stop.TERMINATED if summary.get("terminated") else Stop.STEP_LIMIT)


AGENTLAB = ImportFormat(find, read, "folders with step_0.pkl.gz, exp_args.pkl and summary_info.json")
