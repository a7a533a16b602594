"""Draws a dataset as WebGym does: unpickles every iteration, builds every sample, then draws.

Takes a job as JSON on stdin. Imports nothing of ours, so that its memory is its own.
"""

from __future__ import annotations

import json
import pickle
import random
import resource
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WINDOW = 4
"""Earlier rounds of a sample."""
POWER = 2.0
"""Of the recency bias, by position."""


@dataclass
class WebGymTask:
    """What WebGym keeps of a task."""

    task_name: str
    website: str
    difficulty: int


@dataclass
class WebGymObservation:
    """What WebGym keeps of an observation."""

    task: WebGymTask
    image_path: str
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
    raw_prompt: str


def draw(folder: Path, wanted: int, out: Path) -> dict[str, Any]:
    """Write the samples and return what it took."""
    begun = time.monotonic()
    stored: list[list[dict[str, Any]]] = []
    for file in sorted(folder.glob("train_trajectories.pt.iteration*")):
        with file.open("rb") as opened:
            stored += pickle.load(opened)["trajectories"]
    samples = []
    for trajectory in stored:
        if trajectory[-1]["reward"] != 1.0:
            continue
        for index, step in enumerate(trajectory):
            if step["changed"] is not False:
                samples.append(sample(trajectory, index))
    keys = [random.random() ** (1 / (position + 1) ** POWER) for position in range(len(samples))]
    newest = sorted(range(len(samples)), key=keys.__getitem__, reverse=True)[:wanted]
    out.write_text(json.dumps([samples[position] for position in newest], indent=2), encoding="utf-8")
    return {
        "seconds": time.monotonic() - begun,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "samples": len(newest),
        "eligible": len(samples),
    }


def sample(trajectory: list[dict[str, Any]], index: int) -> dict[str, Any]:
    """Return a step as a conversation with its earlier rounds."""
    conversation, images = [], []
    for step in trajectory[max(0, index - WINDOW) : index + 1]:
        seen = step["observation"]
        told = f"<image>\nTask: {seen.task.task_name}\nAddress: {seen.page_metadata['url']}"
        conversation.append({"from": "human", "value": told})
        conversation.append({"from": "gpt", "value": step["response"].raw_response})
        images.append(seen.image_path)
    return {"conversations": conversation, "system": trajectory[index]["response"].raw_prompt, "images": images}


def main() -> None:
    """Read a job from stdin, run it and print the figures."""
    job = json.load(sys.stdin)
    print(json.dumps(draw(Path(job["folder"]), job["samples"], Path(job["out"]))))


if __name__ == "__main__":
    main()
