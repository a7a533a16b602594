"""Fills a run with made-up trajectories, and writes the very same ones as WebGym stores them: a pickle an iteration.

A step is a click on a page of 1280x768: a reply to the prompt `complete` (WebGym's default) with the ids and
log-probabilities of 180 tokens, one of a pool of screenshots, an address. A third of the trajectories succeeded. All
is decided by the trajectory's number.
"""

from __future__ import annotations

import json
import pickle
import random
import shutil
import zlib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

from benchmarks.buffer_baseline import WebGymAction, WebGymObservation, WebGymResponse, WebGymReward, WebGymTask
from webgym_cli.agent.forms.tools import render_web_action
from webgym_cli.agent.prompt import Prompt, render_step
from webgym_cli.config.load import load
from webgym_cli.config.model import Settings
from webgym_cli.records.action import Action, ActionName, InteractionMode
from webgym_cli.records.checkpoint import Checkpoint
from webgym_cli.records.sample import IMAGE
from webgym_cli.records.task import Split, Task
from webgym_cli.records.trajectory import (
    Generation,
    Observation,
    Outcome,
    PromptSpec,
    PromptVersion,
    Screenshot,
    Step,
    Trajectory,
)
from webgym_cli.store.checkpoints import publish
from webgym_cli.store.run import RunDir, create_or_open
from webgym_cli.store.screenshots import ScreenshotStore

ITERATIONS = 4
"""All of them are read by `prepare`: nothing is spared by looking at the newest only."""
STEPS = 10
"""Steps of a trajectory."""
SETTINGS = {
    "algorithm_config.bf16": "false",
    "algorithm_config.report_to": "none",
    "algorithm_config.filter_retokenized": "false",  # the ids are made up
}
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_SITES = 400
_TASKS = 5000
_PICTURES = 1000
_SIZE = (1280, 768)
_TOKENS = 180
"""Of a response."""
_NOTE = "Article {number} costs {price} and is delivered within {days} days, says its page."


def pictures(folder: Path, count: int = _PICTURES) -> list[Screenshot]:
    """Store so many different screenshots and return them."""
    store = ScreenshotStore(folder)
    return [store.put(_picture(number)) for number in range(count)]


def trajectories(numbers: range, iteration: int, shots: list[Screenshot]) -> Iterator[Trajectory]:
    """Yield the trajectories of these numbers."""
    for number in numbers:
        choice = random.Random(number)
        task = number % _TASKS
        url = f"https://www.shop{task % _SITES}.example.com/list/{task}"
        text = f"Find the price of article {task} and say it."
        outcome = Outcome.model_validate({"reward": float(number % 3 == 0), "stop": "answered", "answer": "42"})
        yield Trajectory(
            id=f"train-{iteration:04d}-{number:06d}",
            episode=f"train-{iteration:04d}-{number:06d}",
            split=Split.TRAIN,
            iteration=iteration,
            task=Task(
                id=f"task-{task}",
                instruction=text,
                start_url=url,
                environment="web",
                difficulty=1 + task % 9,
                rubric=tuple(f"fact {fact} of article {task} is told" for fact in range(1 + task % 9)),
            ),
            instruction=text,
            seed=number,
            policy="model-0",
            prompt=PromptSpec(version=PromptVersion.COMPLETE),
            steps=tuple(_step(index, choice, url, shots) for index in range(STEPS)),
            outcome=outcome,
            started_at=(_BEGIN + timedelta(days=iteration, seconds=number)).isoformat(),
            seconds=61.5,
        )


def fill(root: Path, steps: int, model: Path, screenshots: Path, shots: list[Screenshot]) -> RunDir:
    """Make a run with so many steps. `model`: the folder of the policy whose tokenizer counts.

    Lines are written in bulk: the shipped `append` waits for the disk at each.
    """
    run = RunDir(root)
    wanted = {**SETTINGS, "policy_config.base_model": str(model)}
    settings = load(overrides=[f"{name}={value}" for name, value in wanted.items()])
    create_or_open(run, settings)
    _train(run, settings, model)
    run.screenshots.symlink_to(screenshots)
    with ProcessPoolExecutor() as workers:
        filling = [
            workers.submit(_fill_iteration, run, iteration, numbers, shots)
            for iteration, numbers in enumerate(_numbers(steps))
        ]
        for done in filling:
            done.result()
    return run


def _fill_iteration(run: RunDir, iteration: int, numbers: range, shots: list[Screenshot]) -> None:
    part = run.part(Split.TRAIN, iteration)
    part.parent.mkdir(parents=True, exist_ok=True)
    with part.open("w", encoding="utf-8") as file:
        file.writelines(f"{trajectory.to_line()}\n" for trajectory in trajectories(numbers, iteration, shots))


def fill_pickles(folder: Path, run: RunDir, steps: int, shots: list[Screenshot]) -> None:
    """Write the same trajectories as WebGym does."""
    folder.mkdir(parents=True)
    for iteration, numbers in enumerate(_numbers(steps)):
        stored = [_webgym(run, trajectory) for trajectory in trajectories(numbers, iteration, shots)]
        with (folder / f"train_trajectories.pt.iteration{iteration + 1}").open("wb") as file:
            pickle.dump({"trajectories": stored, "metadata": {"iteration": iteration + 1}}, file)


def _train(run: RunDir, settings: Settings, model: Path) -> None:
    """Have the run at its last iteration: `prepare` reads what lies behind the current policy."""
    checkpoint = Checkpoint(
        name="model_20260101_000000",
        version=ITERATIONS - 1,
        iteration=ITERATIONS - 2,
        parent=str(model),
        data_digest="",
        resumable=False,
        steps=1,
        created_at=_BEGIN.isoformat(),
    )
    weights = run.checkpoints / f".{checkpoint.name}"
    shutil.copytree(model, weights)
    publish(run, settings, weights, checkpoint)


def _numbers(steps: int) -> list[range]:
    each = steps // STEPS // ITERATIONS
    return [range(iteration * each, (iteration + 1) * each) for iteration in range(ITERATIONS)]


def _step(index: int, choice: random.Random, url: str, shots: list[Screenshot]) -> Step:
    point = (choice.randrange(1000), choice.randrange(1000))
    action = Action(name=ActionName.CLICK, coordinate=point)
    return Step(
        index=index,
        observation=Observation(
            url=f"{url}?page={index}", title=f"Page {index}", screenshot=shots[choice.randrange(len(shots))]
        ),
        response=_response(index, url, render_web_action(action, InteractionMode.COORDINATES)),
        action=action,
        page_changed=choice.random() > 0.1 if index + 1 < STEPS else None,
        prompt_digest=f"{choice.getrandbits(256):064x}",
        generation=Generation(
            prompt_tokens=5000,
            prompt_token_digest=f"{choice.getrandbits(256):064x}",
            token_ids=tuple(choice.randrange(150_000) for _ in range(_TOKENS)),
            logprobs=tuple(round(-choice.random(), 4) for _ in range(_TOKENS)),
            finish_reason="stop",
        ),
        policy_seconds=0.5,
        environment_seconds=1.5,
    )


def _response(index: int, url: str, call: str) -> str:
    """Return a reply to the prompt `complete`: a memory that grows, the progress, and the call."""
    memory = [_NOTE.format(number=number, price=len(url) + 7 * number, days=1 + number % 5) for number in range(index)]
    progress = {"find the list": "done", "compare the articles": "doing", "answer with the price": "open"}
    return (
        f"Memory: {json.dumps(memory)}\nProgress: {json.dumps(progress)}\nIntention: compare the articles\n"
        f"Action: I open article {index} of the list to read its price and how long it takes.\n{call}"
    )


def _webgym(run: RunDir, trajectory: Trajectory) -> list[dict[str, Any]]:
    """Return a trajectory as WebGym keeps it: a list of steps, each with its whole prompt as JSON."""
    store, stored = ScreenshotStore(run.screenshots), []
    of = trajectory.task
    facts = list(of.rubric)
    task = WebGymTask(
        trajectory.instruction,
        "shopping",
        "prices",
        of.start_url,
        of.difficulty,
        facts,
        "42",
        0,
        of.id,
        STEPS,
        trajectory.seed,
    )
    for index, step in enumerate(trajectory.steps):
        arguments = json.loads(step.action.model_dump_json()) if step.action else {}
        image = str(store.path(step.observation.screenshot.sha256))
        page = {"title": step.observation.title, "url": step.observation.url}
        messages = json.dumps(_messages(render_step(trajectory, index), store), indent=2)
        last = index + 1 == len(trajectory.steps)
        reward = WebGymReward(int(last and trajectory.outcome.success is True), facts if last else [], submit=last)
        stored.append(
            {
                "observation": WebGymObservation(task, image, page_metadata=page),
                "action": WebGymAction(arguments, str(arguments)),
                "response": WebGymResponse(step.response, _parts(step.response), messages),
                "reward": reward,
                "same_as_next_screenshot": step.page_changed is False,
            }
        )
    return stored


def _parts(response: str) -> dict[str, str]:
    """Return a reply taken apart, as WebGym stores it beside the whole one."""
    lines = dict(line.partition(": ")[::2] for line in response.splitlines()[:4])
    call = response.partition("<tool_call>")[2]
    return {**{name.lower(): text for name, text in lines.items()}, "tool_call": call, "thinking": ""}


def _messages(prompt: Prompt, store: ScreenshotStore) -> list[dict[str, Any]]:
    """Return a prompt as chat messages with images by their files."""
    images, messages = iter(prompt.images), []
    for message in prompt.messages:
        content: list[dict[str, Any]] = []
        for number, text in enumerate(message.content.split(IMAGE)):
            if number:
                content.append({"type": "image_url", "image_url": {"url": f"file://{store.path(next(images))}"}})
            if text:
                content.append({"type": "text", "text": text})
        messages.append({"role": message.role, "content": content})
    return messages


def _picture(number: int) -> bytes:
    """Return a page-like picture as PNG: bands, boxes and lines of text."""
    choice = random.Random(zlib.crc32(str(number).encode()))
    image = Image.new("RGB", _SIZE, "white")
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 0, _SIZE[0], 80), fill=tuple(choice.randrange(256) for _ in range(3)))
    for line in range(40):
        draw.text((choice.randrange(900), 90 + 16 * line), f"{choice.getrandbits(128):x} {number}", fill="black")
    file = BytesIO()
    image.save(file, "PNG", compress_level=1)
    return file.getvalue()
