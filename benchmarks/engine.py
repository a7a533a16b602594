"""Runs our engine once, as a job that comes in as JSON says, and prints what was measured as JSON.

A process of its own for each run: its CPU time and memory are nobody else's. The engine is the shipped one:
`RolloutEngine` over a pool of real pages, every trajectory and screenshot stored.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.episodes import CLICKS, Script
from benchmarks.meter import Meter
from benchmarks.schedulers import OURS, StepBarrier, arrange
from webgym_cli.agent.forms.tools import render_web_action
from webgym_cli.agent.prompt import PolicyReply, Prompt
from webgym_cli.config.load import load
from webgym_cli.environments.base import Environment, EnvironmentPool, EnvironmentStep, RawObservation
from webgym_cli.environments.miniwob.environment import MiniWobPool
from webgym_cli.errors import WebGymError
from webgym_cli.records.action import NORMALISED, Action, ActionName, InteractionMode
from webgym_cli.records.events import Event
from webgym_cli.records.task import Episode, Split, Task
from webgym_cli.records.trajectory import Generation, Score, Trajectory
from webgym_cli.rollout.agents import Agent, OracleAgent
from webgym_cli.rollout.engine import RolloutEngine
from webgym_cli.rollout.plan import PendingEpisode, RolloutPlan, write_plan
from webgym_cli.rollout.runner import LocalRunner
from webgym_cli.store.buffer import scan_stored
from webgym_cli.store.run import RunDir, create_or_open

_EXPERT_STEPS = 30
"""Step limit of the expert's episodes."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run of the engine."""

    scripts: tuple[Script, ...]
    concurrency: int
    scheduler: str = OURS
    size: tuple[int, int] | None = None
    """The viewport in CSS pixels; None: the page's own."""
    expert: bool = False
    """The environment's expert acts, and the scripts name nothing but page and seed."""
    mode: InteractionMode = InteractionMode.COORDINATES

    @classmethod
    def of(cls, text: dict[str, Any]) -> Job:
        """Return the job from its JSON."""
        scripts = tuple(
            Script(one["seed"], tuple(one["latencies"]), tuple(one["waits"]), one["page"]) for one in text["scripts"]
        )
        size = (text["size"][0], text["size"][1]) if text["size"] else None
        return cls(**{**text, "scripts": scripts, "size": size, "mode": InteractionMode(text["mode"])})

    def to_json(self) -> dict[str, Any]:
        """Return the job as JSON has it."""
        return {**dataclasses.asdict(self), "scripts": [script.to_json() for script in self.scripts]}


class PacedEnvironment:
    """An environment behind a network that takes its time, and beside others that a barrier waits for."""

    def __init__(self, inner: Environment, scripts: dict[int, Script], barrier: StepBarrier | None) -> None:
        self._inner = inner
        self._scripts = scripts
        self._barrier = barrier
        self.script: Script | None = None
        """The running episode's."""
        self.turn = 0
        """Number of the step that the policy answers next."""
        self.view: RawObservation | None = None
        """What the policy sees."""

    @property
    def tools(self) -> tuple[dict[str, Any], ...] | None:
        """Pass on."""
        return self._inner.tools

    async def reset(self, task: Task, seed: int) -> tuple[str, RawObservation]:
        """Start the episode of the seed's script."""
        self.script, self.turn = self._scripts[seed], 0
        await self._network()
        instruction, self.view = await self._inner.reset(task, seed)
        await self.meet()
        return instruction, self.view

    def resolve_task(self, task: Task) -> Task:
        """Pass on."""
        return self._inner.resolve_task(task)

    async def step(self, action: Action) -> EnvironmentStep:
        """Carry out the action, then wait for the others."""
        self.turn += 1
        await self._network()
        result = await self._inner.step(action)
        self.view = result.view
        await self.meet()
        return result

    async def answer(self, text: str) -> Score | None:
        """Pass on."""
        return await self._inner.answer(text)

    async def out_of_steps(self) -> Score | None:
        """Pass on."""
        return await self._inner.out_of_steps()

    async def expert_action(self) -> Action:
        """Pass on."""
        return await self._inner.expert_action()

    async def close(self) -> None:
        """Pass on."""
        await self._inner.close()

    async def meet(self) -> None:
        """Wait for all others, where there is a barrier."""
        if self._barrier is not None:
            await self._barrier.arrive()

    async def _network(self) -> None:
        waits = self.script.waits if self.script else ()
        if self.turn < len(waits) and waits[self.turn]:
            await asyncio.sleep(waits[self.turn])


class PacedPool:
    """Makes such environments over a pool of the product."""

    def __init__(self, inner: EnvironmentPool, scripts: Sequence[Script], barrier: StepBarrier | None) -> None:
        self._inner = inner
        self._scripts = {script.seed: script for script in scripts}
        self._barrier = barrier

    async def __aenter__(self) -> PacedPool:
        """Start what the inner pool shares."""
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop it."""
        await self._inner.__aexit__(*exc)

    def new(self) -> PacedEnvironment:
        """Return a fresh environment."""
        return PacedEnvironment(self._inner.new(), self._scripts, self._barrier)


class ScriptedAgent:
    """Clicks where it does no harm, each time after the script's latency, and answers at the script's end."""

    name = "scripted"

    def __init__(self, size: tuple[int, int], mode: InteractionMode) -> None:
        self._size = size
        self._mode = mode

    async def act(self, prompt: Prompt, environment: Environment) -> PolicyReply:
        """Return the script's next action."""
        if not isinstance(environment, PacedEnvironment) or environment.script is None:
            raise TypeError("a scripted agent needs a paced environment")
        latencies, turn = environment.script.latencies, environment.turn
        if latencies[turn]:
            await asyncio.sleep(latencies[turn])
        await environment.meet()
        if turn == len(latencies) - 1:
            action = Action(name=ActionName.ANSWER, text="done")
        else:
            action = self._click(CLICKS[turn % len(CLICKS)], environment.view)
        return PolicyReply(render_web_action(action, self._mode), Generation(finish_reason="stop"))

    def _click(self, point: tuple[float, float], view: RawObservation | None) -> Action:
        """Return a click at a point in CSS pixels, or on the smallest of the marked elements there."""
        x, y = point
        if self._mode is InteractionMode.COORDINATES:
            width, height = self._size
            return Action(name=ActionName.CLICK, coordinate=(x / width * NORMALISED, y / height * NORMALISED))
        boxes = {element.id: element.box for element in (view.elements if view else ())}
        there = [
            (width * height, number)
            for number, (left, top, width, height) in boxes.items()
            if left <= x < left + width and top <= y < top + height
        ]
        if not there:
            raise WebGymError(f"no element is marked at {point}")
        return Action(name=ActionName.CLICK, element_id=min(there)[1])

    def sampling(self, *, greedy: bool) -> None:
        """Return nothing: a script samples from no distribution."""


@dataclass(slots=True)
class Clock:
    """Notes when the episodes end."""

    start: float = field(default_factory=time.monotonic)
    ends: list[float] = field(default_factory=list)
    """Seconds since the start."""

    def sink(self, event: Event) -> None:
        """Take an event of the engine."""
        if event["event"] == "trajectory":
            self.ends.append(time.monotonic() - self.start)

    def until(self, share: float) -> float:
        """Return when this share of the episodes had ended, in seconds."""
        return sorted(self.ends)[math.ceil(share * len(self.ends)) - 1]


def planned(job: Job) -> RolloutPlan:
    """Return the plan that owes the job's episodes."""
    episodes = tuple(
        Episode(
            id=f"train-0000-{number:05d}",
            split=Split.TRAIN,
            iteration=0,
            task=Task(id=script.page),
            seed=script.seed,
            max_steps=_EXPERT_STEPS if job.expert else len(script.latencies),
        )
        for number, script in enumerate(job.scripts)
    )
    owed = tuple(PendingEpisode(episode, 0) for episode in episodes)
    return RolloutPlan(Split.TRAIN, 0, "scripted", episodes, owed, given_up=0)


async def run(job: Job, root: Path) -> dict[str, Any]:
    """Run the job with its files below `root` and return what was measured."""
    settings = load(
        overrides=[
            f"rollout.concurrency={job.concurrency}",
            "rollout.max_attempts=1",
            f"context_config.interaction_mode={job.mode.value}",
        ]
    )
    inner = MiniWobPool(settings, job.mode)
    if job.size:
        inner.options = dataclasses.replace(inner.options, width=job.size[0], height=job.size[1])
    plan, folder = planned(job), RunDir(root)
    queue, barrier = arrange(job.scheduler, plan.owed, job.concurrency)
    size = inner.options.width, inner.options.height
    agent: Agent = OracleAgent(settings) if job.expert else ScriptedAgent(size, job.mode)
    create_or_open(folder, settings)
    write_plan(folder, plan)
    async with PacedPool(inner, job.scripts, barrier) as pool:
        clock, meter = Clock(), Meter()
        rollout = RolloutEngine(
            plan, folder, settings, LocalRunner(folder, settings, agent, pool), clock.sink, queue=queue
        )
        async with meter:
            summary = await rollout.execute()
            seconds = time.monotonic() - clock.start
    return measured(list(scan_stored(folder, Split.TRAIN, 0)), clock, meter, seconds) | {"stages": summary["stages"]}


def measured(done: list[Trajectory], clock: Clock, meter: Meter, seconds: float) -> dict[str, Any]:
    """Return the figures of a run. Raises `WebGymError` when an episode failed: then nothing can be compared."""
    failures = Counter(f"{one.outcome.failure}: {one.outcome.failure_detail}" for one in done if one.outcome.failure)
    if failures:
        raise WebGymError(f"{failures.total()} episodes failed: {failures.most_common(1)[0][0]}", hint="webgym doctor")
    steps = sum(len(one.steps) for one in done)
    unsolved = Counter(one.task.id for one in done if not one.outcome.success)
    return {
        "makespan_s": max(clock.ends),
        "time_to_80_s": clock.until(0.8),
        "episodes": len(done),
        "solved": len(done) - unsolved.total(),
        "unsolved": dict(unsolved),
        **meter.figures(steps, seconds),
    }


def main() -> int:
    """Read a job from stdin, run it and print the figures."""
    job = Job.of(json.load(sys.stdin))
    with tempfile.TemporaryDirectory(prefix="webgym-benchmark-") as folder:
        try:
            print(json.dumps(asyncio.run(run(job, Path(folder) / "run"))))
        except WebGymError as error:
            print(f"{error}; {error.hint}" if error.hint else error, file=sys.stderr)
            return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
