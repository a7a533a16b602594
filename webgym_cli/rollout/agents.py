"""Agents that act in an episode: a model behind a server, or the environment's expert (oracle)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from webgym_cli.agent.memory_sections import MemorySections, format_sections
from webgym_cli.agent.prompt import Prompt
from webgym_cli.agent.reply import PolicyClient, PolicyReply, ServerCounters
from webgym_cli.agent.sanitize import sanitize_line
from webgym_cli.agent.tool_calls import render_tool_calls
from webgym_cli.agent.tools import describe_action, render_web_action
from webgym_cli.agent.webrl_forms import render_webrl_action
from webgym_cli.environments.base import Environment
from webgym_cli.records.action import Action, ActionName, InteractionMode
from webgym_cli.records.sampling import Sampling
from webgym_cli.records.trajectory import Generation, PromptVersion
from webgym_cli.records.webrl import AnyAction, WebRLAction


class Agent(Protocol):
    """Produces the response to a prompt."""

    name: str
    """Stands in the trajectory as `policy`."""

    async def act(self, prompt: Prompt, environment: Environment) -> PolicyReply:
        """Return the response. Raises `BoundaryError`."""
        ...

    def sampling(self, *, greedy: bool) -> Sampling | None:
        """Return what the responses to prompts that are `greedy`, or are not, are sampled from; None for an expert."""
        ...


class ModelAgent:
    """An agent whose responses come from a policy server."""

    def __init__(self, policy: PolicyClient) -> None:
        self.name = policy.name
        self._policy = policy

    async def act(self, prompt: Prompt, environment: Environment) -> PolicyReply:
        """Query the policy."""
        return await self._policy.reply(prompt)

    def sampling(self, *, greedy: bool) -> Sampling:
        """Return what the policy samples from."""
        return self._policy.sampling(greedy=greedy)

    def servers(self) -> ServerCounters:
        """Return the counters of the policy's servers."""
        return self._policy.servers()


class OracleAgent:
    """The environment's expert; writes its actions in the policy's response format."""

    name = "oracle"

    def __init__(self, mode: InteractionMode, version: PromptVersion = PromptVersion.VANILLA) -> None:
        self._mode = mode
        self._version = version

    async def act(self, prompt: Prompt, environment: Environment) -> PolicyReply:
        """Return the expert's next action in the response format of the prompt."""
        action = await environment.expert_action()
        text = self._render_action(action) if environment.tools is None else _render_tool_calls(action)
        return PolicyReply(text=text, generation=Generation(finish_reason="stop"))

    def sampling(self, *, greedy: bool) -> None:
        """Return nothing: an expert samples from no distribution."""

    def _render_action(self, action: AnyAction) -> str:
        """Return an action on a page: as a tool call, with notes where the prompt asks for them, or as WebRL has it."""
        if self._version is PromptVersion.WEBRL or isinstance(action, WebRLAction):
            return render_webrl_action(action)
        call = render_web_action(action, self._mode)
        return f"{format_sections(_default_notes(action))}\n{call}" if self._version is PromptVersion.COMPLETE else call


def servers_of(agent: Agent) -> Callable[[], ServerCounters]:
    """Return a function that reads the request counters of an agent's servers; an expert has none."""
    return agent.servers if isinstance(agent, ModelAgent) else dict


def _render_tool_calls(action: AnyAction) -> str:
    if isinstance(action, WebRLAction):
        raise ValueError(f"{action.name} is no call of a tool")
    return render_tool_calls(action)


def _default_notes(action: Action) -> MemorySections:
    """Return the memory sections of an expert: no memory, one goal."""
    state = "done" if action.name is ActionName.ANSWER else "doing"
    return MemorySections(
        progress={"the task": state}, intention="the task", action=sanitize_line(describe_action(action))
    )
