"""Published judge protocols: their inputs, steps and answer formats, in our own words. All of them fail closed.

- `webvoyager` (WebVoyager's `auto_eval.py`): task, answer and the last screenshots; SUCCESS or NOT SUCCESS.
- `webjudge` (Online-Mind2Web): key points of the task, each screenshot scored from 1 to 5, then a status by key points,
  actions and the screenshots with 3 or more. It sees the actions and not the answer.
- `agenttrek` (Online-Mind2Web's `agenttrek_eval.py`): one request with the actions and the last screenshot.
- `agentrewardbench`: one request with actions and the agent's texts, answer, the last page's elements and screenshot;
  tags for success, side effects, optimality and looping.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from webgym_cli.agent.client.chat import ChatError, JudgeReply
from webgym_cli.jobs.workers import gather_or_cancel
from webgym_cli.records.failure import Stop
from webgym_cli.records.judgement import NO_SCREENSHOT, Verdict
from webgym_cli.records.trajectory import Screenshot, Step, Trajectory
from webgym_cli.rewards.judge import replies
from webgym_cli.rewards.judge.prompts import caption_images, describe_page, describe_step_action
from webgym_cli.rewards.judge.protocol import JudgeProtocol
from webgym_cli.rewards.judge.question import FRAME, JudgeQuestion
from webgym_cli.rewards.judge.session import JudgeSession

# WebJudge keeps the first so many of the screenshots with a score of 3 or more.
_MOST = 50
# WebVoyager's `run_eval.sh` shows so many.
_SHOWN = 15
# Number of elements of the last page that are listed.
_ELEMENTS = 300
_STATUS_FORM = 'Reply in two lines: "Thoughts: ..." with your reasons, then "Status: success" or "Status: failure".'
# Job -> the question, and the form of the answer.
_TEXTS: dict[str, tuple[str, str]] = {
    "webvoyager": (
        "Decide whether the agent did what `task` asks for. `answer` is what it replied; the screenshots are its last "
        "pages. If the task has several parts, all must be done. Where the answer contradicts the screenshots, the "
        "screenshots count; what the answer says and no screenshot shows may be believed.",
        "Give your reasons, then end with one verdict: SUCCESS or NOT SUCCESS.",
    ),
    "webjudge_key_points": (
        "List what must hold for `task` to be done: each condition that it states, such as filters, sorting, numbers, "
        "dates, and nothing that it does not state.",
        "Reply with a numbered list, one condition a line.",
    ),
    "webjudge_score": (
        "How much does this screenshot tell about whether `task`, with its `key_points`, was done? 1: nothing; 3: some "
        "part of what is needed; 5: what decides it. Filters, results and confirmations count; the way there does not.",
        'Reply in two lines: "Reasoning: ...", then "Score: N" with a number from 1 to 5.',
    ),
    "webjudge": (
        "Decide whether the agent did `task`. Each of the `key_points` must hold. `actions` is what it did; the "
        "screenshots are those that matter, with `notes` on each. Filters must be applied, not only be there; a range "
        "must be exactly the one asked for; what must be submitted must be submitted; an empty result is a success "
        "only if the right filters led to it. When in doubt it is a failure.",
        _STATUS_FORM,
    ),
    "agenttrek": (
        "Decide whether the agent did `task`. `actions` is what it did and wrote, step by step; the screenshot is its "
        "last page. Where information was asked for, the reply must give it; where something was to be changed, the "
        "page must show it.",
        _STATUS_FORM,
    ),
    "agentrewardbench": (
        "Answer four questions about the agent's work on `task`: was it done, did it do something unnecessary with "
        "side effects, how direct was it, did it repeat itself without effect? `actions` is what it did and wrote, "
        "`answer` what it replied, `elements` what the last page holds; the screenshot is its last page.",
        "Reply with these tags: <reasoning>...</reasoning> <success>Successful or Unsuccessful</success> "
        "<side>Yes or No</side> <optimal>1. Complete Failure, 2. Suboptimal, 3. Somewhat Optimal or 4. Completely "
        "Optimal</optimal> <loop>Yes or No</loop>",
    ),
}


def _ask(
    job: str,
    trajectory: Trajectory,
    read: Callable[[str], JudgeReply],
    indices: Sequence[int] = (),
    **data: Any,
) -> JudgeQuestion:
    rule, form = _TEXTS[job]
    content = {"task": trajectory.instruction, **data}
    return JudgeQuestion(job, (rule,), content, caption_images(trajectory, indices), form, read)


def _list_shots(trajectory: Trajectory) -> list[int]:
    """Return the indices of the steps with screenshots. Raises `ChatError` if there is none.

    Steps of another system without one of their own have the last one again: it counts once, at the last of them.
    """
    indices: list[int] = []
    pictures: tuple[Screenshot, ...] = ()
    for step in trajectory.steps:
        if (shot := step.observation.screenshot) is not None:
            if step.sent and pictures == (shot,):
                indices.pop()
            indices.append(step.index)
            pictures = tuple(step.observation.pictures)
    if not indices:
        raise ChatError(NO_SCREENSHOT)
    return indices


async def _decide(
    session: JudgeSession, job: str, read: Callable[[str], JudgeReply], shown: Sequence[int], **data: Any
) -> bool:
    """Ask for the verdict by some steps' screenshots, which are the judgement's key points."""
    session.fields["key_points"] = tuple(shown)
    verdict: Verdict = await session.vote(_ask(job, session.trajectory, read, shown, **data), job)
    session.fields["facts"] = (verdict,)
    return verdict.passed


async def judge_webvoyager(session: JudgeSession) -> bool:
    """Judge by the answer and the last screenshots; without an answer the task was not done."""
    trajectory = session.trajectory
    answer = (trajectory.outcome.answer or "").strip()
    if trajectory.outcome.stop is not Stop.ANSWERED or not answer:
        return False
    shown = _list_shots(trajectory)[-session.max_images :]
    return await _decide(session, "webvoyager", replies.read_webvoyager, shown, answer=answer)


async def judge_webjudge(session: JudgeSession) -> bool:
    """Judge by key points, actions, and the screenshots that matter."""
    trajectory, shots = session.trajectory, _list_shots(session.trajectory)
    question = _ask("webjudge_key_points", trajectory, replies.read_key_points)
    points = {"key_points": (await session.ask(question)).reason}
    pages = ((index, {**points, "page": describe_page(trajectory.steps[index])}) for index in shots)
    questions = (_ask("webjudge_score", trajectory, replies.read_score, [index], **data) for index, data in pages)
    scores = await gather_or_cancel(*map(session.ask, questions))
    kept = [(index, score.reason) for index, score in zip(shots, scores, strict=True) if score.yes]
    kept = kept[:_MOST][-session.max_images :]
    # The published program leaves the answer out likewise.
    answering = trajectory.answering
    actions = [describe_step_action(step) for step in trajectory.steps if step is not answering]
    notes = [reason for _, reason in kept]
    shown = [index for index, _ in kept]
    return await _decide(session, "webjudge", replies.read_status, shown, **points, actions=actions, notes=notes)


async def judge_agenttrek(session: JudgeSession) -> bool:
    """Judge by what the agent did and wrote, and the last screenshot."""
    shots, actions = _list_shots(session.trajectory), [_describe_act(step) for step in session.trajectory.steps]
    return await _decide(session, "agenttrek", replies.read_status, shots[-1:], actions=actions)


async def judge_agentrewardbench(session: JudgeSession) -> bool:
    """Judge by what the agent did and wrote, its answer, the last page's elements and screenshot."""
    trajectory, shots = session.trajectory, _list_shots(session.trajectory)
    last = trajectory.steps[-1].observation
    listed = [f"[{one.id}] {one.role} {one.name} {one.value}".strip() for one in last.elements[:_ELEMENTS]]
    data = {
        "actions": [{"url": step.observation.url, **_describe_act(step)} for step in trajectory.steps],
        "answer": trajectory.outcome.answer or "",
        "elements": listed or last.html,
    }
    annotations: list[tuple[bool, dict[str, float]]] = []

    def read(text: str) -> JudgeReply:  # the whole text: the reason that is kept may be cut before the tags
        reply = replies.read_tags(text)
        annotations.append((reply.yes, replies.read_annotations(text)))
        return reply

    passed = await _decide(session, "agentrewardbench", read, shots[-1:], **data)
    session.fields["extras"] = next(known for yes, known in annotations if yes is passed)
    return passed


def _describe_act(step: Step) -> dict[str, str]:
    return {"action": describe_step_action(step), "response": step.response}


def _texts(*jobs: str) -> list[Any]:
    return [FRAME, *(_TEXTS[job] for job in jobs)]


WEBVOYAGER = JudgeProtocol(judge_webvoyager, _texts("webvoyager"), max_images=_SHOWN)
WEBJUDGE = JudgeProtocol(judge_webjudge, _texts("webjudge_key_points", "webjudge_score", "webjudge"), max_images=_MOST)
AGENTTREK = JudgeProtocol(judge_agenttrek, _texts("agenttrek"))
AGENTREWARDBENCH = JudgeProtocol(judge_agentrewardbench, _texts("agentrewardbench"))
