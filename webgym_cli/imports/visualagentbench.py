"""Episodes of VisualAgentBench, and of WebRL's rollouts, which use it: traces, actions and screenshots."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from webgym_cli.agent.actions.webrl_actions import parse_webrl_action
from webgym_cli.errors import StoreError, UsageError
from webgym_cli.imports.calls import convert_call, convert_line
from webgym_cli.imports.files import load_size
from webgym_cli.imports.source import (
    ImportedEpisode,
    ImportedStep,
    ImportFormat,
    NotUnderstood,
    SkippedEpisode,
    Unfinished,
    compute_digest,
    format_time,
    make_step,
    parse_response,
    read_episode,
    to_number,
    to_text,
    with_stop,
)
from webgym_cli.imports.webrl_data import IN_WEBRLS_LANGUAGE
from webgym_cli.records.action import InteractionMode
from webgym_cli.records.failure import Stop
from webgym_cli.records.task import Split, Task
from webgym_cli.records.trajectory import Outcome, PromptSpec, Score
from webgym_cli.tasks.registry import find_benchmark
from webgym_cli.util.files import read_json, read_jsonl
from webgym_cli.util.json_values import as_object
from webgym_cli.util.optional import known_or, when

FRAMED = (
    "its screenshots have a green frame around the element that was chosen: a policy trained on them looks for the "
    "frame. They go to the test split, which is never trained on, unless --split says otherwise"
)
OF_TESTS = "they go to the train split; results on test tasks, such as WebArena-Lite's, need --split test"
_URL = re.compile(r"<h3 class='url'><a href=[^>]*>URL: (.*?)</a>")
# Beginning of the action with which the driver stops an episode early.
_FORCED = "stop [Early stop: "


def find_actions(path: Path) -> list[Path]:
    """Return the episodes' action files under a path."""
    return sorted(path.rglob("actions/*.json"))


def find_traces(path: Path) -> list[Path]:
    """Return WebRL's trace files at or under a path, preferably those labelled by its reward model."""
    if path.is_file():
        return when(path.suffix == ".jsonl", [path])
    # Labelled traces replace unlabelled ones of the same task.
    traces = {(file.parent.parent, file.name): file for file in path.rglob("traces/*.jsonl")}
    return sorted((traces | {(f.parent.parent, f.name): f for f in path.rglob("fixed_traces/*.jsonl")}).values())


def read(source: Path, images: Path | None, *, text: bool = False) -> Iterator[ImportedEpisode | SkippedEpisode]:
    """Yield the episode of an action or trace file. Raises `UsageError`.

    `text`: its steps have the pages of the trace and WebRL's actions, instead of screenshots and coordinates.
    """
    episode = _RecordedEpisode(source.parent.parent, source.stem, text)
    yield read_episode(str(source), lambda: episode.to_imported(images))


@dataclass(frozen=True, slots=True)
class _RecordedEpisode:
    root: Path
    """Folder of the results."""
    name: str
    """The task's number, which is the name of all its files."""
    text: bool
    """See `read`."""

    def to_imported(self, images: Path | None) -> ImportedEpisode:
        """Convert the episode. Raises `NotUnderstood`, `Unfinished`, `UsageError`."""
        lines, value = self._read_trace(), _read_object(self.root / "actions" / f"{self.name}.json")
        listed = value.get("actions")
        actions = [to_text(action) for action in listed] if isinstance(listed, list) else []
        if self.text and not all(to_text(line.get("html")) for line in lines or [{}]):
            raise NotUnderstood(f"traces/{self.name}.jsonl, which has the text of its pages, is missing or lacks some")
        score = self._read_score(lines, value.get("score"))
        in_trace = [to_text(line.get("fixed_response")) or to_text(line.get("response")) for line in lines]
        responses = in_trace or actions
        # The driver appends an action of its own if it stops the episode early.
        forced = bool(responses) and (not responses[-1].strip() or responses[-1].startswith(_FORCED))
        responses = responses[: len(responses) - forced]
        intent, start, urls = self._read_page()
        # do(...) and exit(...) are WebRL's actions, which refer to HTML elements; others refer to numbered boxes.
        by_call = bool(lines) or any("do(" in action or "exit(" in action for action in actions)
        mode = InteractionMode.COORDINATES if by_call else InteractionMode.SET_OF_MARKS
        task = self._build_task(next((to_text(line.get("target")) for line in lines), "") or intent, start)
        # VisualAgentBench's spelling.
        folder = (images or self.root / "screehshots") / self.name
        steps = tuple(
            _read_step(
                None if self.text else folder / f"{number}.png",
                response,
                lines[number] if lines else {},
                mode,
                "".join(urls[number : number + 1]),
            )
            for number, response in enumerate(responses)
        )
        if not steps:
            raise NotUnderstood("no step was answered")
        outcome = Outcome(reward=score.value, scores=(score,))
        return ImportedEpisode(
            where=str(self.root / self.name),
            digest=compute_digest(task.key, responses, [line.get("html") for line in lines], score.value),
            task=task,
            policy=to_text(_read_object(self.root / "config.json").get("model")) or "visualagentbench",
            prompt=PromptSpec(interaction_mode=mode),
            steps=steps,
            outcome=with_stop(outcome, steps, Stop.STEP_LIMIT if forced else Stop.TERMINATED),
            started_at=self._read_time(),
            split=Split.TRAIN if self.text else Split.TEST,
            lost_steps=int(forced),
        )

    def _read_trace(self) -> list[dict[str, Any]]:
        files = [self.root / folder / f"{self.name}.jsonl" for folder in ("fixed_traces", "traces")]
        for file in filter(Path.is_file, files):
            try:
                lines = list(read_jsonl(file))
            except (StoreError, OSError, UnicodeDecodeError) as error:
                raise UsageError(f"{file}: can't be read: {error}") from None
            if not all(isinstance(line, dict) for line in lines):
                raise NotUnderstood(f"{file}: not one object a line")
            return lines
        return []

    def _read_score(self, lines: list[dict[str, Any]], facts: Any) -> Score:
        """Return the reward model's label of the trace, else the score of the environment's evaluator."""
        # The label of the reward model is newer than the score of the rollout.
        labelled = next((line["score"] for line in lines if "fixed_response" in line and "score" in line), None)
        value = to_number(known_or(labelled, facts), -1.0)
        if value < 0:
            raise Unfinished("its actions were never scored")
        if labelled is None:
            return Score(source="environment", value=value, detail="VisualAgentBench's evaluator")
        return Score(source="orm", value=value, detail="WebRL's label in fixed_traces")

    def _read_page(self) -> tuple[str, str, list[str]]:
        """Return intent, start URL and each step's URL from the rendered page; empty without it."""
        file = self.root / f"render_{self.name}.html"
        text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
        head = text.partition("</pre>")[0]
        facts = {key: value for key, value in re.findall(r"^(?:.*<pre>)?(\w+): (.*)$", head, re.MULTILINE)}
        return facts.get("intent", ""), facts.get("start_url", ""), [html.unescape(url) for url in _URL.findall(text)]

    def _build_task(self, intent: str, start: str) -> Task:
        if not intent:
            raise NotUnderstood(f"neither its trace nor render_{self.name}.html tells what was asked")
        environment = find_benchmark("visualagentbench").name
        return Task(id=self.name, instruction=intent, start_url=start, environment=environment)

    def _read_time(self) -> str:
        files = [self.root / "actions" / f"{self.name}.json", self.root / "traces" / f"{self.name}.jsonl", self.root]
        seconds = next(file for file in files if file.exists()).stat().st_mtime
        return format_time(seconds)


def _read_object(file: Path) -> dict[str, Any]:
    try:
        value = read_json(file) if file.is_file() else {}
    except StoreError as error:
        raise UsageError(str(error)) from None
    return as_object(value)


def _read_step(
    picture: Path | None, response: str, line: dict[str, Any], mode: InteractionMode, url: str
) -> ImportedStep:
    """Read a step; without a picture, one with a text page."""
    if picture is None:
        page = to_text(line.get("html"))
        step = make_step(response, parse_webrl_action(response, lenient=True), html=page)
        return replace(step, url=url)
    if mode is InteractionMode.COORDINATES:
        action = convert_call(response, to_text(line.get("html")), *load_size(picture))
    else:
        action = convert_line(response)
    parsed = parse_response(response, mode, known_action=action)
    prompt = json.dumps([line.get("prompt"), line.get("html")]) if line else ""
    return replace(parsed, picture=picture, url=url, prompt=prompt)


def _with_text(form: ImportFormat) -> ImportFormat:
    """Return a format with a form for policies that read pages as text."""
    text = replace(form, read=partial(read, text=True), split=Split.TRAIN, caution=OF_TESTS, **IN_WEBRLS_LANGUAGE)
    return replace(form, for_policy=lambda prompt: text if prompt.version in text.action_sets else form)


# VisualAgentBench's results on WebArena-Lite, with either action set.
VISUALAGENTBENCH = _with_text(
    ImportFormat(find_actions, read, "a folder of results with actions/ and screehshots/", Split.TEST, FRAMED)
)
WEBRL = _with_text(
    ImportFormat(
        find_traces,
        read,
        "a folder of a rollout with traces/ or fixed_traces/",
        Split.TEST,
        FRAMED,
        suffixes=(".jsonl",),
        otherwise="webrl-data",
    )
)
