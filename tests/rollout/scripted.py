"""A world without browsers: an environment, a pool and an agent that do what a script says."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from tests.records.builders import CLICK, png
from webgym_cli.agent.forms.tools import render_web_action
from webgym_cli.agent.prompt import PolicyReply
from webgym_cli.environments.base import EnvironmentStep, RawObservation
from webgym_cli.errors import BoundaryError
from webgym_cli.records.action import Action, ActionName, InteractionMode
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.sampling import Sampling
from webgym_cli.records.task import Task
from webgym_cli.records.trajectory import Generation, Score

CALL = render_web_action(CLICK, InteractionMode.COORDINATES)
ANSWER = render_web_action(Action(name=ActionName.ANSWER, text="42"), InteractionMode.COORDINATES)
Hook = Callable[["ScriptedEnvironment"], Awaitable[None]]


async def nothing(environment: ScriptedEnvironment) -> None:
    """Let an episode go on."""


def failing(kind: FailureKind = FailureKind.BROWSER_CRASHED, *, times: int = 10**6, tasks: str = "") -> Hook:
    """Return a hook that fails each task's first attempts."""
    seen: Counter[str] = Counter()

    async def fail(environment: ScriptedEnvironment) -> None:
        name = environment.task.id
        if tasks in name and seen[name] < times:
            seen[name] += 1
            raise BoundaryError(kind, f"{name} failed")

    return fail


@dataclass
class Script:
    """What happens in the episodes."""

    on_reset: Hook = nothing
    on_step: Hook = nothing
    on_close: Hook = nothing
    steps: int = 2
    """After so many actions an episode is over."""
    score: Score | None = field(default_factory=lambda: Score(source="environment", value=1.0))
    answer_score: Score | None = None
    instruction: str = "Click."
    title: str = "Page"
    outage: str = ""


@dataclass
class ScriptedEnvironment:
    """One episode's world."""

    pool: ScriptedPool
    task: Task = field(default_factory=lambda: Task(id="none"))
    seed: int = -1
    actions: list[Action] = field(default_factory=list)
    closed: int = 0

    @property
    def tools(self) -> None:
        return None

    async def reset(self, task: Task, seed: int) -> tuple[str, RawObservation]:
        self.task, self.seed = task, seed
        self.pool.running += 1
        self.pool.most = max(self.pool.most, self.pool.running)
        self.pool.started.append(task.id)
        await asyncio.sleep(0)
        await self.pool.script.on_reset(self)
        return self.pool.script.instruction, self.view()

    def resolve_task(self, task: Task) -> Task:
        return task

    def view(self) -> RawObservation:
        return RawObservation(url="http://a/", title=self.pool.script.title, png=png(len(self.actions)))

    async def step(self, action: Action) -> EnvironmentStep:
        await asyncio.sleep(0)
        await self.pool.script.on_step(self)
        self.actions.append(action)
        if len(self.actions) >= self.pool.script.steps:
            return EnvironmentStep(view=None, done=True, score=self.pool.script.score)
        return EnvironmentStep(view=self.view())

    async def answer(self, text: str) -> Score | None:
        return self.pool.script.answer_score

    async def out_of_steps(self) -> Score | None:
        return None

    def find_outage(self) -> str:
        return self.pool.script.outage

    async def expert_action(self) -> Action:
        return CLICK

    async def close(self) -> None:
        self.closed += 1
        self.pool.running -= self.closed == 1
        await self.pool.script.on_close(self)


@dataclass
class ScriptedPool:
    """Remembers every environment that it made."""

    script: Script
    environments: list[ScriptedEnvironment] = field(default_factory=list)
    started: list[str] = field(default_factory=list)
    running: int = 0
    most: int = 0
    """Most episodes that ran at once."""

    async def __aenter__(self) -> ScriptedPool:
        return self

    async def __aexit__(self, *exc: object) -> None:
        pass

    def new(self) -> ScriptedEnvironment:
        self.environments.append(ScriptedEnvironment(self))
        return self.environments[-1]


@dataclass
class ScriptedAgent:
    """Gives its replies one after another; the last one again and again."""

    replies: tuple[str, ...] = (CALL,)
    finish_reason: str = "stop"
    prompts: list[object] = field(default_factory=list)
    name: str = "scripted"

    async def act(self, prompt: object, environment: ScriptedEnvironment) -> PolicyReply:
        self.prompts.append(prompt)
        reply = self.replies[min(len(self.prompts), len(self.replies)) - 1]
        return PolicyReply(text=reply, generation=Generation(finish_reason=self.finish_reason))

    def sampling(self, *, greedy: bool) -> Sampling:
        return Sampling(temperature=0.0 if greedy else 1.0)
