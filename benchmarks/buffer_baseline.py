"""Draws a dataset as WebGym does: unpickles every iteration, builds every sample, then draws.

Takes a job as JSON on stdin. Imports nothing of ours, so that its memory is its own.
"""

from __future__ import annotations

import json
import pickle
import random
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

POWER = 2.0
"""Of the recency bias, by position."""


@dataclass
class WebGymTask:
    """What WebGym keeps of a task."""

    task_name: str
    domain: str
    subdomain: str
    website: str
    difficulty: int
    evaluator_reference: list[str]
    reference_answer: str
    attempt_level: int
    task_id: str
    max_steps: int
    trajectory_index: int


@dataclass
class WebGymObservation:
    """What WebGym keeps of an observation."""

    task: WebGymTask
    image_path: str
    ac_tree: str = ""
    page_metadata: dict[str, Any] = field(default_factory=dict)


@dataclass
class WebGymAction:
    """What WebGym keeps of an action."""

    action: dict[str, Any]
    action_string: str


@dataclass
class WebGymResponse:
    """What WebGym keeps of a response: the whole text of its prompt, too."""

    raw_response: str
    answering_tokens: dict[str, str]
    raw_prompt: str


@dataclass
class WebGymReward:
    """What WebGym keeps of a judgement, with every step."""

    reward: int
    evaluation: list[str]
    is_blocked: bool = False
    submit: bool = False
    submission_judgment: str = ""


def draw(folder: Path, wanted: int, out: Path) -> dict[str, Any]:
    """Write the samples and return what it took."""
    begun = time.monotonic()
    stored: list[list[dict[str, Any]]] = []
    for file in sorted(folder.glob("train_trajectories.pt.iteration*")):
        with file.open("rb") as opened:
            stored += pickle.load(opened)["trajectories"]
    samples = [
        (sample(step), trajectory[-1]["reward"].reward == 1 and not step["same_as_next_screenshot"])
        for trajectory in stored
        for step in trajectory
    ]
    samples = [built for built, trainable in samples if trainable]
    keys = [random.random() ** (1 / (position + 1) ** POWER) for position in range(len(samples))]
    newest = sorted(range(len(samples)), key=keys.__getitem__, reverse=True)[:wanted]
    out.write_text(json.dumps([samples[position] for position in newest], indent=2), encoding="utf-8")
    return {"seconds": time.monotonic() - begun, "peak_mb": peak_mb(), "samples": len(newest), "eligible": len(samples)}


def sample(step: dict[str, Any]) -> dict[str, Any]:
    """Return a step as a conversation, from the prompt that was stored with it."""
    conversation, images, system = [], [], ""
    for message in json.loads(step["response"].raw_prompt):
        text = ""
        for item in message["content"]:
            if item["type"] == "image_url":
                images.append(item["image_url"]["url"].removeprefix("file://"))
                text += "<image>"
            else:
                text += item["text"]
        if message["role"] == "system":
            system = text
        else:
            conversation.append({"from": "human" if message["role"] == "user" else "gpt", "value": text})
    conversation.append({"from": "gpt", "value": step["response"].raw_response})
    return {"conversations": conversation, "system": system, "images": images}


def peak_mb() -> float:
    """Return the largest memory that this program ever held, in MiB: `ru_maxrss` has that of its starter, too."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


def main() -> None:
    """Read a job from stdin, run it and print the figures."""
    job = json.load(sys.stdin)
    print(json.dumps(draw(Path(job["folder"]), job["samples"], Path(job["out"]))))


if __name__ == "__main__":
    main()
