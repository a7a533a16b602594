"""The tools of one episode: their state, and calls with deadlines whose exceptions become results."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from webgym_cli.config.agent import AgentSettings
from webgym_cli.errors import BoundaryError, WebGymError
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.tool import ToolCall
from webgym_cli.tools.define import EpisodeContext, Tool, to_output
from webgym_cli.tools.schema import BadArgumentsError, check_arguments
from webgym_cli.tools.workers import TooLateError, Workers
from webgym_cli.util.optional import when
from webgym_cli.util.text import replace_surrogates

# Maximum length of an exception's message for the policy, in characters.
_REASON = 500
# Maximum length of a result for the policy without a limit of the tool's own, in characters.
MAX_LENGTH = 2048
CLOSE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class CallResult:
    """Result of one call."""

    name: str
    """Name of the called tool, as the policy wrote it."""
    text: str
    """Text for the policy, truncated to the tool's limit."""
    image: bytes | None = None
    """PNG image for the policy."""
    error: bool = False
    """Whether the call failed: unknown tool, invalid arguments, an exception, or a timeout."""
    terminal: bool = False
    """Whether the call ends the episode."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """Additional results for the reward function."""


class Toolbox:
    """The tools that one episode may call.

    Instances of class tools belong to the episode: they are created with the first call and closed with the toolbox.
    Calls of one turn run concurrently, but calls of one stateful tool, and of all tools that take the episode's
    context, run one after the other in their order.
    """

    def __init__(
        self,
        tools: Sequence[Tool],
        limits: AgentSettings,
        workers: Workers,
        context: EpisodeContext | None = None,
    ) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._limits = limits
        self._workers = workers
        self.context = context or EpisodeContext()
        shared = asyncio.Lock()
        self._locks = {
            tool.name: shared if tool.context or tool.made_with else asyncio.Lock()
            for tool in tools
            if tool.stateful or tool.context
        }

    async def call_all(self, calls: Sequence[ToolCall]) -> list[CallResult]:
        """Run the calls of one turn concurrently and return their results in order.

        Raises `BoundaryError` if a tool fails as infrastructure or returns an invalid output.
        """
        # If one call fails as infrastructure, the others still run to their end.
        results = await asyncio.gather(*map(self._call, calls), return_exceptions=True)
        answers: list[CallResult] = []
        for call, result in zip(calls, results, strict=True):
            if isinstance(result, CallResult):
                answers.append(result)
            elif isinstance(result, Exception) and not isinstance(result, BoundaryError):
                answers.append(CallResult(call.name, f"Error: {_words(result)}", error=True))
            else:
                raise result
        return answers

    async def close(self) -> None:
        """Close the stateful tools. Their exceptions are ignored, because the episode is over."""
        states = list(self.context.tools.values())
        self.context.tools.clear()
        closers = [close for state in states if callable(close := getattr(state, "close", None))]
        await asyncio.gather(*(self._workers.call(close, CLOSE_SECONDS) for close in closers), return_exceptions=True)

    async def _call(self, call: ToolCall) -> CallResult:
        tool = self._tools.get(call.name)
        if tool is None:
            names = ", ".join(self._tools)
            return CallResult(call.name, f"Error: there is no tool {call.name[:64]!r}; there are: {names}", error=True)
        try:
            arguments = check_arguments(tool.arguments, dict(call.arguments))
        except BadArgumentsError as error:
            return CallResult(tool.name, f"Error: {error}", error=True)
        async with self._locks.get(tool.name) or nullcontext():
            return await self._make_call(tool, arguments)

    async def _make_call(self, tool: Tool, arguments: Mapping[str, Any]) -> CallResult:
        """Run a call with valid arguments; exceptions other than `BoundaryError`, and timeouts, become results."""
        seconds = tool.timeout or self._limits.tool_timeout
        try:
            value = await self._workers.call(lambda: self._target(tool)(**arguments), seconds)
        except TooLateError:
            self.context.tools.pop(tool.name, None)  # an abandoned thread may still use the old instance
            lost = when(tool.stateful, "; its state is lost")
            return CallResult(tool.name, f"Error: stopped after {seconds:g} s{lost}", error=True)
        except BoundaryError:
            raise
        except Exception as error:  # noqa: BLE001  boundary to tools: the policy reads the exception
            return CallResult(tool.name, self._cut(tool, f"Error: {_words(error)}"), error=True)
        return await asyncio.to_thread(self._result, tool, value)  # a transparent picture is encoded again

    def _target(self, tool: Tool) -> Callable[..., Any]:
        """Return the callable. Runs in the worker thread, because creating an instance may take long."""
        target = self._find_state(tool) if tool.stateful else tool.make()
        given = {name: self.context.fields[name] for name in tool.fields if name in self.context.fields}
        if tool.context:
            given[tool.context] = self.context
        return functools.partial(target, **given)

    def _find_state(self, tool: Tool) -> Callable[..., Any]:
        """Return the episode's instance of a class tool; create it on the first call."""
        states = self.context.tools
        if tool.name not in states:
            states[tool.name] = tool.make(**when(tool.made_with, {tool.made_with: self.context}))
        state: Callable[..., Any] = states[tool.name]
        return state

    def _result(self, tool: Tool, value: Any) -> CallResult:
        try:
            output = to_output(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise BoundaryError(
                FailureKind.ENVIRONMENT_ERROR,
                f"the tool {tool.name} returned what is no output: {error}",
                hint="a tool returns a text, a ToolOutput, or a mapping with observation",
            ) from error
        return CallResult(
            tool.name,
            self._cut(tool, output.text),
            output.image,
            terminal=tool.terminal or output.terminal,
            info=output.info,
        )

    def _cut(self, tool: Tool, text: str) -> str:
        """Return a text that can be stored, truncated to the tool's limit with a note."""
        whole = replace_surrogates(text)
        limit = tool.max_length or MAX_LENGTH
        return whole if len(whole) <= limit else f"{whole[:limit]}\n[{len(whole) - limit} more characters are left out]"


def _words(error: Exception) -> str:
    reason = " ".join(str(error).split())[:_REASON]
    if isinstance(error, WebGymError | ValueError):
        return reason or type(error).__name__
    return ": ".join(filter(None, (type(error).__name__, reason)))


def as_openai(calls: Sequence[ToolCall], first: int) -> list[dict[str, Any]]:
    """Return calls in the format of OpenAI's messages, with ids numbered from `first`."""
    return [
        {
            "id": f"call_{number}",
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)},
        }
        for number, call in enumerate(calls, first)
    ]
