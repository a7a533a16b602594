"""Judges a trajectory: the questions in their order, and what their answers make of it. Fails closed.

Blocking, for every trajectory; without an answer that is all. Then which screenshots matter, criterion B (can all that
the answer claims be seen?), criterion A fact by fact, and the reference answer; the first that fails decides. What
can't be read after all repeats is `judge_failed`: neither a success nor a failure.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from webgym_cli.agent.chat import ChatError
from webgym_cli.config.rollout import JudgeSettings
from webgym_cli.errors import StoreError
from webgym_cli.records.failure import FailureKind, Stop
from webgym_cli.records.judgement import Judgement, Verdict
from webgym_cli.records.trajectory import Step, Trajectory
from webgym_cli.rewards.judge import prompts
from webgym_cli.rewards.judge.client import ImageLoader, JudgeClient, JudgeContext, JudgeReply, model_for
from webgym_cli.rewards.judge.prompts import JudgeQuestion, QuestionKind
from webgym_cli.store.run import now

CLAIMS_QUESTION = "everything that the answer claims can be seen"
"""Stands as the question of criterion B."""
CARRIED_OUT = "The task was carried out: "
"""Makes a fact of the instruction, for a task with neither rubric nor reference answer."""


class Judge:
    """A judge with its connections. `close` it at the end."""

    def __init__(self, settings: JudgeSettings, images: ImageLoader) -> None:
        """`images` gives a screenshot's PNG bytes by its SHA-256. Raises `SettingsError` without a judge to ask."""
        self._settings = settings
        self._images = images
        self._client = JudgeClient(settings)
        self._digest = compute_settings_digest(settings)

    async def judge(self, trajectory: Trajectory) -> Judgement:
        """Return the judgement of a trajectory that worked; what the judge does wrong is its failure, not an exception.

        A screenshot that the store lost is `judge_failed` too. Cancellation passes.
        """
        hearing = _JudgeSession(trajectory, self._settings, self._client, JudgeContext(self._images))
        start = time.monotonic()
        try:
            await hearing.run()
        except (ChatError, StoreError) as error:
            unavailable = isinstance(error, ChatError) and error.unavailable
            failed = {"failure": FailureKind.JUDGE_FAILED, "failure_detail": str(error), "unavailable": unavailable}
            hearing.found.update(failed, success=None)
        return Judgement(
            trajectory=trajectory.id,
            models=name_models(self._settings),
            settings_digest=self._digest,
            calls=hearing.case.calls,
            seconds=round(time.monotonic() - start, 3),
            judged_at=now(),
            **hearing.found,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


def name_models(settings: JudgeSettings) -> dict[str, str]:
    """Return which model does which job."""
    jobs = {"key_points": QuestionKind.KEY_POINT, "blocking": QuestionKind.BLOCKING, "verdict": QuestionKind.FACT}
    return {name: model_for(settings, job) for name, job in jobs.items()}


def compute_settings_digest(settings: JudgeSettings) -> str:
    """Return the SHA-256 of all that decides a judgement: models, votes, limits, the form of answers, the prompts.

    Where the judge listens, its key, deadlines and repeats don't belong to it.
    """
    deciding = ("structured_output", "temperature", "max_tokens", "votes", "max_images", "max_blocking_images")
    content = {
        "models": name_models(settings),
        "prompts": prompts.compute_prompts_digest(),
        "check_claims": settings.check_claims,
        **{name: getattr(settings, name) for name in deciding},
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def list_facts(trajectory: Trajectory) -> tuple[str, ...]:
    """Return the facts to check: the rubric, or the instruction where neither rubric nor reference answer says more.

    With a reference answer alone there are no facts; the answer is compared with it.
    """
    task = trajectory.task
    if task.rubric or task.reference_answer:
        return task.rubric
    return (f"{CARRIED_OUT}{trajectory.instruction}",)


def select_distinct(steps: Sequence[Step]) -> list[int]:
    """Return the indices of the screenshots that differ from the one after them; the last is always among them."""
    shots = [step.observation.screenshot for step in steps]
    return [index for index, shot in enumerate(shots) if index + 1 == len(shots) or shot != shots[index + 1]]


def select_evenly(indices: Sequence[int], limit: int) -> list[int]:
    """Return at most `limit` of the indices, evenly spread, first and last always in (the last alone for 1)."""
    if len(indices) <= limit:
        return list(indices)
    if limit == 1:
        return [indices[-1]]
    return [indices[round(number * (len(indices) - 1) / (limit - 1))] for number in range(limit)]


@dataclass(slots=True)
class _JudgeSession:
    """One trajectory before the judge."""

    trajectory: Trajectory
    settings: JudgeSettings
    client: JudgeClient
    case: JudgeContext
    found: dict[str, Any] = field(default_factory=dict)
    """Fields of the judgement, as they become known: what was found before a failure is kept."""

    async def run(self) -> None:
        """Ask what there is to ask. Raises `ChatError` and `StoreError`."""
        if await self._blocked():
            return
        if self.trajectory.outcome.stop is not Stop.ANSWERED:
            self.found["success"] = False
            return
        if not self.trajectory.steps:
            raise ChatError("there is no screenshot to judge by")
        shown = await self._key_points()
        self.found["key_points"] = tuple(shown)
        self.found["success"] = await self._succeeded(shown)

    async def _blocked(self) -> bool:
        """Ask whether the site shut the browser out."""
        asked = select_evenly(select_distinct(self.trajectory.steps), self.settings.max_blocking_images)
        if not asked:
            return False
        verdict = await self._vote(prompts.blocking(self.trajectory, asked), "blocked")
        self.found.update(blocked=verdict.passed, blocked_reason=verdict.reason)
        if verdict.passed:
            self.found.update(success=None, failure=FailureKind.SITE_BLOCKED, failure_detail=verdict.reason)
        return verdict.passed

    async def _key_points(self) -> list[int]:
        """Return the screenshots that matter, the newest `max_images` of them, the last one always."""
        *earlier, last = select_distinct(self.trajectory.steps)
        matter = await _all(*(self._matters(index) for index in earlier))
        chosen = [index for index, matters in zip(earlier, matter, strict=True) if matters]
        return [*chosen, last][-self.settings.max_images :]

    async def _matters(self, index: int) -> bool:
        """Ask about one screenshot. One that can't be told about is shown: rather one too many than one too few."""
        try:
            reply = await self.client.ask(prompts.key_point(self.trajectory, index), self.case)
        except ChatError:
            return True
        return reply.yes

    async def _succeeded(self, shown: list[int]) -> bool:
        if self.settings.check_claims:
            claims = await self._vote(prompts.claims(self.trajectory, shown), CLAIMS_QUESTION)
            self.found["claims"] = claims
            if not claims.passed:
                return False
        facts = list_facts(self.trajectory)
        for number, fact in enumerate(facts):
            verdict = await self._vote(prompts.fact(self.trajectory, facts, number, shown), fact)
            self.found["facts"] = (*self.found.get("facts", ()), verdict)
            if not verdict.passed:
                return False
        if expected := self.trajectory.task.reference_answer:
            self.found["reference"] = await self._vote(prompts.reference(self.trajectory, expected), expected)
            return bool(self.found["reference"].passed)
        return True

    async def _vote(self, question: JudgeQuestion, asked: str) -> Verdict:
        """Ask as often as there are votes. Raises `ChatError` when those that can be read don't settle it."""
        votes = self.settings.votes
        replies = await _all(*(self._vote_once(question) for _ in range(votes)))
        read = [reply for reply in replies if isinstance(reply, JudgeReply)]
        yes = sum(reply.yes for reply in read)
        passed = 2 * yes > votes
        if not passed and 2 * (len(read) - yes) < votes:  # those that can't be read could still have made a majority
            errors = [reply for reply in replies if isinstance(reply, ChatError)]
            raise next((error for error in errors if error.unavailable), errors[0])
        reason = next(reply.reason for reply in read if reply.yes is passed)
        return Verdict(question=asked, passed=passed, reason=reason, votes=tuple(reply.yes for reply in read))

    async def _vote_once(self, question: JudgeQuestion) -> JudgeReply | ChatError:
        try:
            return await self.client.ask(question, self.case)
        except ChatError as error:
            return error


async def _all(*asked: Any) -> list[Any]:
    """Await everything at once; the first that raises ends the others, so that no call outlives its judgement."""
    tasks = [asyncio.ensure_future(one) for one in asked]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
