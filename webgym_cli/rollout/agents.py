"""Agents that act in an episode: a model behind a server, or the environment's expert (oracle)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from webgym_cli.agent.actions.action_sets import ACTION_SETS, CALL_FORMATS
from webgym_cli.agent.actions.parse import ParseError
from webgym_cli.agent.client.gate import PolicyGate
from webgym_cli.agent.forms.reasoning import add_empty_thought
from webgym_cli.agent.prompt import PolicyReply, Prompt, ServerCounters
from webgym_cli.config.model import Settings
from webgym_cli.environments.base import Environment
from webgym_cli.errors import UsageError
from webgym_cli.records.sampling import Sampling
from webgym_cli.records.series import EXPERT
from webgym_cli.records.trajectory import Generation, Observation, Step
from webgym_cli.records.webrl import AnyAction

if TYPE_CHECKING:
    from webgym_cli.agent.client.load_balancer import BalancedPolicy

# Maximum characters of a parse error's detail.
_DETAIL_LIMIT = 200


class Agent(Protocol):
    """Produces the response to a prompt."""

    @property
    def name(self) -> str:
        """Name that trajectories store as `policy`."""
        ...

    async def act(self, prompt: Prompt, environment: Environment) -> PolicyReply:
        """Return the response. Raises `BoundaryError`."""
        ...

    def sampling(self, *, greedy: bool) -> Sampling | None:
        """Return the sampling parameters of greedy or sampled responses; None if they are unknown, or an expert's."""
        return None


class ModelAgent:
    """An agent whose responses come from a policy server."""

    def __init__(self, policy: BalancedPolicy, gate: PolicyGate | None = None) -> None:
        """`gate`: provides the policy version and holds requests while it changes; None if the version is unknown."""
        self._policy = policy
        self._gate = gate or PolicyGate()

    @property
    def name(self) -> str:
        """Name of the current policy."""
        return self._gate.policy.name or self._policy.name

    async def act(self, prompt: Prompt, environment: Environment | None = None) -> PolicyReply:
        """Query the policy; without `environment` for an agent that is not webgym's."""
        async with self._gate.request() as policy:
            reply = await self._policy.reply(replace(prompt, model=policy.model, servers=policy.servers))
        if policy.version is None:
            return reply
        return replace(reply, generation=reply.generation.model_copy(update={"policy_version": policy.version}))

    def sampling(self, *, greedy: bool) -> Sampling:
        """Return the policy's sampling parameters."""
        return self._policy.sampling(greedy=greedy)

    def servers(self) -> ServerCounters:
        """Return the counters of the policy's servers."""
        return self._policy.servers()


class OracleAgent(Agent):
    """The environment's expert; writes its actions in the policy's response format."""

    name = EXPERT

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def act(self, prompt: Prompt, environment: Environment) -> PolicyReply:
        """Return the expert's next action in the response format of the prompt."""
        action, settings = await environment.expert_action(), self._settings
        formats, name = ACTION_SETS, str(settings.context_config.prompt_version)
        hint = "-s context_config.prompt_version=full, or another set of docs/actions.md that has it"
        if environment.tools is not None:
            formats, name, hint = CALL_FORMATS, settings.agent.call_format, "-s agent.call_format=hermes"
        try:
            text = formats.find(name).format_action(action, settings.context_config.interaction_mode)
        except ValueError as error:
            raise UsageError(f"the expert's action can't be written as {name} has it: {error}", hint=hint) from error
        text = add_empty_thought(text, thinking=settings.policy_config.thinking)
        return PolicyReply(text=text, generation=Generation(finish_reason="stop"))


def build_step(
    index: int,
    observation: Observation,
    prompt: Prompt,
    reply: PolicyReply,
    parsed: AnyAction | ParseError,
    seconds: float,
) -> Step:
    """Return the step of a reply. `seconds`: how long the policy took."""
    outcome: dict[str, Any] = {"action": parsed}
    if isinstance(parsed, ParseError):
        outcome = {"action": None, "parse_error": parsed.kind, "parse_detail": parsed.detail[:_DETAIL_LIMIT]}
    return Step(
        index=index,
        observation=observation,
        response=reply.text,
        **outcome,
        prompt_digest=prompt.digest,
        generation=reply.generation,
        policy_seconds=round(seconds, 4),
    )
