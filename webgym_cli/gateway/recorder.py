"""The recorder: answers an agent's calls by the policy and stores its sessions as trajectories."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from webgym_cli.agent.actions.action_sets import CALL_FORMATS
from webgym_cli.agent.actions.parse import ParseError
from webgym_cli.agent.client.policy import digest_tokens
from webgym_cli.agent.prompt import PolicyReply, Prompt
from webgym_cli.agent.tokens.tokens import ModelTokens
from webgym_cli.config.model import Settings
from webgym_cli.errors import BoundaryError, StoreError
from webgym_cli.gateway.requests import ChatRequest, RequestError, convert_request
from webgym_cli.gateway.sessions import OPEN_SUFFIX, GatewayCall, Session, digest_key, recover_sessions
from webgym_cli.imports.chat import read_reply
from webgym_cli.jobs.budget import Budget, Work
from webgym_cli.records.action import Action
from webgym_cli.records.events import EventSink, make_event
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.task import Episode, Split, Task
from webgym_cli.records.trajectory import (
    Observation,
    Outcome,
    ParseErrorKind,
    PromptSpec,
    Screenshot,
    SentPrompt,
    Step,
    ToolResult,
    Trajectory,
    count_tokens,
)
from webgym_cli.rollout.agents import ModelAgent, build_step
from webgym_cli.rollout.episode import derive_sampling_seed
from webgym_cli.store.buffer import append, read_plan, scan_stored
from webgym_cli.store.run import RunDir, append_to_run, now
from webgym_cli.store.screenshots import ScreenshotStore

# Maximum number of calls of a session that is no planned episode.
MAX_CALLS = 1000
# Maximum number of a session's calls in flight, and of open sessions.
MAX_RUNNING, MAX_SESSIONS = 16, 4096
# Seconds between two looks at the sessions' deadlines, and the maximum exponent: after n failures to store a session
# every 2^n-th look tries again.
_LOOK, _MAX_EXPONENT = 1.0, 6


@dataclass(slots=True)
class Recorder:
    """Sessions of one split, and the policy that answers their calls."""

    run: RunDir
    settings: Settings
    agent: ModelAgent
    tokens: ModelTokens | None
    """The policy's tokenizer, to check that the server read the stored prompt; None: it is not known here."""
    sink: EventSink
    split: Split = Split.TRAIN
    iteration: int = 0
    budget: Budget = field(default_factory=Budget)
    """Limits new sessions; that of a rollout limits its episodes instead."""
    sessions: dict[str, Session] = field(default_factory=dict)
    """Open sessions by the digest of their key."""
    _turns: Counter[str] = field(default_factory=Counter)
    """Number of sessions by task."""

    def recover(self) -> None:
        """Open the sessions of an earlier gateway again, and store those that had ended."""
        for episode in read_plan(self.run, self.split, self.iteration, of_sessions=True):
            self._turns[episode.task.key] += 1
        for session in recover_sessions(self.run.sessions, self.agent.name):
            of, served = session.episode, (self.split, self.iteration, self.agent.name)
            if session.end is not None:
                self._store(session, again=True)
            elif (of.split, of.iteration, session.policy) == served:
                self.sessions[session.key] = session
                self.budget.add(count_tokens(call.step for call in session.calls), self.settings.policy_models)
            else:  # the policy that acted is not served any more
                detail = "the gateway serves another policy"
                self.end(session, Outcome(failure=FailureKind.CANCELLED, failure_detail=detail))

    def open_session(self, task: Task, seed: int) -> tuple[Session, str]:
        """Open a session and return it with its key. Raises `RequestError` if there are too many."""
        if len(self.sessions) >= MAX_SESSIONS:
            raise RequestError(429, f"{MAX_SESSIONS} sessions are open", "too_many_sessions")
        if reason := self.budget.refuse(Work.EPISODE):
            raise RequestError(429, reason, "cost_limit")
        name = f"{self.split}-{self.iteration:04d}-s{secrets.token_hex(8)}"
        position = self._turns[task.key]
        self._turns[task.key] += 1
        facts = {"split": self.split, "iteration": self.iteration, "task": task, "seed": seed, "position": position}
        episode = Episode.model_validate({"id": name, "max_steps": MAX_CALLS, **facts})
        append_to_run(self.run, self.run.plan(self.split, self.iteration, of_sessions=True), episode.model_dump_json())
        return self.admit(episode, OPEN_SUFFIX)

    def admit(self, episode: Episode, suffix: str = ".jsonl") -> tuple[Session, str]:
        """Open a session and return it with its key. `suffix`: of its file. Raises `StoreError`."""
        key = f"wg-{secrets.token_urlsafe(32)}"
        session = Session(episode, digest_key(key), self.run.sessions / f"{episode.id}{suffix}", self.agent.name)
        session.record("open", episode=episode, key=session.key, policy=session.policy)
        self.sessions[session.key] = session
        return session, key

    def find_session(self, key: str) -> Session:
        """Return the open session of a key. Raises `RequestError`."""
        session = self.sessions.get(digest_key(key)) if key else None
        if session is None:
            raise RequestError(401, "the key is of no open session", "invalid_api_key")
        return session

    async def call(self, session: Session, request: ChatRequest, digest: str, *, helper: bool) -> GatewayCall:
        """Return the call of a request, which is sampled once however often it is sent. Raises `RequestError`."""
        require_open(session)
        if known := next((call for call in session.calls if call.request == digest), None):
            return known
        if digest not in session.running:
            answered = len(session.calls) + len(session.running)
            session.exhausted = session.exhausted or answered >= session.episode.max_steps
            if session.exhausted:
                raise RequestError(400, "the session has had all its calls", "step_limit")
            if len(session.running) >= MAX_RUNNING:
                raise RequestError(429, f"{MAX_RUNNING} calls are in flight", "too_many_calls")
            task = asyncio.create_task(self._sample(session, request, digest, helper=helper))
            session.running[digest] = task
            task.add_done_callback(lambda _: session.running.pop(digest, None))
            # Retrieves an error: an agent that has left does not.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            # An agent that disconnects and asks again gets the same answer.
            return await asyncio.shield(session.running[digest])
        except asyncio.CancelledError:
            if session.end is None and session.key in self.sessions:
                raise
            raise RequestError(409, "the session ended meanwhile", "session_ended") from None

    def end(self, session: Session, end: Outcome) -> None:
        """End a session and store its trajectory. Raises `StoreError`: the session waits for the next try to end it.

        The end that was recorded first stays. From then on no call is answered, also while the session waits.
        """
        again = session.end is not None
        if not again:
            # Many agents catch the error of their last call, and are given a reward of 0.
            if not end.failure and session.error is not None and session.error.kind is not FailureKind.POLICY_REFUSED:
                end = Outcome(failure=session.error.kind, failure_detail=str(session.error)).to_storable()
            session.record("end", end=end)
            session.cancel_calls()
        self._store(session, again=again)
        self.dismiss(session)

    def dismiss(self, session: Session) -> None:
        """Close a session without storing it."""
        self.sessions.pop(session.key, None)
        session.cancel_calls()

    async def end_expired(self) -> None:
        """Until cancelled, end each session beyond the time limit as a failure, and store those that wait for it.

        Raises `BudgetSpentError` once a session was refused for the cost and none is open.
        """
        limit, failures = self.settings.rollout.episode_timeout, Counter[str]()
        late = Outcome(failure=FailureKind.EPISODE_TIMEOUT, failure_detail=f"longer than {limit:g} s")
        for look in count():
            for session in [one for one in self.sessions.values() if one.end is not None or one.age > limit]:
                if look % 2 ** min(failures[session.id], _MAX_EXPONENT):
                    continue
                try:
                    self.end(session, late)
                except StoreError as error:  # a full disk; each try reads the buffer
                    if not failures[session.id]:
                        message = f"{session.id} is not stored yet, and tried again: {error}"
                        self.sink(make_event("not_stored", id=session.id, reason=str(error), message=message))
                    failures[session.id] += 1
            if not self.sessions:
                self.budget.require()
            await asyncio.sleep(_LOOK)

    async def _sample(self, session: Session, request: ChatRequest, digest: str, *, helper: bool) -> GatewayCall:
        limits, store = self.settings.image, ScreenshotStore(self.run.screenshots)
        pixels = range(limits.image_min_pixels, limits.image_max_pixels + 1)
        call_format = CALL_FORMATS.find(self.settings.agent.call_format)
        conversation = await asyncio.to_thread(convert_request, request, call_format, pixels, store)
        shots = conversation.images
        seed = derive_sampling_seed(self.settings.seed, f"{session.id}/{digest}", 0)
        prompt = Prompt(
            conversation.messages,
            tuple(shot.sha256 for shot in shots),
            episode=session.id,
            greedy=session.episode.greedy,
            seed=seed,
            # What constrains the answer but doesn't change the sampling parameters.
            fields=request.model_dump(include={"response_format", "stop"}, exclude_none=True),
        )
        try:
            async with session.around_call():
                started = asyncio.get_running_loop().time()
                reply = await self.agent.act(prompt)
                seconds = asyncio.get_running_loop().time() - started
        except BoundaryError as error:
            session.error = error
            status = 400 if error.kind is FailureKind.POLICY_REFUSED else 503
            raise RequestError(status, str(error), error.kind.value) from None
        try:
            step = await asyncio.to_thread(self._make_step, session, request, prompt, shots, reply, seconds)
        except RequestError as error:  # the agent may take it for the end, and its answer would be scored
            session.error = BoundaryError(FailureKind.ENVIRONMENT_ERROR, str(error))
            raise
        facts = {"request": digest, "helper": helper, "tools": request.schemas, "step": step, "at": now()}
        session.record("call", call=GatewayCall(number=len(session.calls), **facts))
        self.budget.add(count_tokens([step]), self.settings.policy_models)
        session.error = None
        return session.calls[-1]

    def _make_step(
        self,
        session: Session,
        request: ChatRequest,
        prompt: Prompt,
        shots: Sequence[Screenshot],
        reply: PolicyReply,
        seconds: float,
    ) -> Step:
        if self.tokens is not None:
            if (digest := reply.generation.prompt_token_digest) is None:
                message = "the server returned no prompt tokens, so that the pictures it read can't be checked"
                raise RequestError(502, message, "no_prompt_tokens")
            ids = self.tokens.prompt_ids(prompt.messages, [(shot.width, shot.height) for shot in shots])
            if digest_tokens(ids) != digest:
                # Trained, it would be another prompt: pixels lost, or a picture cut off.
                message = "the server's prompt tokens, images included, are not those of the recorded messages"
                raise RequestError(502, message, "prompt_tokens_differ")
        cut = reply.generation.finish_reason == "length"
        spec = self._spec.model_copy(update={"tools": request.schemas})
        read = ParseError(ParseErrorKind.TRUNCATED) if cut else read_reply(reply.text, spec)
        if not isinstance(read, ParseError):
            calls = read.calls or () if isinstance(read, Action) else ()
            read = request.find_violation([call.name for call in calls]) or read
        pictures = tuple(ToolResult(name="image", text="", image=shot) for shot in dict.fromkeys(shots[:-1]))
        shown = shots[-1] if shots else None
        observation = Observation(url=session.episode.task.start_url, screenshot=shown, results=pictures)
        step = build_step(len(session.calls), observation, prompt, reply, read, seconds)
        sent = SentPrompt(messages=prompt.messages, images=prompt.images)
        return step.model_copy(update={"sent": sent}).to_storable()

    @property
    def _spec(self) -> PromptSpec:
        thinking = bool(self.settings.policy_config.thinking)
        return PromptSpec(tools=(), call_format=self.settings.agent.call_format, thinking=thinking)

    def build_spec(self, session: Session) -> PromptSpec:
        """Return the prompt parameters of a session's trajectory: the tools of the policy's last call."""
        tools = next((call.tools for call in reversed(session.calls) if not call.helper), ())
        return self._spec.model_copy(update={"tools": tools})

    def _store(self, session: Session, *, again: bool = False) -> None:
        """Store an ended session's trajectory, unless an earlier try (`again`) was broken off after that."""
        episode = session.episode
        stored = scan_stored(self.run, episode.split, episode.iteration) if again else ()
        if all(one.id != episode.id for one in stored):
            outcome = session.outcome(self.settings.rollout.success_threshold)
            trajectory = Trajectory(
                id=episode.id,
                episode=episode.id,
                split=episode.split,
                iteration=episode.iteration,
                task=episode.task,
                instruction=episode.task.instruction,
                seed=episode.seed,
                policy=session.policy,
                prompt=self.build_spec(session),
                sampling=self.agent.sampling(greedy=episode.greedy),
                steps=session.steps(),
                other_tokens=session.other_tokens,
                outcome=outcome.to_storable(),
                started_at=session.opened_at,
                seconds=round(session.age, 3),
            )
            append(self.run, trajectory)
            facts = {"id": episode.id, "reward": outcome.reward, "failure": outcome.failure, **session.count()}
            result = outcome.failure or f"reward {outcome.reward}"
            self.sink(make_event("session", **facts, message=f"{episode.id}: {result}, {facts['calls']} calls"))
        session.path.replace(session.path.with_name(f"{session.path.name.removesuffix(OPEN_SUFFIX)}.jsonl"))


def require_open(session: Session) -> None:
    """Raise `RequestError` for a session that has ended and waits to be stored, with the reward that it has."""
    if session.end is not None:
        raise RequestError(409, "the session has ended", "session_ended")
