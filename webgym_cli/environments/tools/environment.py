"""Tool-use environment: a conversation without a browser in which the policy calls functions; and its expert.

The expert solves questions with known calculations: it performs them with the calculator, then answers. The record's
field `expression` contains the calculations as a text or list, and `answer` the answer. Without that field, the
annotations of a worked answer (`solution`, else `answer`) are used, as in GSM8K: `48/2 = <<48/2=24>>24 #### 24`.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from webgym_cli.config.agent import AgentSettings
from webgym_cli.config.limits import MAX_TOOL_CALLS
from webgym_cli.config.model import Settings
from webgym_cli.environments.base import Environment, EnvironmentStep, RawObservation
from webgym_cli.environments.tools.answer_judge import AnswerJudge
from webgym_cli.environments.tools.question_answer import load_image
from webgym_cli.errors import BoundaryError, UsageError
from webgym_cli.records.action import Action, ActionName
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.task import Task
from webgym_cli.records.tool import ToolCall
from webgym_cli.records.trajectory import Score
from webgym_cli.records.webrl import AnyAction
from webgym_cli.scoring.define import parse_reward
from webgym_cli.scoring.numbers import answers_equal
from webgym_cli.scoring.registry import REWARDS, reward_fields
from webgym_cli.scoring.statements import extract_reference
from webgym_cli.tools.arithmetic import BadExpressionError, evaluate
from webgym_cli.tools.define import EpisodeContext, Tool
from webgym_cli.tools.registry import find_tools
from webgym_cli.tools.toolbox import CallResult, Toolbox, as_openai
from webgym_cli.tools.workers import Workers
from webgym_cli.util.json_values import as_list, encode_json
from webgym_cli.util.optional import when

# The expert's tool and the name of its argument, which is also the name of the record's field.
CALCULATOR, EXPRESSION = "calculator", "expression"
# Format of its final answer.
ANSWER = "The answer is \\boxed{{{}}}."
_ANNOTATION = re.compile(r"<<([^<>=]+)=[^<>]*>>")
_INSTEAD = "leave such records out, or --policy vllm"


def next_action(task: Task, results: Sequence[str], limits: AgentSettings) -> Action:
    """Return the action after the results of all calls so far: the turn's calculations, or finally the answer.

    One calculation per turn; if there are more calculations than turns, the last turns have several each. Raises
    `UsageError` for a task without calculations.
    """
    expressions, done = calculations(task), len(results)
    turns = min(len(expressions), limits.max_turns - 1)
    # Number of finished calculations after each turn; the remaining turns have room for the rest.
    ends = (max(turn, len(expressions) - (turns - turn) * MAX_TOOL_CALLS) for turn in range(1, turns + 1))
    if end := next((end for end in ends if end > done), None):
        batch = expressions[done:end]
        calls = tuple(ToolCall(name=CALCULATOR, arguments={EXPRESSION: expression}) for expression in batch)
        return Action(name=ActionName.CALL, calls=calls)
    return Action(name=ActionName.ANSWER, text=ANSWER.format(_conclusion(task, results)))


def require_workings(settings: Settings, tasks: Sequence[Task]) -> None:
    """Raise `UsageError` with the first task that the expert can't solve, and the number of others."""
    if not any(map(_calculates, find_tools(settings.agent.tools))):
        raise UsageError(
            f"task {tasks[0].id}: its expert needs the tool {CALCULATOR}, which is not among agent.tools",
            hint=f"-s 'agent.tools=[\"{CALCULATOR}\"]', or --policy vllm",
        )
    different = {task.key: task for task in tasks}.values()
    unsolved = [error for task in different if (error := _problem(task, settings.agent)) is not None]
    if unsolved:
        others = when(len(unsolved) > 1, f" ({len(unsolved)} such of {len(different)})")
        raise UsageError(f"{unsolved[0]}{others}", hint=unsolved[0].hint)


def calculations(task: Task) -> tuple[str, ...]:
    """Return the calculations of a task's record in order. Raises `UsageError` if there are none, or an invalid one."""
    given = task.extra.get(EXPRESSION)
    if given is None:
        return _find_calculations(task)
    listed = [given] if isinstance(given, str) else given
    if not isinstance(listed, list) or not listed or not all(isinstance(item, str) for item in listed):
        raise UsageError(
            f"task {task.id}: {EXPRESSION}: a text, or a list of texts that is not empty, is needed",
            hint=f'write it like "{EXPRESSION}": ["48/2", "48+24"]; or --policy vllm',
        )
    for item in listed:
        try:
            evaluate(item)
        except BadExpressionError as error:
            raise UsageError(
                f"task {task.id}: {EXPRESSION} {item[:80]!r} has no value: {error}",
                hint=f"fix the record's field {EXPRESSION}, or --policy vllm",
            ) from None
    return tuple(listed)


def _calculates(tool: Tool) -> bool:
    """Whether a tool can be called as the expert does; it may be a user's own."""
    return tool.name == CALCULATOR and EXPRESSION in tool.schema["function"]["parameters"]["properties"]


def _find_calculations(task: Task) -> tuple[str, ...]:
    """Return the annotated calculations of a worked answer; those that are no arithmetic (`2x=10`) are skipped."""
    answer = str(task.extra.get("solution") or reward_fields(task).get("answer"))
    values = tuple(item.strip() for item in _ANNOTATION.findall(answer) if _has_value(item))
    if not values or extract_reference(answer) is None:
        raise UsageError(
            f"task {task.id}: no expert solves it: its record has no field {EXPRESSION}, and no answer with annotated "
            "calculations (<<48/2=24>>) and #### at its end",
            hint=f'add "{EXPRESSION}": "48/2" to such records, {_INSTEAD}',
        )
    return values


def _has_value(expression: str) -> bool:
    try:
        evaluate(expression)
    except BadExpressionError:
        return False
    return True


def _problem(task: Task, limits: AgentSettings) -> UsageError | None:
    try:
        needed = len(calculations(task))
        _gold(task)
    except UsageError as error:
        return error
    turns = limits.max_turns
    if needed <= (turns - 1) * MAX_TOOL_CALLS:
        return None
    return UsageError(
        f"task {task.id}: its calculations ({needed}) and the answer need more than agent.max_turns={turns} turns of "
        f"{MAX_TOOL_CALLS} calls",
        hint=f"-s agent.max_turns={1 + math.ceil(needed / MAX_TOOL_CALLS)}, or {_INSTEAD}",
    )


def _conclusion(task: Task, results: Sequence[str]) -> str:
    """Return the last result if it equals the answer, else the record's answer."""
    wanted = _gold(task)
    return results[-1] if results and answers_equal(results[-1], wanted) else wanted


def _gold(task: Task) -> str:
    """Return the answer; the first one of several. Raises `UsageError` for a record without one."""
    answer = reward_fields(task).get("answer")
    first = next(iter(as_list(answer)), None)
    if isinstance(first, bool) or not isinstance(first, str | int | float) or not str(first).strip():
        raise UsageError(
            f"task {task.id}: no expert solves it: its record has no answer that is a text or a number",
            hint=f'add "answer" to such records, {_INSTEAD}',
        )
    return extract_reference(str(first)) or str(first).strip()


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
        return self

    async def __aexit__(self, *exc: object) -> None:
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
        # A copy: what a tool changes in a list of the record is not for other episodes of the task.
        self._context = EpisodeContext(task.id, task.instruction, deepcopy(reward_fields(task)), seed)
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
        self._add_responses(action.text or "")
        self._messages[-1]["tool_calls"] = calls
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
        self._add_responses(text)
        return await self._score(text)

    async def out_of_steps(self) -> Score | None:
        """Score the last message, a tool result, as the final response; empty after a response that can't be read."""
        self._add_responses()
        last = self._messages[-1]
        return await self._score(when(last["role"] == "tool", last["content"]))

    def _add_responses(self, *texts: str) -> None:
        """Append the responses since the last one, also those that can't be read; the texts in place of none.

        They are whole: rewards ask for the reasoning, and for the words before an action, which no action has.
        """
        turns = sum(message["role"] == "assistant" for message in self._messages)
        self._messages += [{"role": "assistant", "content": text} for text in self.responses[turns:] or texts]

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
