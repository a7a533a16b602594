"""The policy's interface. Kept apart from its clients, so that the expert runs without loading one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from webgym_cli.agent.prompt import Prompt
from webgym_cli.records.sampling import Sampling
from webgym_cli.records.trajectory import Generation

# Counters by name, for each server by its address: `requests` sent to it, `failures` among them that were its fault,
# `opened` (how often it was left alone for a while), `seconds` that the requests took, all together; and, at the
# moment, `outstanding` requests and whether it is left alone (`open`, 0 or 1).
ServerCounters = dict[str, dict[str, float]]


@dataclass(frozen=True, slots=True)
class PolicyReply:
    """A policy's answer."""

    text: str
    """The whole response. A thought that the server's reasoning parser took out stands in front again, between
    `<think>` and `</think>`. The sampled token ids need not begin with `<think>`: the chat template may have opened
    the thought in the prompt, and `prepare` allows for that."""
    generation: Generation


class PolicyClient(Protocol):
    """Something that answers a prompt. Raises `BoundaryError` when it can't."""

    name: str
    """Stands in the trajectory as `policy`."""

    async def reply(self, prompt: Prompt) -> PolicyReply:
        """Return the response to a prompt, within the policy's deadline."""
        ...

    def sampling(self, *, greedy: bool) -> Sampling:
        """Return what replies to prompts that are `greedy`, or are not, are sampled from."""
        ...

    def servers(self) -> ServerCounters:
        """Return the counters of the servers that share the requests; nothing where there is only one."""
        ...
