"""Export formats in the layouts of official scorers. A folder an episode."""

from __future__ import annotations

import io
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from PIL import Image

from webgym_cli.agent.forms.tools import describe_action
from webgym_cli.errors import UsageError
from webgym_cli.prepare.export.options import ExportObjective, ExportUnit
from webgym_cli.prepare.export.outputs import ExportOutput
from webgym_cli.prepare.export.registry import export_format
from webgym_cli.prepare.sft.convert import Example
from webgym_cli.records.action import Action
from webgym_cli.records.trajectory import ENDS, Step, Trajectory
from webgym_cli.store.outputs import EXPORTED_EPISODES
from webgym_cli.store.screenshots import PNG_SIGNATURE
from webgym_cli.util.files import write_atomic, write_json

_LAYOUT: dict[str, Any] = {
    "file_name": None,
    "unit": ExportUnit.TRAJECTORY,
    "objectives": frozenset({ExportObjective.SFT}),
}


@export_format("online-mind2web", **_LAYOUT)
def write_om2w(examples: Iterator[Example], output: ExportOutput) -> None:
    """Online-Mind2Web's schema 2: `result.json` and `trajectory/` an episode."""
    for folder, trajectory in _name_folders(examples, output, re.compile(r"[^A-Za-z0-9_-]"), "{}"):
        shots = _write_shots(trajectory, output, folder / "trajectory", lambda step: f"{step.index:04d}.png")
        write_json(folder / "result.json", _build_result(trajectory, shots, folder.name))


@export_format("webvoyager", **_LAYOUT)
def write_webvoyager(examples: Iterator[Example], output: ExportOutput) -> None:
    """WebVoyager's results: `interact_messages.json` and `screenshotN.png` an episode."""
    # Its names of tasks have spaces: BBC News--3.
    for folder, trajectory in _name_folders(examples, output, re.compile(r"[^A-Za-z0-9_ -]"), "task{}"):
        _write_shots(trajectory, output, folder, lambda step: f"screenshot{step.index + 1}.png")
        start = trajectory.task.start_url
        task = (
            f"Now given a task: {_collapse(trajectory.instruction)}  Please interact with {start} and get the answer."
        )
        messages = [{"role": "system", "content": "webgym"}, {"role": "user", "content": task}]
        for step in trajectory.steps:
            if step.index:
                messages.append({"role": "user", "content": f"Observation: screenshot{step.index + 1}.png"})
            messages.append({"role": "assistant", "content": step.response})
        # The scorer reads the answer from the last message, up to the first bracket; without an answer nothing in a
        # response may look like one.
        answer = _collapse(trajectory.outcome.answer or "").translate(str.maketrans("[]", "()"))
        last = f"Action: ANSWER; [{answer}]" if answer else "The episode ended without an answer."
        messages.append({"role": "assistant", "content": last})
        write_json(folder / "interact_messages.json", messages)


@export_format("webarena-verified", **_LAYOUT)
def write_webarena_verified(examples: Iterator[Example], output: ExportOutput) -> None:
    """webarena-verified's runs: `agent_response.json`, `network.har` and `run_config.json` an episode."""
    for folder, trajectory in _name_folders(examples, output, re.compile(r"\D"), "{}"):
        task, har = trajectory.task, output.run.har / f"{trajectory.id}.har"
        if "verified" not in task.extra:
            raise UsageError(
                f"task {task.id} is none of webarena-verified", hint="webgym tasks convert --format webarena"
            )
        if not har.is_file():
            raise UsageError(f"{har}: the requests were not recorded", hint="webgym rollout -s browser.record_har=true")
        write_atomic(folder / "agent_response.json", trajectory.outcome.answer or "")
        write_json(folder / "run_config.json", task.extra["verified"])
        shutil.copyfile(har, folder / "network.har")


def _name_folders(
    examples: Iterator[Example], output: ExportOutput, refused: re.Pattern[str], form: str
) -> Iterator[tuple[Path, Trajectory]]:
    """Yield each episode with its folder: the scorers read one episode a task, so the n-th of a task is in `n/`.

    At the end, write which episode is in which folder.
    """
    counts: Counter[str] = Counter()
    episodes: dict[str, dict[str, str]] = {}
    for example in examples:
        if (trajectory := example.trajectory) is not None:
            name = form.format(refused.sub("_", trajectory.task.id))
            counts[name.casefold()] += 1
            folder = f"{counts[name.casefold()]}/{name}"
            # ids are alike in all runs, times are not
            episodes[folder] = {"trajectory": trajectory.id, "started_at": str(trajectory.started_at)}
            yield output.folder / folder, trajectory
    write_json(output.folder / EXPORTED_EPISODES, episodes)


def _write_shots(
    trajectory: Trajectory, output: ExportOutput, folder: Path, name: Callable[[Step], str]
) -> dict[int, str]:
    """Write the screenshots as PNG, and return their names by step."""
    folder.mkdir(parents=True)
    names = {}
    for step in trajectory.steps:
        if (shot := step.observation.screenshot) is not None:
            names[step.index] = name(step)
            (folder / names[step.index]).write_bytes(_to_png(output.image_bytes(shot.sha256)))
    return names


def _to_png(content: bytes) -> bytes:
    if content.startswith(PNG_SIGNATURE):
        return content
    png = io.BytesIO()
    Image.open(io.BytesIO(content)).save(png, "PNG")
    return png.getvalue()


def _build_result(trajectory: Trajectory, shots: dict[int, str], name: str) -> dict[str, Any]:
    """Return the result, whose last entry the scorer takes for the answer and leaves out of the actions."""
    answer = (trajectory.outcome.answer or "").strip()
    shown = [step for step in trajectory.steps if step.index in shots]
    answering = trajectory.answering
    entries = []
    for step in shown:
        if step.action is not None and step.action.name not in ENDS and step is not answering:
            action, status = _describe(step), None
            if step.action_error is not None:
                action, status = f"{action} | FAILED", "FAILED"
            entries.append(_build_entry(step, shots) | {"action": action, "action_status": status})
    for step in shown[-1:]:
        end = {"action": f"TASK_COMPLETE -> ANSWER: {_collapse(answer)}", "action_status": None}
        entries.append(_build_entry(step, shots) | end)
    return {
        "schema_version": "online-mind2web-v2",
        "task": trajectory.instruction,
        "task_id": name,
        "agent_final_answer": answer or None,
        "reference_length": trajectory.task.extra.get("reference_length"),
        "action_history": [{"step": number, **entry} for number, entry in enumerate(entries)],
    }


def _build_entry(step: Step, shots: dict[int, str]) -> dict[str, Any]:
    return {"screenshot": shots[step.index], "url": step.observation.url, "thought": step.response}


def _describe(step: Step) -> str:
    """Return an action in words, with the name of its element, since a number says nothing without the marks."""
    assert step.action is not None, "steps without an action are left out"
    text = describe_action(step.action)
    number = step.action.element_id if isinstance(step.action, Action) else None
    element = next((one for one in step.observation.elements if one.id == number), None)
    return f'{element.role} "{element.name}" -> {text}' if element else text


def _collapse(text: str) -> str:
    """Return a text on one line: the scorers' patterns end at the end of a line."""
    return " ".join(text.split())
