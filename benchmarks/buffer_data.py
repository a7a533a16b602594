"""Fills a run with made-up trajectories, and writes the very same ones as WebGym stores them: a pickle an iteration.

A step is a click on a page of 1280x768: a response of some 90 tokens with its ids and log-probabilities, one of a pool
of screenshots, an address. A third of the trajectories succeeded. All is decided by the trajectory's number.
"""

from __future__ import annotations

import json
import pickle
import random
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

from benchmarks.buffer_baseline import WebGymAction, WebGymObservation, WebGymResponse, WebGymTask
from webgym_cli.agent.tools import render_call
from webgym_cli.config.load import load
from webgym_cli.records.action import Action, ActionName, InteractionMode
from webgym_cli.records.task import Split, Task
from webgym_cli.records.trajectory import Generation, Observation, Outcome, PromptSpec, Screenshot, Step, Trajectory
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
_PICTURES = 2000
_SIZE = (1280, 768)
_TOKENS = 90
"""Of a response."""
_TYPED = "The page lists {a} results and the next one, number {b}, is not yet open; I open it to read its price."


def pictures(run: RunDir, count: int = _PICTURES) -> list[Screenshot]:
    """Store so many different screenshots and return them."""
    store = ScreenshotStore(run.screenshots)
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
            prompt=PromptSpec(),
            steps=tuple(_step(index, choice, url, shots) for index in range(STEPS)),
            outcome=outcome,
            started_at=(_BEGIN + timedelta(days=iteration, seconds=number)).isoformat(),
            seconds=61.5,
        )


def fill(root: Path, steps: int, model: Path) -> RunDir:
    """Make a run with so many steps. `model`: the folder of the policy whose tokenizer counts.

    Lines are written in bulk: the shipped `append` waits for the disk at each.
    """
    run = RunDir(root)
    create_or_open(
        run,
        load(
            overrides=[
                f"{name}={value}" for name, value in {**SETTINGS, "policy_config.base_model": str(model)}.items()
            ]
        ),
    )
    shots = pictures(run)
    for iteration, numbers in enumerate(_numbers(steps)):
        part = run.part(Split.TRAIN, iteration)
        part.parent.mkdir(parents=True, exist_ok=True)
        with part.open("w", encoding="utf-8") as file:
            file.writelines(f"{made.to_line()}\n" for made in trajectories(numbers, iteration, shots))
    return run


def fill_pickles(folder: Path, run: RunDir, steps: int) -> None:
    """Write the same trajectories as WebGym does."""
    folder.mkdir(parents=True)
    shots = pictures(run)
    for iteration, numbers in enumerate(_numbers(steps)):
        stored = [_webgym(run, made) for made in trajectories(numbers, iteration, shots)]
        with (folder / f"train_trajectories.pt.iteration{iteration + 1}").open("wb") as file:
            pickle.dump({"trajectories": stored, "metadata": {"iteration": iteration + 1}}, file)


def _numbers(steps: int) -> list[range]:
    each = steps // STEPS // ITERATIONS
    return [range(iteration * each, (iteration + 1) * each) for iteration in range(ITERATIONS)]


def _step(index: int, choice: random.Random, url: str, shots: list[Screenshot]) -> Step:
    point = (choice.randrange(1000), choice.randrange(1000))
    action = Action(name=ActionName.CLICK, coordinate=point)
    spoken = _TYPED.format(a=point[0], b=point[1])
    return Step(
        index=index,
        observation=Observation(
            url=f"{url}?page={index}", title=f"Page {index}", screenshot=shots[choice.randrange(len(shots))]
        ),
        response=f"Action: {spoken}\n{render_call(action, InteractionMode.COORDINATES)}",
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


def _webgym(run: RunDir, made: Trajectory) -> list[dict[str, Any]]:
    """Return a trajectory as WebGym keeps it: a list of steps, each with its whole prompt."""
    store, history, stored = ScreenshotStore(run.screenshots), "", []
    task = WebGymTask(made.instruction, made.task.start_url, made.task.difficulty)
    for step in made.steps:
        arguments = json.loads(step.action.model_dump_json()) if step.action else {}
        stored.append(
            {
                "observation": WebGymObservation(
                    task, str(store.path(step.observation.screenshot.sha256)), {"url": step.observation.url}
                ),
                "action": WebGymAction(arguments, str(arguments)),
                "response": WebGymResponse(step.response, f"{_SYSTEM}\n{made.instruction}\n{history}"),
                "reward": made.outcome.reward,
                "changed": step.page_changed,
            }
        )
        history += f"\n{step.observation.url}\n{step.response}"
    return stored


_SYSTEM = "You drive a web browser and answer with one tool call. " * 40


def _picture(number: int) -> bytes:
    """Return a page-like picture as PNG: bands, boxes and lines of text."""
    choice = random.Random(zlib.crc32(str(number).encode()))
    image = Image.new("RGB", _SIZE, "white")
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 0, _SIZE[0], 80), fill=tuple(choice.randrange(256) for _ in range(3)))
    for line in range(40):
        draw.text((choice.randrange(900), 90 + 16 * line), f"{choice.getrandbits(128):x} {number}", fill="black")
    file = BytesIO()
    image.save(file, "PNG")
    return file.getvalue()
