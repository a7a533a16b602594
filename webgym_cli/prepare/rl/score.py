"""Scoring of stored actions under the current policy, concurrent and with a durable cache."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from webgym_cli.agent.client.policy import digest_tokens
from webgym_cli.agent.client.prompt_logprobs import ClientFactory, PromptLogprobs
from webgym_cli.agent.tokens.tokens import ModelTokens
from webgym_cli.config.rl_data import ReplaySettings
from webgym_cli.errors import StoreError, WebGymError
from webgym_cli.jobs.workers import run_workers
from webgym_cli.prepare.rl.drop_reasons import MaskReason
from webgym_cli.prepare.rl.replay_plan import ReplayCandidate, ReplayPlan
from webgym_cli.prepare.rl.rows import TokenizedAction, tokenize_actions
from webgym_cli.records.events import EventSink, make_event
from webgym_cli.store.buffer import read_or_report
from webgym_cli.store.run import RunDir
from webgym_cli.util.files import append_lines, read_valid_lines
from webgym_cli.util.json_values import parse_object


def digest_action(action: TokenizedAction) -> str:
    """Return the SHA-256 of an action's tokens and the position where its response begins."""
    return hashlib.sha256(f"{digest_tokens(action.prompt)} {digest_tokens(action.response)}".encode()).hexdigest()


class LogprobCache:
    """Log-probabilities under one policy, which scores no action twice. Those under other policies stay in the file."""

    def __init__(self, path: Path, policy: str) -> None:
        """Read the file; damaged lines are scored again. Raises `OSError` if the file can't be read."""
        self._path = path
        self._policy = policy
        self._known: dict[bytes, array[float]] = {}
        for value in read_valid_lines(path, parse_object):
            with suppress(ValueError, KeyError, TypeError):  # a foreign line costs one request
                if value["policy"] == policy:
                    self._known[bytes.fromhex(value["action"])] = array("d", value["logprobs"])

    def __len__(self) -> int:
        return len(self._known)

    def get(self, digest: str) -> array[float] | None:
        """Return the natural log-probability of each token of an action, including its stop token; None if unknown."""
        return self._known.get(bytes.fromhex(digest))

    def add(self, digest: str, logprobs: Sequence[float]) -> array[float]:
        """Store an action's log-probabilities durably and return them. Raises `StoreError` if writing fails."""
        line = {"policy": self._policy, "action": digest, "logprobs": list(logprobs)}
        # Written before use: a crash during an hour of scoring loses only the actions in progress.
        append_lines(self._path, json.dumps(line, separators=(",", ":")))
        return self._known.setdefault(bytes.fromhex(digest), array("d", logprobs))


# Tolerance in nats for rounding errors at the edges of the window.
ROUNDING = 1e-9
# Maximum nats per token for which exp() does not overflow (e^709).
LARGEST = 700.0


def find_window_violation(mean: float, replay: ReplaySettings) -> MaskReason | None:
    """Return on which side of the window [lower, upper) an action is, or None if it is inside."""
    # Compared as logarithms, because products of probabilities underflow for long actions.
    low, high = replay.window
    if -mean < math.log(low) - ROUNDING:
        return MaskReason.BELOW_WINDOW
    most = LARGEST if high is None else min(LARGEST, math.log(high))
    return MaskReason.ABOVE_WINDOW if -mean >= most - ROUNDING else None


@dataclass(frozen=True, slots=True)
class ScoredAction:
    """An action with its score."""

    candidate: int
    """Number of its trajectory among the plan's candidates."""
    step: int
    mean: float
    """Mean log-probability of its tokens without the stop token, in nats: its perplexity is exp(-mean)."""


@dataclass(slots=True)
class ScoringResult:
    """Result of the scoring."""

    plan: ReplayPlan
    known: LogprobCache
    scored: list[ScoredAction] = field(default_factory=list)
    """Ordered by candidate and step."""
    dropped_trajectories: Counter[str] = field(default_factory=Counter)
    """Candidates whose actions can't be reconstructed, by `MaskReason`."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Actions without a score, by `MaskReason`."""
    damaged: list[str] = field(default_factory=list)
    asked: int = 0
    """Actions scored by the server; the others were cached."""


class LogprobScoring:
    """One scoring."""

    def __init__(
        self,
        plan: ReplayPlan,
        run: RunDir,
        tokens: ModelTokens,
        sink: EventSink,
        *,
        limit: int | None,
        make_client: ClientFactory,
    ) -> None:
        """`limit`: maximum row length in tokens. Raises `StoreError` if the cache can't be read."""
        self._plan, self._tokens, self._sink, self._limit, self._make_client = plan, tokens, sink, limit, make_client
        try:
            self._result = ScoringResult(plan, LogprobCache(run.action_logprobs, plan.policy))
        except OSError as error:
            raise StoreError(f"{run.action_logprobs}: can't be read: {error.strerror or error}") from error
        self._client: asyncio.Future[PromptLogprobs] | None = None
        self._done = 0

    async def execute(self) -> ScoringResult:
        """Score all actions without cached scores and return the result.

        Raises `WebGymError` if the server is down or refuses everything; finished scores stay cached.
        """
        waiting = iter(enumerate(self._plan.candidates))
        if self._plan.candidates:
            workers = min(self._plan.how.concurrency, len(self._plan.candidates))
            await run_workers(workers, lambda: self._work(waiting))
            self._refuse_empty_result()
        self._result.scored.sort(key=lambda one: (one.candidate, one.step))
        return self._result

    async def _work(self, waiting: Iterator[tuple[int, ReplayCandidate]]) -> None:
        for number, candidate in waiting:
            # In a thread: reading and tokenizing block, and the other workers' requests must continue.
            actions = await asyncio.to_thread(self._actions, candidate)
            if isinstance(actions, MaskReason):
                self._result.dropped_trajectories[actions.value] += 1
            else:
                for action in actions:
                    await self._score_action(number, action)
            self._done += 1
            facts = f"{len(self._result.scored)} actions, {self._result.asked} asked"
            progress = {"bar": "score", "done": self._done, "total": len(self._plan.candidates), "facts": facts}
            self._sink(make_event("replay_progress", **progress))

    def _actions(self, candidate: ReplayCandidate) -> list[TokenizedAction] | MaskReason:
        run, place, damaged = candidate.run, candidate.place, self._result.damaged
        trajectory = read_or_report(run, place, damaged, self._sink, without=("logprobs",))
        return MaskReason.DAMAGED if trajectory is None else tokenize_actions(trajectory, self._tokens)

    async def _score_action(self, number: int, action: TokenizedAction) -> None:
        if not action.content_length:
            self._result.dropped[MaskReason.EMPTY_ACTION.value] += 1
        elif self._limit is not None and action.longest > self._limit:
            self._result.dropped[MaskReason.TOO_LONG.value] += 1
        elif (mean := await self._fetch_mean(action)) is None:
            self._result.dropped[MaskReason.REFUSED.value] += 1
        else:
            self._result.scored.append(ScoredAction(number, action.step, mean))

    async def _fetch_mean(self, action: TokenizedAction) -> float | None:
        """Return the mean log-probability of the response, from cache or server; None if the server refuses it."""
        digest = digest_action(action)
        logprobs = self._result.known.get(digest)
        if logprobs is None:
            # One client for all workers, on first use only: a server may have to be started first.
            self._client = self._client or asyncio.ensure_future(self._make_client())
            response_logprobs = await (await self._client).of(action.prompt, action.response)
            if response_logprobs is None:
                return None
            self._result.asked += 1
            logprobs = self._result.known.add(digest, response_logprobs)
        return fmean(logprobs[: action.content_length])

    def _refuse_empty_result(self) -> None:
        """Raise, or report, that a single cause leaves nothing to replay."""
        pictures = self._result.dropped_trajectories[MaskReason.PICTURES.value]
        if pictures == len(self._plan.candidates):
            words = (
                f"nothing is replayed: the prompts of all {pictures} trajectories of the experience have pictures, and "
                "a server tells log-probabilities of token ids for text alone"
            )
            self._sink({"event": "note", "message": words})
        refused = self._result.dropped[MaskReason.REFUSED.value]
        if refused and not self._result.scored:
            raise WebGymError(
                f"rl.replay: the server takes none of the {refused} actions of the experience",
                hint="it must have the policy, and room for its longest prompts: -s serve.max_model_len=TOKENS",
            )
