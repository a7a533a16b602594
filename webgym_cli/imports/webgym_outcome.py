"""Outcomes of WebGym's episodes: verdicts of its evaluator, blocked sites, and failures."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from webgym_cli.imports.source import NotUnderstood, to_fields, to_number, to_plain, to_text
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.judgement import Judgement, Verdict
from webgym_cli.records.task import Task
from webgym_cli.records.trajectory import Outcome
from webgym_cli.util.json_values import as_list, as_object

# WebGym's error type -> failure kind; others are environment errors. A killed process had exceeded its deadline.
_ERRORS = {
    "TIMEOUT": FailureKind.EPISODE_TIMEOUT,
    "PROCESS_KILLED": FailureKind.PAGE_TIMEOUT,
    "POOL_FAILURE": FailureKind.BROWSER_CRASHED,
    "SHUTDOWN": FailureKind.CANCELLED,
    "INCOMPLETE": FailureKind.CANCELLED,
    "GRACE_PERIOD_INCOMPLETE": FailureKind.CANCELLED,
}
_NOT_JUDGED = ("Reward calculation failed", "Async evaluation failed")
# Prefix by which the evaluator marks each answer of its judge.
_SAID = re.compile(r"^\[(Criterion B|Criterion A - Fact (\d+)|Reference Answer)[^\]]*\]\s*(.*)", re.DOTALL)


def read_error(step: dict[str, Any]) -> tuple[FailureKind, str] | None:
    """Return kind and detail of the failure that a step records; None for any other step."""
    content = as_object(to_fields(step.get("action") or {}, "an action").get("action"))
    kind = to_text(step.get("error_type"))
    if not kind and content.get("key") not in ("error", "invalid_step"):
        return None
    arguments = as_object(content.get("arguments"))
    kind = kind or to_text(arguments.get("error_type"))
    detail = step.get("error_message") or arguments.get("error_message") or arguments.get("error")
    return _ERRORS.get(kind, FailureKind.ENVIRONMENT_ERROR), to_text(detail) or kind


def read_outcome(
    steps: list[dict[str, Any]], answered: int, task: Task, judge: str, judged_at: str
) -> tuple[Outcome, Judgement | None]:
    """Return the outcome, without stop reason and answer, and the evaluator's judgement.

    `answered`: number of steps with a response. The outcome has no reward: the judgement supplies it. An episode that
    was never evaluated has no judgement either. Errors are failures, whatever the recorded reward. Raises
    `NotUnderstood`.
    """
    # The newest error is the one that ended the episode.
    for step in reversed(steps):
        if (error := read_error(step)) is not None:
            return Outcome(failure=error[0], failure_detail=error[1]), None
    rewards = {at: to_fields(step["reward"], "a reward") for at, step in enumerate(steps) if step.get("reward")}
    last = rewards.get(max(rewards, default=-1), {})
    # One blocked page invalidates the episode: its reward does not measure the policy.
    if any(reward.get("is_blocked") is True for reward in rewards.values()):
        return Outcome(failure=FailureKind.SITE_BLOCKED, failure_detail="their judge saw the site shut it out"), None
    evaluation = to_plain(last.get("evaluation"))
    texts = [text for text in as_list(evaluation) if isinstance(text, str)]
    matches = ((text, _SAID.match(text)) for text in texts)
    if failed := [
        text for text, match in matches if text.startswith(_NOT_JUDGED) or (match and match[3].startswith("Error:"))
    ]:
        return Outcome(failure=FailureKind.JUDGE_FAILED, failure_detail=failed[0][:500]), None
    if not rewards or not answered or texts == ["Task in progress"]:
        return Outcome(failure=FailureKind.CANCELLED, failure_detail="it stopped before its end"), None
    if (value := to_number(last.get("reward"), -1.0)) < 0:
        return Outcome(), None
    # Forks of WebGym have shaped rewards, whose meaning is unknown.
    if value not in (0.0, 1.0):
        raise NotUnderstood(f"a reward of {value}, where WebGym gives 0 or 1")
    key_points = tuple(at for at, reward in rewards.items() if reward.get("submit") is True and at < answered)
    return Outcome(), _judgement(texts, task, judge, judged_at, success=value == 1.0, key_points=key_points)


def _judgement(
    texts: list[str], task: Task, judge: str, judged_at: str, *, success: bool, key_points: tuple[int, ...]
) -> Judgement:
    claims, reference, facts = None, None, []
    for text in texts:
        if (match := _SAID.match(text)) is None:
            continue
        if match[1] == "Criterion B":
            claims = _verdict("all that the answer claims can be seen", match[3])
        elif match[1] == "Reference Answer":
            reference = _verdict(task.reference_answer or "the reference answer", match[3])
        else:
            number = int(match[2])
            known = 0 < number <= len(task.rubric)
            facts.append(_verdict(task.rubric[number - 1] if known else f"fact {number}", match[3]))
    return Judgement(
        trajectory="",
        models={"verdict": judge},
        settings_digest=hashlib.sha256(f"imported from WebGym, judged by {judge}".encode()).hexdigest(),
        key_points=key_points,
        claims=claims,
        facts=tuple(facts),
        reference=reference,
        success=success,
        judged_at=judged_at,
    )


def _verdict(question: str, reason: str) -> Verdict:
    """Parse one answer of the judge: SUCCESS or NOT SUCCESS, after `Verdict:` if it has that; neither is no success."""
    decided = re.search(r"Verdict:\s*(.*)", reason)
    words = decided[1] if decided else reason
    passed = "NOT SUCCESS" not in words and re.search(r"\bSUCCESS", words) is not None
    return Verdict(question=question, passed=passed, reason=reason, votes=(passed,))
