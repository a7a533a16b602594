"""Judge protocols: questions about a trajectory, and how the answers become a verdict."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from webgym_cli.rewards.judge.session import JudgeSession
from webgym_cli.util.json_values import digest_json
from webgym_cli.util.registry import Registry, list_constants


@dataclass(frozen=True, slots=True)
class JudgeProtocol:
    """A judge protocol. Plugins call `PROTOCOLS.register("strict", JudgeProtocol(judge_strictly, RULES))`."""

    run: Callable[[JudgeSession], Awaitable[bool | None]]
    """Asks the questions (`session.vote`, `session.ask`) and returns whether the task was solved.

    None only with a `failure` in `session.fields`.
    """
    prompts: Any
    """All fixed texts of the questions, as JSON: if they change, trajectories are judged again."""

    max_images: int = 48
    """Maximum number of screenshots per verdict where `judge.max_images` is null."""

    @property
    def digest(self) -> str:
        """SHA-256 of the prompts."""
        return digest_json(self.prompts)


PROTOCOLS: Registry[JudgeProtocol] = Registry(
    noun="judge protocol",
    setting="judge.protocol",
    item_type=JudgeProtocol,
    builtin={
        **list_constants("webgym_cli.rewards.judge.webgym", "webgym"),
        **list_constants(
            "webgym_cli.rewards.judge.published", "webvoyager", "webjudge", "agenttrek", "agentrewardbench"
        ),
    },
    usage="from webgym_cli.rewards.judge.protocol import JudgeProtocol, and make one of your function",
)
