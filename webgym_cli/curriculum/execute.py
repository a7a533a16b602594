"""Task generation: requests new tasks in rounds and keeps those that pass all filters."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import Any

from webgym_cli.agent.client.chat import (
    REPLY_SCHEMA,
    ChatClient,
    ChatError,
    JudgeReply,
    RecordT,
    ReplyFormat,
    RequestCounter,
)
from webgym_cli.agent.prompts.orm_prompt import build_initial_orm_prompt, compute_prompt_digest
from webgym_cli.agent.tokens.orm_tokens import OrmError
from webgym_cli.config.generate import GenerateSettings
from webgym_cli.config.judge import OrmSettings
from webgym_cli.curriculum.filters import (
    NoveltyFilter,
    Rejection,
    TaskCandidate,
    filter_by_probability,
)
from webgym_cli.curriculum.journal import AnswerJournal, StoredAnswer
from webgym_cli.curriculum.plan import GenerationPlan
from webgym_cli.curriculum.prompts import TASKS_SCHEMA, NewTasks, build_feasibility_chat, build_generation_chat
from webgym_cli.curriculum.seeds import SeedRequest, build_task, list_forms, list_names
from webgym_cli.jobs.workers import Failures, run_workers
from webgym_cli.records.events import EventSink, make_event
from webgym_cli.rewards.orm.client import OrmClient
from webgym_cli.util.json_values import digest_json

_TASKS = ReplyFormat("generate", NewTasks, TASKS_SCHEMA)
_FEASIBLE = ReplyFormat("feasible", JudgeReply, REPLY_SCHEMA)

# Processes one item; returns the failure reason, empty on success.
Work = Callable[[Any], Coroutine[Any, Any, str]]
# Returns the critic's outputs for each of several tasks.
Values = Callable[[Sequence[TaskCandidate]], Awaitable[Sequence[Sequence[float]]]]


@dataclass(slots=True)
class TaskGeneration:
    """One execution of `webgym tasks generate`."""

    plan: GenerationPlan
    settings: GenerateSettings
    """Settings, with the server's address."""
    orm: OrmSettings
    """ORM settings with its address, if the plan uses an ORM as critic."""
    journal: AnswerJournal
    sink: EventSink
    values: Values | None = None
    """The policy's own critic, if the plan uses it."""
    on_request: Callable[[RequestCounter], None] = lambda request: None
    """Called after each request to the generator, answered or not."""
    calls: int = 0
    """Number of requests, including retries."""
    asked: int = 0
    """Requests for new tasks sent by this command; answers of others were already stored."""
    unanswered: int = 0
    """Requests for new tasks without a readable answer."""
    candidates: list[TaskCandidate] = field(default_factory=list)
    """All new tasks in the order of the requests."""
    _chat: ChatClient = field(init=False)
    _critic: OrmClient | None = field(init=False)

    def __post_init__(self) -> None:
        self._chat = ChatClient(self.settings)
        self._critic = OrmClient(self.orm) if self.plan.critic == "orm" else None

    @property
    def kept(self) -> list[TaskCandidate]:
        """New tasks that were not rejected."""
        return _list_passed(self.candidates)

    async def execute(self) -> dict[str, Any]:
        """Run all rounds and return the summary.

        Raises `WebGymError` if a server is down or keeps sending unusable answers; received answers stay stored.
        """
        began = time.monotonic()
        novelty = NoveltyFilter(self.plan.known, self.settings.near_duplicate)
        try:
            for requests in self.plan.rounds:
                await self._round(requests, novelty)
                if self.settings.tasks is not None and len(self.kept) >= self.settings.tasks:
                    break
        finally:
            await self._chat.close()
            if self._critic is not None:
                await self._critic.close()
        for extra in self.kept[self.settings.tasks :] if self.settings.tasks is not None else ():
            extra.reject(Rejection.SURPLUS)
        reasons = Counter(candidate.rejection for candidate in self.candidates)
        sites = Counter(candidate.request.group.site for candidate in self.kept)
        return {
            "event": "generate",
            "seeds": self.plan.seeds,
            "proposed": len(self.candidates),
            "kept": len(self.kept),
            "rejected": {why.value: reasons[why] for why in Rejection},
            "kept_by_site": dict(sorted(sites.items())),
            "asked": self.asked,
            "unanswered": self.unanswered,
            "calls": self.calls,
            "critic": self.plan.critic,
            "model": self.settings.model,
            "seconds": round(time.monotonic() - began, 2),
        }

    async def _round(self, requests: Sequence[SeedRequest], novelty: NoveltyFilter) -> None:
        """Request tasks for every site once and filter them; each filter sees only what the previous ones passed."""
        await self._run_all(requests, self._request_tasks, "generate.base_url and generate.model")
        new = list(chain.from_iterable(map(self._build_candidates, requests)))
        for candidate in _list_passed(new):
            novelty.reject_repeated(candidate)
        if self.values is not None:
            passed = _list_passed(new)
            for candidate, heads in zip(passed, await self.values(passed) if passed else (), strict=True):
                filter_by_probability(candidate, heads, self.settings.critic_window)
        if self._critic is not None:
            await self._run_all(_list_passed(new), self._query_critic, "orm.base_url and orm.model")
        if self.settings.feasibility:
            await self._run_all(_list_passed(new), self._query_feasibility, "generate.base_url and generate.model")
        self.candidates += new
        for candidate in new:
            self.sink(make_event("new_task", **candidate.to_json()))

    async def _run_all(self, things: Sequence[Any], work: Work, names: str) -> None:
        """Process all items concurrently. Raises `WebGymError` after too many consecutive failures."""
        failures = Failures(min(self.settings.concurrency, len(things)), len(things))
        hint = f"check {names}, then run the same command again: what was answered stays"

        async def worker(waiting: Iterator[Any]) -> None:
            for thing in waiting:
                failures.record(await work(thing), hint)

        waiting = iter(things)
        await run_workers(failures.workers, lambda: worker(waiting))

    async def _request_tasks(self, request: SeedRequest) -> str:
        if self.journal.get(self._key(request)) is not None:
            return ""
        self.asked += 1
        try:
            answer = await self._ask(self._build_chat(request), _TASKS)
        except ChatError as error:
            self.unanswered += 1
            self._emit_progress(request, str(error))
            return str(error)
        self.journal.put(StoredAnswer(key=self._key(request), tasks=answer.tasks))
        self._emit_progress(request, "")
        return ""

    async def _ask(
        self,
        chat: Sequence[Mapping[str, Any]],
        form: ReplyFormat[RecordT],
        sampling: Mapping[str, Any] = MappingProxyType({}),
    ) -> RecordT:
        request = RequestCounter()
        try:
            return await self._chat.ask(chat, form, request, model=self.settings.model, sampling=sampling)
        finally:
            self.calls += request.calls
            self.on_request(request)

    def _build_candidates(self, request: SeedRequest) -> Iterator[TaskCandidate]:
        for text in self.journal.list_tasks(self._key(request)):
            instruction = " ".join(text.split())
            candidate = TaskCandidate(instruction, build_task(instruction, request), request)
            if not candidate.task.check and any(seed.task.check for seed in request.group.seeds):
                candidate.reject(Rejection.NO_CHECK)
            yield candidate

    async def _query_critic(self, candidate: TaskCandidate) -> str:
        """Estimate the success probability from the task and its start page with the critic."""
        page = candidate.request.group.start.page
        if self._critic is None or page is None:
            candidate.reject(Rejection.CRITIC_SILENT, "no first page was seen of its site")
            return ""
        prompt = build_initial_orm_prompt(candidate.instruction, page)
        key = digest_json(["critic", compute_prompt_digest(self.orm), prompt.instruction, prompt.page])
        if (answer := self.journal.get(key)) is None:
            try:
                reply = await self._critic.ask(prompt)
            except OrmError as error:
                candidate.reject(Rejection.CRITIC_SILENT, str(error))
                return str(error)
            self.calls += 1
            self.journal.put(answer := StoredAnswer(key=key, probability=reply.probability.yes))
        filter_by_probability(candidate, [answer.probability or 0.0], self.settings.critic_window)
        return ""

    async def _query_feasibility(self, candidate: TaskCandidate) -> str:
        """Check feasibility. An unparsable response and a missing one both count as infeasible."""
        chat = build_feasibility_chat(candidate.task, candidate.request.group.site)
        key = digest_json(["feasible", self.settings.model, chat])
        if (answer := self.journal.get(key)) is None:
            try:
                reply = await self._ask(chat, _FEASIBLE, {"temperature": 0.0})
                answer = StoredAnswer(key=key, feasible=reply.yes, reason=reply.reason)
            except ChatError as error:
                if error.unavailable:
                    candidate.reject(Rejection.FEASIBILITY_SILENT, str(error))
                    return str(error)
                answer = StoredAnswer(key=key, reason=str(error))
            self.journal.put(answer)
        if answer.feasible is None:
            candidate.reject(Rejection.FEASIBILITY_UNREADABLE, answer.reason)
        elif not answer.feasible:
            candidate.reject(Rejection.INFEASIBLE, answer.reason)
        return ""

    def _build_chat(self, request: SeedRequest) -> list[dict[str, Any]]:
        shown = [seed.instruction for seed in request.seeds]
        start = request.group.start
        names = list_names(start.page) if start.page else []
        url, count = start.task.start_url, self.settings.tasks_per_request
        return build_generation_chat(request.group.site, url, names, shown, count, list_forms(request.group))

    def _key(self, request: SeedRequest) -> str:
        how = self.settings
        extra = filter(None, [how.extra_body])  # stored requests lack it
        chat = self._build_chat(request)
        return digest_json(["generate", how.model, how.temperature, how.top_p, request.round, chat, *extra])

    def _emit_progress(self, request: SeedRequest, problem: str) -> None:
        self.sink(
            make_event(
                "generated",
                site=request.group.site,
                round=request.round,
                failure_detail=problem or None,
                bar="generate",
                done=self.asked,
                total=sum(map(len, self.plan.rounds)),
                facts=f"{len(self.kept)} kept",
            )
        )


def _list_passed(candidates: Sequence[TaskCandidate]) -> list[TaskCandidate]:
    return [candidate for candidate in candidates if candidate.rejection is None]


def format_generation_summary(summary: Mapping[str, Any]) -> str:
    """Return the summary as one line."""
    turned = ", ".join(f"{count} {why}" for why, count in summary["rejected"].items() if count)
    parts = [f"{summary['kept']} new tasks of {summary['proposed']} proposed ({turned or 'none turned down'})"]
    if unanswered := summary["unanswered"]:
        parts.append(f"{unanswered} requests without an answer")
    return ", ".join([*parts, f"{summary['calls']} calls in {summary['seconds']:g} s"])
