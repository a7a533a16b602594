"""Who acts in an episode: a model behind a server, or the environment's own expert."""

from __future__ import annotations

from typing import Protocol

from webgym_cli.agent.policy import Policy, Reply
from webgym_cli.agent.prompt import Prompt
from webgym_cli.agent.tools import render_call
from webgym_cli.environments.base import Environment
from webgym_cli.records.action import InteractionMode
from webgym_cli.records.trajectory import Generation


class Actor(Protocol):
    """Answers a prompt, with the environment at hand."""

    name: str
    """Stands in the trajectory as `policy`."""

    async def act(self, prompt: Prompt, environment: Environment) -> Reply:
        """Return the response. Raises `BoundaryError`."""
        ...


class ModelActor:
    """A policy that sees nothing but its prompt."""

    def __init__(self, policy: Policy) -> None:
        self.name = policy.name
        self._policy = policy

    async def act(self, prompt: Prompt, environment: Environment) -> Reply:
        """Ask the policy."""
        return await self._policy.reply(prompt)


class OracleActor:
    """The environment's expert; it writes its actions as the policy should."""

    name = "oracle"

    def __init__(self, mode: InteractionMode) -> None:
        self._mode = mode

    async def act(self, prompt: Prompt, environment: Environment) -> Reply:
        """Return the expert's next action as a tool call."""
        action = await environment.expert_action()
        return Reply(text=render_call(action, self._mode), generation=Generation(finish_reason="stop"))
