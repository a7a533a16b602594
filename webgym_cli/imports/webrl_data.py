"""WebRL's released data: `web_policy_sft.json` (one conversation per step) and `.pt` files (lists of trajectories).

Both contain each step's whole prompt: the instruction, the earlier responses, and the page of the current round.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from webgym_cli.agent.actions.webrl_actions import parse_webrl_action
from webgym_cli.errors import StoreError
from webgym_cli.imports.pickle_stubs import PickleRefused
from webgym_cli.imports.pickled import read_pickle
from webgym_cli.imports.source import (
    ImportedEpisode,
    ImportedStep,
    ImportFormat,
    NotUnderstood,
    SkippedEpisode,
    compute_digest,
    format_time,
    make_step,
    read_episode,
    to_fields,
    to_number,
    to_text,
    with_stop,
)
from webgym_cli.records.failure import Stop
from webgym_cli.records.task import Split, Task
from webgym_cli.records.trajectory import Outcome, PromptSpec, PromptVersion, Score
from webgym_cli.tasks.registry import find_benchmark
from webgym_cli.util.files import read_json
from webgym_cli.util.optional import when

# Fields of formats whose responses are WebRL's: their pages are texts, and a call may follow other words on its line.
IN_WEBRLS_LANGUAGE: dict[str, Any] = {
    "text": True,
    "action_sets": (PromptVersion.WEBRL, PromptVersion.WEBRL_RELEASED),
    "prompt_options": {"lenient": True},
}
_TASK = "Task Instruction: "
_USER = "<|eot_id|><|start_header_id|>user<|end_header_id|>\n"
_REPLY = "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n"
# Maximum length of history and page together in WebRL's prompts, in characters.
_MAX_CHARACTERS = 15872


def find(path: Path) -> list[Path]:
    """Return the data files at or under a path, by name."""
    if path.is_file():
        return when(path.suffix in (".json", ".pt"), [path])
    return [*sorted(path.glob("web_policy_sft*.json")), *sorted(path.glob("*.pt"))]


def read(source: Path, images: Path | None) -> Iterator[ImportedEpisode | SkippedEpisode]:
    """Yield the episodes of a file. Raises `UsageError`."""
    written = format_time(source.stat().st_mtime)
    episodes = _read_trajectories(source) if source.suffix == ".pt" else _read_conversations(source)
    for number, (score, given) in enumerate(episodes):
        where = f"{source}, trajectory {number}"
        yield read_episode(where, partial(_build_episode, where, given, score, written))


def parse_prompt(text: str) -> tuple[str, tuple[str, ...], str]:
    """Return instruction, earlier responses and page of a WebRL prompt. Raises `NotUnderstood`."""
    first, *rounds = text.removesuffix(_REPLY).split(_REPLY)
    instruction, begun, page = first.partition(f"\n\nRound 0\n\n{_USER}")
    if not begun or not instruction.startswith(_TASK):
        raise NotUnderstood(f"a prompt that does not begin as WebRL's: {text[:80]!r}")
    past: list[str] = []
    for number, part in enumerate(rounds, 1):
        response, begun, page = part.partition(f"\n\nRound {number}\n\n{_USER}")
        if not begun:
            raise NotUnderstood(f"a prompt without its round {number}")
        past.append(response)
    return instruction.removeprefix(_TASK), tuple(past), page.removesuffix("\n\n")


def _read_trajectories(source: Path) -> Iterator[tuple[Score, list[tuple[Any, Any]]]]:
    value = read_pickle(source)
    if not isinstance(value, list) or not all(isinstance(steps, list) for steps in value):
        raise PickleRefused(f"{source}: no list of trajectories (X_filter.pt holds single steps: take X.pt)")
    for steps in value:
        fields = [to_fields(step, "a step") for step in steps]
        last = (fields or [{}])[-1]
        reward = last.get("trajectory_reward", last.get("reward"))
        if isinstance(reward, float) and not math.isfinite(reward):
            raise PickleRefused(f"{source}: a trajectory_reward is {reward}")
        score = Score(source="orm", value=to_number(reward, -1.0), detail="WebRL's trajectory_reward")
        yield score, [(step.get("observation"), step.get("action")) for step in fields]


def _read_conversations(source: Path) -> Iterator[tuple[Score, list[tuple[Any, Any]]]]:
    """Yield score and steps of each episode: conversations of consecutive rounds. Raises `PickleRefused`."""
    try:
        value = read_json(source)
        turns = [[turn["value"] for turn in record["conversations"]] for record in value]
        pairs = [(prompt, response) for prompt, response in turns]
    except (StoreError, KeyError, TypeError, ValueError) as error:
        raise PickleRefused(f"{source}: no list of conversations with a prompt and a response: {error}") from None
    score = Score(source="environment", value=1.0, detail="a demonstration of WebRL's")
    episode: list[tuple[Any, Any]] = []
    for prompt, response in pairs:
        if episode and f"\n\nRound 1\n\n{_USER}" not in to_text(prompt):
            yield score, episode
            episode = []
        episode.append((prompt, response))
    if episode:
        yield score, episode


def _build_episode(where: str, given: list[tuple[Any, Any]], score: Score, written: str) -> ImportedEpisode:
    """Build a text-only episode from prompts and responses. Raises `NotUnderstood` if a round is missing."""
    instruction, steps, responses = "", list[ImportedStep](), list[str]()
    for number, (prompt, response) in enumerate(given):
        task, past, page = parse_prompt(to_text(prompt))
        instruction = instruction if number else task
        if task != instruction or [text.strip() for text in past] != responses:
            raise NotUnderstood(f"step {number} does not follow the steps before it")
        text = to_text(response).removesuffix("<|eot_id|>")
        steps.append(make_step(text, parse_webrl_action(text, lenient=True), html=page))
        responses.append(text.strip())
    if not steps:
        raise NotUnderstood("no step")
    if score.value < 0:
        raise NotUnderstood("no reward")
    imported = tuple(steps)
    outcome = Outcome(reward=score.value, scores=(score,))
    return ImportedEpisode(
        where=where,
        digest=compute_digest(instruction, [(step.html, step.response) for step in steps], score.value),
        task=Task(
            id=compute_digest(instruction)[:16],
            instruction=instruction,
            environment=find_benchmark("webrl").name,
            extra={"generated": True},
        ),
        policy="webrl",
        prompt=PromptSpec(version=PromptVersion.WEBRL, options={"lenient": True, "max_characters": _MAX_CHARACTERS}),
        steps=imported,
        outcome=with_stop(outcome, imported, Stop.STEP_LIMIT),
        started_at=written,
        split=Split.TRAIN,
    )


# Files released by WebRL's authors, and output of its process_data.py.
WEBRL_DATA = ImportFormat(
    find,
    read,
    "web_policy_sft.json, or .pt files of trajectories as process_data.py writes them",
    Split.TRAIN,
    suffixes=(".json", ".pt"),
    **IN_WEBRLS_LANGUAGE,
)
