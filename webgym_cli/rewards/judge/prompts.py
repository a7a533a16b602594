"""The questions of the built-in judge protocol `webgym`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from webgym_cli.agent.client.chat import REPLY_SCHEMA
from webgym_cli.agent.forms.reasoning import CLOSE, OPEN
from webgym_cli.agent.forms.tools import describe_action
from webgym_cli.records.trajectory import Step, Trajectory
from webgym_cli.rewards.judge.question import FORM, FRAME, CaptionedImage, JudgeQuestion, QuestionKind
from webgym_cli.util.optional import when
from webgym_cli.util.text import remove_between

# Separator of alternatives in a fact or reference answer, any of which is sufficient.
ALTERNATIVES = "|OR|"
# Maximum length of the agent's text per step; its final answer is complete.
NOTE_CHARACTERS = 500

_OR = f"Where `{ALTERNATIVES}` stands between alternatives, one of them is enough."
_ASKED: dict[QuestionKind, tuple[str, ...]] = {
    QuestionKind.KEY_POINT: (
        "Question: does this screenshot show information or a state of the page that helps to tell whether `task` was "
        "carried out? Examples: a value the task asks for, a filter or form as it was set, a result, a confirmation.",
        '"yes": it does, or it might. "no": it only shows the way there, a blank page, or nothing to do with the task.',
    ),
    QuestionKind.BLOCKING: (
        "Question: does the site shut this browser out for good, so that no visitor with this browser could go on? "
        "That is so with a captcha or puzzle that is still there at the end, with access denied or forbidden, and with "
        "a check of the browser that never ends.",
        "It is not so with a banner about cookies, a form for logging in, a page that is missing, an error of the "
        "site's own, or an obstacle that was gone on a later screenshot.",
        '"yes": it is shut out. "no": it is not, or that can\'t be told.',
    ),
    QuestionKind.CLAIMS: (
        "Question: can everything that `answer` claims be seen on the screenshots? Go through its claims one by one: "
        "names, numbers, dates, links, statements that something was done. What follows from what is seen counts as "
        "seen; what may be true but isn't shown does not. Statements that something can't be found need screenshots on "
        "which it was looked for.",
        '"yes": each claim is borne out. "no": at least one is not, or the screenshots contradict it, or `answer` is '
        "empty.",
    ),
    QuestionKind.FACT: (
        "Question: does the agent's work satisfy `fact`? It is one of the points (`all_facts`) that make up `task`; "
        "judge this one only, and read it in the light of the task. Where the task asks for information, `answer` must "
        "give it, correctly as far as the screenshots show. Where the task asks for something to be done, the "
        "screenshots must show it done; that the agent says so is not enough. `steps` tell what the agent did and "
        "wrote: use them to understand the screenshots, not in their place.",
        _OR,
        '"yes": satisfied. "no": not, only in part, or it can\'t be told.',
    ),
    QuestionKind.REFERENCE: (
        "Question: does `answer` agree with `reference` as an answer to `task`? Wording, order, format and units may "
        "differ; what it says may not. More detail is fine as long as nothing contradicts the reference.",
        _OR,
        '"yes": it agrees. "no": it differs, leaves out a part, or names several answers where one is asked for.',
    ),
}


def key_point(trajectory: Trajectory, index: int) -> JudgeQuestion:
    """Ask whether a step's screenshot is a key point."""
    data = {"task": trajectory.instruction, "page": describe_page(trajectory.steps[index])}
    return _build(QuestionKind.KEY_POINT, data, caption_images(trajectory, [index]))


def blocking(trajectory: Trajectory, indices: Sequence[int]) -> JudgeQuestion:
    """Ask whether the site blocked the browser, based on the screenshots of these steps."""
    pages = [describe_page(trajectory.steps[index]) for index in indices]
    data = {"start_page": trajectory.task.start_url, "pages": pages}
    return _build(QuestionKind.BLOCKING, data, caption_images(trajectory, indices))


def claims(trajectory: Trajectory, indices: Sequence[int]) -> JudgeQuestion:
    """Ask whether everything that the answer claims is visible (criterion B)."""
    data = {"task": trajectory.instruction, "answer": trajectory.outcome.answer or ""}
    return _build(QuestionKind.CLAIMS, data, caption_images(trajectory, indices))


def fact(trajectory: Trajectory, facts: Sequence[str], number: int, indices: Sequence[int]) -> JudgeQuestion:
    """Ask about one fact of the rubric (criterion A)."""
    data = {
        "task": trajectory.instruction,
        "all_facts": list(facts),
        "fact": facts[number],
        "steps": [_describe_step(step) for step in trajectory.steps],
        "answer": trajectory.outcome.answer or "",
    }
    return _build(QuestionKind.FACT, data, caption_images(trajectory, indices))


def reference(trajectory: Trajectory, expected: str) -> JudgeQuestion:
    """Ask whether the answer matches the reference answer, without screenshots."""
    answer = trajectory.outcome.answer or ""
    return _build(QuestionKind.REFERENCE, {"task": trajectory.instruction, "reference": expected, "answer": answer})


# Everything that determines the text of the questions.
RULES = [FRAME, FORM, {kind.value: task for kind, task in _ASKED.items()}, REPLY_SCHEMA, NOTE_CHARACTERS]


def _build(kind: QuestionKind, data: Mapping[str, Any], images: tuple[CaptionedImage, ...] = ()) -> JudgeQuestion:
    return JudgeQuestion(kind, _ASKED[kind], data, images)


def caption_images(trajectory: Trajectory, indices: Sequence[int]) -> tuple[CaptionedImage, ...]:
    """Return the pictures of some steps, each with its caption."""
    last = len(trajectory.steps) - 1
    return tuple(
        CaptionedImage(f"Screenshot at step {index + 1}{when(index == last, ' (the last one)')}:", picture.sha256)
        for index in indices
        for picture in trajectory.steps[index].observation.pictures
    )


def describe_page(step: Step) -> dict[str, Any]:
    """Return the page of a step."""
    return {"step": step.index + 1, "url": step.observation.url, "title": step.observation.title}


def describe_step_action(step: Step) -> str:
    """Return a step's action in words, or why there is none."""
    return describe_action(step.action) if step.action else f"none ({step.parse_error})"


def _describe_step(step: Step) -> dict[str, Any]:
    note = remove_between(step.response, OPEN, CLOSE).partition("<tool_call>")[0].strip()
    description = {
        **describe_page(step),
        "action": describe_step_action(step),
        "refused": step.action_error,
        "page_changed": step.page_changed,
        "note": note if len(note) <= NOTE_CHARACTERS else f"{note[:NOTE_CHARACTERS]}…",
    }
    return {name: value for name, value in description.items() if value not in (None, "")}
