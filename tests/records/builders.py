"""Records for tests, made by hand: small, valid, each part replaceable."""

import hashlib
import struct
import zlib
from pathlib import Path
from typing import Any

from webgym_cli.agent.forms.tools import render_web_action
from webgym_cli.agent.prompt import render
from webgym_cli.config.load import load
from webgym_cli.config.model import Settings
from webgym_cli.records.action import Action, ActionName, InteractionMode
from webgym_cli.records.checkpoint import Checkpoint
from webgym_cli.records.failure import FailureKind, Stop
from webgym_cli.records.task import Split, Task
from webgym_cli.records.trajectory import Generation, Observation, Outcome, PromptSpec, Screenshot, Step, Trajectory
from webgym_cli.store.checkpoints import publish
from webgym_cli.store.run import RunDir, create_or_open
from webgym_cli.store.screenshots import ScreenshotStore

CLICK = Action(name=ActionName.CLICK, coordinate=(10, 20))
SOLVED = Outcome(reward=1.0, stop=Stop.TERMINATED)
UNSOLVED = Outcome(reward=0.0, stop=Stop.STEP_LIMIT)
CRASHED = Outcome(failure=FailureKind.BROWSER_CRASHED, failure_detail="gone")


def new_run(root: Path, settings: Settings | None = None) -> RunDir:
    """Make a run with these settings, else with the usual ones."""
    run = RunDir(root)
    create_or_open(run, settings or load())
    return run


def png(shade: int = 0, width: int = 40, height: int = 32) -> bytes:
    """Return a grey PNG image of one shade."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + bytes([shade]) * width) * height
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def shot(shade: int = 0, width: int = 40, height: int = 32) -> Screenshot:
    """Return the reference of `png`'s image, stored or not."""
    return Screenshot(sha256=hashlib.sha256(png(shade, width, height)).hexdigest(), width=width, height=height)


def step(index: int = 0, **changes: Any) -> Step:
    """Return a step that clicked, and after which the page changed."""
    values = {
        "index": index,
        "observation": Observation(url="http://a/", title=f"Page {index}", screenshot=shot(index)),
        "response": render_web_action(CLICK, InteractionMode.COORDINATES),
        "action": CLICK,
        "prompt_digest": "0" * 64,
        "page_changed": True,
        "generation": Generation(),
    }
    return Step.model_validate({**values, **changes})


def trajectory(
    number: int = 0, *, iteration: int = 0, steps: int | tuple[Step, ...] = 2, outcome: Outcome = SOLVED, **changes: Any
) -> Trajectory:
    """Return a trajectory of so many steps, or of these; a solved one unless the outcome says otherwise."""
    split = changes.get("split", Split.TRAIN)
    name = f"{split}-{iteration:04d}-{number:05d}"
    values = {
        "id": name,
        "episode": name,
        "split": split,
        "iteration": iteration,
        "task": Task(id="click-test"),
        "instruction": "Click the button.",
        "seed": number,
        "policy": "oracle",
        "prompt": PromptSpec(),
        "steps": tuple(map(step, range(steps))) if isinstance(steps, int) else steps,
        "outcome": outcome,
        "started_at": "2026-01-02T03:04:05.000+00:00",
        "seconds": 1.5,
    }
    return Trajectory.model_validate({**values, **changes})


def checkpoint(version: int = 1, **changes: Any) -> Checkpoint:
    """Return the record of a checkpoint that so many trainings lie behind."""
    values = {
        "name": f"model_202601{version:02d}_000000",
        "version": version,
        "iteration": version - 1,
        "parent": "base",
        "data_digest": "0" * 64,
        "resumable": False,
        "steps": 1,
        "created_at": "2026-01-02T03:04:05.000+00:00",
    }
    return Checkpoint.model_validate({**values, **changes})


def published(run: RunDir, settings: Settings, version: int = 1, **changes: Any) -> Checkpoint:
    """Make a folder, which tells the version in place of weights, the run's policy; return its record."""
    saved = checkpoint(version, **changes)
    weights = run.checkpoints / f"{saved.name}.partial"
    weights.mkdir(parents=True)
    (weights / "weights").write_text(str(version))
    publish(run, settings, weights, saved)
    return saved


def digested(episode: Trajectory) -> Trajectory:
    """Return the trajectory with the digests that its prompts have."""
    steps: list[Step] = []
    for item in episode.steps:
        prompt = render(episode.prompt, episode.instruction, episode.task.start_url, steps, item.observation)
        steps.append(item.model_copy(update={"prompt_digest": prompt.digest}))
    return episode.model_copy(update={"steps": tuple(steps)})


def store_images(run: RunDir, episode: Trajectory) -> None:
    """Store the images that `shot` gave the trajectory's first steps."""
    for item in episode.steps:
        picture = item.observation.screenshot
        kept = ScreenshotStore(run.screenshots).put(png(item.index, picture.width, picture.height))
        assert kept == picture
