"""WebGym's judge protocol: blocking, key points, claims, facts, reference answer.

The blocking check covers every trajectory; the other checks need one that ended with an answer. They run in this
order: key-point selection of the screenshots, criterion B (all claims of the answer are visible), criterion A fact by
fact, and the reference answer. The first failed check decides.
"""

from __future__ import annotations

from collections.abc import Sequence

from webgym_cli.agent.client.chat import ChatError
from webgym_cli.jobs.workers import gather_or_cancel
from webgym_cli.records.failure import FailureKind, Stop
from webgym_cli.records.judgement import NO_SCREENSHOT
from webgym_cli.records.trajectory import Step, Trajectory
from webgym_cli.rewards.judge import prompts
from webgym_cli.rewards.judge.protocol import JudgeProtocol
from webgym_cli.rewards.judge.session import JudgeSession

# The stored question of criterion B.
CLAIMS_QUESTION = "everything that the answer claims can be seen"
# Prefix that turns the instruction into a fact, for a task with neither rubric nor reference answer.
CARRIED_OUT = "The task was carried out: "


async def judge_by_rubric(session: JudgeSession) -> bool | None:
    """Return the verdict, or None if the site blocked the browser. Raises `ChatError` and `StoreError`."""
    if await _is_blocked(session):
        return None
    if session.trajectory.outcome.stop is not Stop.ANSWERED:
        return False
    if all(step.observation.screenshot is None for step in session.trajectory.steps):
        raise ChatError(NO_SCREENSHOT)
    shown = await _select_key_points(session)
    session.fields["key_points"] = tuple(shown)
    return await _check(session, shown)


async def _is_blocked(session: JudgeSession) -> bool:
    indices = select_evenly(select_distinct(session.trajectory.steps), session.settings.max_blocking_images)
    if not indices:
        return False
    verdict = await session.vote(prompts.blocking(session.trajectory, indices), "blocked")
    session.fields.update(blocked=verdict.passed, blocked_reason=verdict.reason)
    if verdict.passed:
        session.fields.update(failure=FailureKind.SITE_BLOCKED, failure_detail=verdict.reason)
    return verdict.passed


async def _select_key_points(session: JudgeSession) -> list[int]:
    """Return the indices of the newest `max_images` key-point screenshots, always including the last one."""
    *earlier, last = select_distinct(session.trajectory.steps)
    matter = await gather_or_cancel(*(_is_key_point(session, index) for index in earlier))
    chosen = [index for index, matters in zip(earlier, matter, strict=True) if matters]
    return [*chosen, last][-session.max_images :]


async def _is_key_point(session: JudgeSession, index: int) -> bool:
    try:
        reply = await session.ask(prompts.key_point(session.trajectory, index))
    except ChatError:
        return True  # keep the screenshot: an additional image hides no evidence
    return reply.yes


async def _check(session: JudgeSession, shown: list[int]) -> bool:
    """Return whether claims, facts and reference answer all pass; stop at the first failure."""
    trajectory = session.trajectory
    if session.settings.check_claims:
        claims = await session.vote(prompts.claims(trajectory, shown), CLAIMS_QUESTION)
        session.fields["claims"] = claims
        if not claims.passed:
            return False
    facts = list_facts(trajectory)
    for number, fact in enumerate(facts):
        verdict = await session.vote(prompts.fact(trajectory, facts, number, shown), fact)
        session.fields["facts"] = (*session.fields.get("facts", ()), verdict)
        if not verdict.passed:
            return False
    if expected := trajectory.task.reference_answer:
        verdict = await session.vote(prompts.reference(trajectory, expected), expected)
        session.fields["reference"] = verdict
        return verdict.passed
    return True


def list_facts(trajectory: Trajectory) -> tuple[str, ...]:
    """Return the facts to check: the rubric, or the instruction if the task has neither rubric nor reference answer.

    Empty for a task with only a reference answer, which is compared with the policy's answer instead.
    """
    task = trajectory.task
    if task.rubric or task.reference_answer:
        return task.rubric
    return (f"{CARRIED_OUT}{trajectory.instruction}",)


def select_distinct(steps: Sequence[Step]) -> list[int]:
    """Return the indices of the screenshots that differ from the next one, always including the last."""
    shots = [step.observation.screenshot for step in steps]
    return [index for index, shot in enumerate(shots) if index + 1 == len(shots) or shot != shots[index + 1]]


def select_evenly(indices: Sequence[int], limit: int) -> list[int]:
    """Return at most `limit` evenly spaced indices, including the first and the last (`limit=1`: only the last)."""
    if len(indices) <= limit:
        return list(indices)
    if limit == 1:
        return [indices[-1]]
    return [indices[round(number * (len(indices) - 1) / (limit - 1))] for number in range(limit)]


WEBGYM = JudgeProtocol(judge_by_rubric, prompts.RULES)
