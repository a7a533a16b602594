"""Questions that are answered with tools: no browser, a conversation in which the policy calls functions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from webgym_cli.config.agent import AgentSettings
from webgym_cli.config.image import ImageSettings
from webgym_cli.config.model import Settings
from webgym_cli.environments.base import Environment, EnvironmentStep, RawObservation
from webgym_cli.environments.tools.answer_judge import AnswerJudge
from webgym_cli.environments.tools.oracle import next_action
from webgym_cli.environments.tools.question_images import load_image
from webgym_cli.errors import BoundaryError
from webgym_cli.records.action import Action, ActionName
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.task import Task
from webgym_cli.records.trajectory import Score
from webgym_cli.records.webrl import AnyAction
from webgym_cli.scoring.define import Reward, parse_reward
from webgym_cli.scoring.registry import REWARDS, reward_fields
from webgym_cli.tools.context import EpisodeContext
from webgym_cli.tools.define import Tool
from webgym_cli.tools.registry import find_tools
from webgym_cli.tools.toolbox import CallResult, Toolbox, as_openai
from webgym_cli.tools.workers import TooLateError, Workers

# What the pictures of a question are stored as: results of this name, before the first call.
QUESTION = "question"
# Characters of a reward function's exception that are kept.
_REASON = 300


@dataclass(frozen=True, slots=True)
class ToolEnvShared:
    """What the episodes of a run have in common. Nothing in it belongs to one of them."""

    tools: tuple[Tool, ...]
    schemas: tuple[dict[str, Any], ...]
    """Of the tools, as the policy reads them."""
    reward: Reward
    limits: AgentSettings
    workers: Workers
    judge: AnswerJudge
    images: ImageSettings


class ToolsPool:
    """Makes tool environments; there is nothing to start."""

    def __init__(self, settings: Settings) -> None:
        """Raises `UsageError` for a tool or reward function that can't be loaded."""
        agent = settings.agent
        tools = find_tools(agent.tools)
        schemas = tuple(tool.schema for tool in tools)
        judge = AnswerJudge(settings.judge)
        self.shared = ToolEnvShared(
            tools, schemas, REWARDS.find(agent.reward_name), agent, Workers(), judge, settings.image
        )

    async def __aenter__(self) -> ToolsPool:
        """Start nothing."""
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close the judge's connections: each environment closes its own tools."""
        await self.shared.judge.close()

    def new(self) -> ToolsEnvironment:
        """Return a fresh environment."""
        return ToolsEnvironment(self.shared)


class ToolsEnvironment(Environment):
    """One question, the tools for it, and what its answer is worth."""

    def __init__(self, shared: ToolEnvShared) -> None:
        self._shared = shared
        self._box: Toolbox | None = None
        self._task = Task(id="none", environment="tools")
        self._context = EpisodeContext()
        self._messages: list[dict[str, Any]] = []
        self._calls = 0

    @property
    def tools(self) -> tuple[dict[str, Any], ...]:
        """The schemas of the tools."""
        return self._shared.schemas

    async def reset(self, task: Task, seed: int) -> tuple[str, RawObservation]:
        """Begin with the question, and with tools that no other episode has used."""
        await self.close()
        self._context = EpisodeContext(task.id, task.instruction, reward_fields(task), seed)
        self._box = Toolbox(self._shared.tools, self._shared.limits, self._shared.workers, self._context)
        self._task, self._calls = task, 0
        self._messages = [{"role": "user", "content": task.instruction}]
        return task.instruction, RawObservation(url="", title="", results=await self._load_images(task))

    async def _load_images(self, task: Task) -> tuple[CallResult, ...]:
        """Return the question's pictures, as results that came before the first call."""
        places, limits = task.extra.get("images", []), self._shared.images
        try:
            images = [await asyncio.to_thread(load_image, place, limits) for place in places]
        except ValueError as error:
            raise BoundaryError(FailureKind.ENVIRONMENT_ERROR, f"task {task.id}: {error}") from error
        return tuple(CallResult(QUESTION, "", image) for image in images)

    async def step(self, action: AnyAction) -> EnvironmentStep:
        """Make the calls of one response, side by side; one that is terminal ends the episode with its text."""
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
            self._messages.append(message | ({"info": dict(result.info)} if result.info else {}))
        last = next((result for result in results if result.terminal), None)
        if last is None:
            return EnvironmentStep(view=RawObservation(url="", title="", results=tuple(results)))
        return EnvironmentStep(view=None, done=True, score=await self._score(last.text), answer=last.text)

    async def answer(self, text: str) -> Score | None:
        """Score an answered episode by the reward function."""
        self._messages.append({"role": "assistant", "content": text})
        return await self._score(text)

    async def out_of_steps(self) -> Score | None:
        """Score what there is: the last message, a tool's result perhaps, is the final response."""
        last = self._messages[-1]
        return await self._score(last["content"] if last["role"] != "user" else "")

    async def expert_action(self) -> Action:
        """Return the next calculations of the task's record, or its answer. Raises `UsageError` where it has none."""
        results = [message["content"] for message in self._messages if message["role"] == "tool"]
        return next_action(self._task, results, self._shared.limits)

    async def close(self) -> None:
        """Close the tools that have a state."""
        box, self._box = self._box, None
        if box is not None:
            await box.close()

    async def _score(self, final_response: str) -> Score:
        """Ask the reward function. Raises `BoundaryError` where it fails: that is never a reward of 0."""
        reward, limits = self._shared.reward, self._shared.limits
        offered = {
            "context": self._context,
            "judge": self._shared.judge,
            **reward_fields(self._task),
            "final_response": final_response,
            "trajectory": self._messages,
            "id": self._task.id,
            "question": self._task.instruction,
        }
        try:
            value = await self._shared.workers.call(_bind(reward, offered), limits.reward_timeout)
            verdict = parse_reward(value)
            extras = json.dumps(verdict.extras, ensure_ascii=False, default=str) if verdict.extras else ""
        except BoundaryError:
            raise
        except TooLateError:
            raise _to_boundary_error(reward, f"it took more than {limits.reward_timeout:g} s") from None
        except Exception as error:
            raise _to_boundary_error(reward, f"{type(error).__name__}: {error}") from error
        detail = f"{reward.name} {extras}".strip()
        detail = detail.encode(errors="replace").decode()
        return Score(source="environment", value=verdict.reward, detail=detail, extras=verdict.numbers())


def _bind(reward: Reward, offered: dict[str, Any]) -> Callable[[], Any]:
    arguments = reward.bound(offered)
    return lambda: reward.function(**arguments)


def _to_boundary_error(reward: Reward, reason: str) -> BoundaryError:
    words = " ".join(reason.split())[:_REASON]
    return BoundaryError(FailureKind.ENVIRONMENT_ERROR, f"the reward {reward.name} failed: {words}")
