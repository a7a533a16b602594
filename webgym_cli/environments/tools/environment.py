"""Tool-use environment: a conversation without a browser in which the policy calls functions."""

from __future__ import annotations

import asyncio
from typing import Any

from webgym_cli.config.model import Settings
from webgym_cli.environments.base import Environment, EnvironmentStep, RawObservation
from webgym_cli.environments.tools.answer_judge import AnswerJudge
from webgym_cli.environments.tools.oracle import next_action
from webgym_cli.environments.tools.question_answer import load_image
from webgym_cli.errors import BoundaryError
from webgym_cli.records.action import Action, ActionName
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.task import Task
from webgym_cli.records.trajectory import Score
from webgym_cli.records.webrl import AnyAction
from webgym_cli.scoring.define import parse_reward
from webgym_cli.scoring.registry import REWARDS, reward_fields
from webgym_cli.tools.define import EpisodeContext
from webgym_cli.tools.registry import find_tools
from webgym_cli.tools.toolbox import CallResult, Toolbox, as_openai
from webgym_cli.tools.workers import Workers
from webgym_cli.util.json_values import encode_json
from webgym_cli.util.optional import when

# Name of the results that contain a question's images, before the first call.
QUESTION = "question"


class ToolsPool:
    """Factory of tool environments."""

    def __init__(self, settings: Settings) -> None:
        """Raises `UsageError` for a tool or reward function that can't be loaded."""
        self.limits, self.images = settings.agent, settings.image
        self.tools = find_tools(self.limits.tools)
        self.schemas = tuple(tool.schema for tool in self.tools)
        """JSON schemas of the tools, as shown to the policy."""
        self.reward = REWARDS.find(self.limits.reward_name)
        self.workers, self.judge = Workers(), AnswerJudge(settings.judge)

    async def __aenter__(self) -> ToolsPool:
        """Start nothing."""
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close the judge's connections; each environment closes its own tools."""
        await self.judge.close()

    def new(self) -> ToolsEnvironment:
        """Return a fresh environment."""
        return ToolsEnvironment(self)


class ToolsEnvironment(Environment):
    """One episode: a question, its tools and the score of its answer."""

    def __init__(self, pool: ToolsPool) -> None:
        self._pool = pool
        self._box: Toolbox | None = None
        self._task = Task(id="none", environment="tools")
        self._context = EpisodeContext()
        self._messages: list[dict[str, Any]] = []
        self._calls = 0

    @property
    def tools(self) -> tuple[dict[str, Any], ...]:
        """The schemas of the tools."""
        return self._pool.schemas

    async def reset(self, task: Task, seed: int) -> tuple[str, RawObservation]:
        """Start the episode with the question and new tool instances."""
        await self.close()
        self._context = EpisodeContext(task.id, task.instruction, reward_fields(task), seed)
        self._box = Toolbox(self._pool.tools, self._pool.limits, self._pool.workers, self._context)
        self._task, self._calls = task, 0
        self._messages = [{"role": "user", "content": task.instruction}]
        return task.instruction, RawObservation(url="", title="", results=await self._load_images(task))

    async def _load_images(self, task: Task) -> tuple[CallResult, ...]:
        """Return the question's images, as results before the first call."""
        places, limits = task.extra.get("images", []), self._pool.images
        try:
            images = [await asyncio.to_thread(load_image, place, limits) for place in places]
        except ValueError as error:
            raise BoundaryError(FailureKind.ENVIRONMENT_ERROR, f"task {task.id}: {error}") from error
        return tuple(CallResult(QUESTION, "", image) for image in images)

    async def step(self, action: AnyAction) -> EnvironmentStep:
        """Execute the calls of one response concurrently; a terminal result ends the episode with its text."""
        if self._box is None:
            raise RuntimeError("the environment was not reset")
        if not isinstance(action, Action) or action.name is not ActionName.CALL or not action.calls:
            return EnvironmentStep(view=RawObservation(url="", title=""), action_error="only tools can be called here")
        calls = as_openai(action.calls, self._calls)
        self._calls += len(calls)
        self._messages.append({"role": "assistant", "content": action.text or "", "tool_calls": calls})
        results = await self._box.call_all(action.calls)
        for call, result in zip(calls, results, strict=True):
            message = {"role": "tool", "tool_call_id": call["id"], "name": result.name, "content": result.text}
            self._messages.append(message | when(result.info, {"info": dict(result.info)}))
        last = next((result for result in results if result.terminal), None)
        if last is None:
            return EnvironmentStep(view=RawObservation(url="", title="", results=tuple(results)))
        return EnvironmentStep(view=None, done=True, score=await self._score(last.text), answer=last.text)

    async def answer(self, text: str) -> Score | None:
        """Score an answered episode by the reward function."""
        self._messages.append({"role": "assistant", "content": text})
        return await self._score(text)

    async def out_of_steps(self) -> Score | None:
        """Score the last message, which may be a tool result, as the final response."""
        last = self._messages[-1]
        return await self._score(last["content"] if last["role"] != "user" else "")

    async def expert_action(self) -> Action:
        """Return the next calculations of the task's record, or its answer. Raises `UsageError` without either."""
        results = [message["content"] for message in self._messages if message["role"] == "tool"]
        return next_action(self._task, results, self._pool.limits)

    async def close(self) -> None:
        """Close the stateful tools."""
        box, self._box = self._box, None
        if box is not None:
            await box.close()

    async def _score(self, final_response: str) -> Score:
        """Call the reward function. Raises `BoundaryError` if it fails, since a failure is never a reward of 0."""
        reward, limits = self._pool.reward, self._pool.limits
        offered = {
            "context": self._context,
            "judge": self._pool.judge,
            **reward_fields(self._task),
            "final_response": final_response,
            "trajectory": self._messages,
            "id": self._task.id,
            "question": self._task.instruction,
        }
        value = await reward.call(self._pool.workers, offered, limits.reward_timeout)
        try:
            verdict = parse_reward(value)
            extras = when(verdict.extras, encode_json(verdict.extras, default=str))
        except Exception as error:
            raise reward.explain(error) from error
        detail = f"{reward.name} {extras}".strip()
        return Score(source="environment", value=verdict.reward, detail=detail, extras=verdict.numbers())
