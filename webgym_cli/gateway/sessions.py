"""Sessions of agents: each an append-only file of its calls, and one trajectory once it has ended.

A call and its delivery are appended before it is answered, so that a killed gateway loses nothing that an agent has
seen. A session whose file has an end but no trajectory is stored by the next gateway.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from webgym_cli.errors import BoundaryError, StoreError
from webgym_cli.records.base import Moment, Record
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.task import Episode
from webgym_cli.records.trajectory import Outcome, Step, count_tokens
from webgym_cli.records.usage import TokenUsage
from webgym_cli.store.run import now
from webgym_cli.util.files import append_lines, read_valid_lines

# Ending of the file of a session whose trajectory the gateway has to store yet.
OPEN_SUFFIX = ".open.jsonl"


class GatewayCall(Record):
    """One answered call of an agent."""

    number: int
    """Number within its session, from 0."""
    request: str
    """SHA-256 of the request with its `Idempotency-Key`: an equal one is the same call."""
    helper: bool = False
    """Whether the call is not the policy's (a judge, page extraction, ...): it is never trained."""
    tools: tuple[dict[str, Any], ...] = ()
    """JSON schemas of the tools of the request."""
    step: Step
    """Prompt, answer and sampled tokens."""
    at: Moment


class SessionLine(Record):
    """One line of a session's file."""

    event: Literal["open", "call", "abandoned", "delivered", "reward", "end"]
    at: Moment
    episode: Episode | None = None
    key: str | None = None
    """SHA-256 of the session's key; the key itself is never stored."""
    policy: str = ""
    """Of `open`: the policy that answers, as in trajectories; empty in files of earlier versions."""
    notes_deliveries: bool = True
    """In files of earlier versions; each answer that is sent has its `delivered`."""
    call: GatewayCall | None = None
    number: int | None = None
    """Number of the call whose answer is delivered; `abandoned`: the agent left before all of it was sent."""
    reward: float | None = None
    end: Outcome | None = None
    """How the session ended, without its reward."""


@dataclass(slots=True)
class Session:
    """A session: an episode of an agent."""

    episode: Episode
    key: str
    """SHA-256 of its key."""
    path: Path
    """Its file."""
    policy: str
    """Name of the policy that answers its calls."""
    opened_at: str = field(default_factory=now)
    began: float = field(default_factory=time.monotonic)
    """When this gateway opened it or took it over, by the monotonic clock: the wall clock may jump."""
    calls: list[GatewayCall] = field(default_factory=list)
    running: dict[str, asyncio.Task[GatewayCall]] = field(default_factory=dict)
    """Calls in flight by their request."""
    delivered: set[int] = field(default_factory=set)
    """Numbers of the calls whose answer the agent got. It abandoned the others, or this gateway's predecessor died."""
    reward: float | None = None
    end: Outcome | None = None
    around_call: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
    """Entered for each call while the policy answers it: a rollout pauses the time limit there, and counts steps."""
    error: BoundaryError | None = None
    """The failure in the last call, if the policy's servers, what they answered or the disk was at fault."""
    refused: int = 0
    """Number of refused calls since this gateway opened it or took it over."""
    refusal: str = ""
    """Why the last call was refused; empty if it was answered."""
    rewards: int = 0
    """Number of rewards it was given."""
    exhausted: bool = False
    """Whether a call was refused because the session has its maximum number of calls."""

    @property
    def id(self) -> str:
        """Id of the episode, also of its trajectory."""
        return self.episode.id

    @property
    def age(self) -> float:
        """Seconds since this gateway opened it or took it over."""
        return time.monotonic() - self.began

    @property
    def ends_unusable(self) -> bool:
        """Whether the last the agent got is an answer of the policy that was cut off or has no valid call."""
        if not self.calls or self.running:
            return False
        return self._is_step(self.calls[-1]) and self.calls[-1].step.parse_error is not None

    def steps(self) -> tuple[Step, ...]:
        """Return the policy's steps, without the calls of helpers and those that were abandoned."""
        kept = [call.step for call in self.calls if self._is_step(call)]
        return tuple(step.model_copy(update={"index": number}) for number, step in enumerate(kept))

    @property
    def other_tokens(self) -> TokenUsage:
        """Tokens of the answers that are no steps."""
        return count_tokens(call.step for call in self.calls if not self._is_step(call))

    def _is_step(self, call: GatewayCall) -> bool:
        return not call.helper and call.number in self.delivered

    def count(self) -> dict[str, int]:
        """Return the number of calls by what becomes of them."""
        helpers = sum(call.helper for call in self.calls)
        trained = len(self.steps())
        return {"calls": trained, "helpers": helpers, "abandoned": len(self.calls) - helpers - trained}

    def record(self, event: str, **facts: Any) -> None:
        """Append a line durably, and apply it. Raises `StoreError`."""
        line = SessionLine.model_validate({"event": event, "at": now(), **facts})
        append_lines(self.path, line.model_dump_json(exclude_defaults=True))
        self._apply(line)

    def note_delivery(self, call: GatewayCall) -> bool:
        """Record that the answer to a call is delivered; return whether it was not before. Raises `StoreError`."""
        if call.number in self.delivered or self.end is not None:
            return False
        self.record("delivered", number=call.number)
        self.error = None
        return True

    def note_loss(self, call: GatewayCall) -> None:
        """Record that the agent left while it was sent the answer to a call."""
        if self.end is not None:
            return
        self.delivered.discard(call.number)
        with suppress(StoreError):  # the agent is gone; its next call is refused because of the disk
            self.record("abandoned", number=call.number)

    def cancel_calls(self) -> None:
        """Cancel the calls in flight."""
        for task in self.running.values():
            task.cancel()

    def outcome(self, success_threshold: float) -> Outcome:
        """Return the outcome of an ended session; its reward is None if it was given none."""
        end = self.end or Outcome()
        if end.failure is not None:
            return end
        if not self.steps():
            return Outcome(failure=FailureKind.ENVIRONMENT_ERROR, failure_detail="the agent made no call of the policy")
        return Outcome.of_other_system(self.reward, end.answer, "given to the gateway", success_threshold)

    def _apply(self, line: SessionLine) -> None:
        if line.call is not None:
            self.calls.append(line.call)
        if line.event == "delivered" and line.number is not None:
            self.delivered.add(line.number)
        if line.event == "abandoned" and line.number is not None:
            self.delivered.discard(line.number)
        if line.reward is not None:
            self.reward, self.rewards = line.reward, self.rewards + 1
        if line.end is not None:
            self.end = line.end


def recover_sessions(folder: Path, policy: str) -> Iterator[Session]:
    """Yield the sessions that are not stored yet. A torn line is of a call that was never answered.

    `policy`: that of sessions whose file has none.
    """
    for path in sorted(folder.glob(f"*{OPEN_SUFFIX}")):
        session: Session | None = None
        for line in read_valid_lines(path, SessionLine.model_validate_json):
            if line.episode is not None and line.key is not None:
                session = Session(line.episode, line.key, path, line.policy or policy, line.at)
            if session is not None:
                session._apply(line)
        if session is not None:
            yield session


def digest_key(key: str) -> str:
    """Return what a file stores of a key."""
    return hashlib.sha256(key.encode(errors="replace")).hexdigest()
