"""Renders what the policy is sent: a pure function of the episode so far, so a stored trajectory gives it again.

The window holds the last `history_window` rounds in full (observation and response) and the current observation;
older steps are one line each. Text that comes from a page or a model can't forge images or turns.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from webgym_cli.agent.tools import describe, schema
from webgym_cli.records.action import InteractionMode
from webgym_cli.records.sample import IMAGE, Message
from webgym_cli.records.trajectory import Element, Observation, PromptSpec, Step, Trajectory

_PLACEHOLDER = re.compile(r"<(/?(?:image|video|audio))>", re.IGNORECASE)
_THINKING = re.compile(r"<think>.*?</think>\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Prompt:
    """Chat messages; each `<image>` in them stands for the next of `images` (SHA-256 of the screenshot)."""

    messages: tuple[Message, ...]
    images: tuple[str, ...]

    @property
    def digest(self) -> str:
        """SHA-256 of the messages and the images' addresses."""
        content = [[message.role, message.content] for message in self.messages]
        return hashlib.sha256(json.dumps([content, self.images]).encode()).hexdigest()


def pieces(message: Message) -> Iterator[str | None]:
    """Yield a message's texts in order; None stands for an image. Empty texts are left out."""
    for position, text in enumerate(message.content.split(IMAGE)):
        if position:
            yield None
        if text:
            yield text


def safe_text(text: str) -> str:
    """Return foreign text in which nothing reads as a media placeholder or as a chat template's control token."""
    return _PLACEHOLDER.sub(r"&lt;\1&gt;", text).replace("<|", "&lt;|")


def system_prompt(mode: InteractionMode) -> str:
    """Return the system message."""
    see = (
        "a screenshot of a web page"
        if mode is InteractionMode.COORDINATES
        else "a screenshot of a web page with numbered marks on its elements, and a list of them"
    )
    return (
        f"You operate a web browser to carry out a task. Each turn shows {see}. "
        "Reply with exactly one call of this function:\n"
        f"<tools>\n{json.dumps(schema(mode))}\n</tools>\n"
        "Write the call as JSON between tags, after your reasoning if you need any:\n"
        '<tool_call>\n{"name": <function>, "arguments": <object>}\n</tool_call>\n'
        "When the task asks for information, give it with the action answer."
    )


def render(spec: PromptSpec, instruction: str, start_url: str, past: Sequence[Step], current: Observation) -> Prompt:
    """Return the prompt for the current observation, given the finished steps of the episode."""
    first = max(0, len(past) - spec.history_window)
    messages = [Message(role="system", content=system_prompt(spec.interaction_mode))]
    images: list[str] = []
    for index in range(first, len(past) + 1):
        observation = past[index].observation if index < len(past) else current
        head = _head(instruction, start_url, past[:first]) if index == first else ""
        images.append(observation.screenshot.sha256)
        messages.append(Message(role="user", content=IMAGE + head + _turn(past, index, observation)))
        if index < len(past):
            messages.append(Message(role="assistant", content=safe_text(_THINKING.sub("", past[index].response))))
    return Prompt(messages=tuple(messages), images=tuple(images))


def render_step(trajectory: Trajectory, index: int, *, window: int | None = None) -> Prompt:
    """Return the prompt that a stored step was sent, or the same with a smaller history window."""
    spec = trajectory.prompt if window is None else trajectory.prompt.model_copy(update={"history_window": window})
    steps = trajectory.steps
    url = trajectory.task.start_url
    return render(spec, trajectory.instruction, url, steps[:index], steps[index].observation)


def _head(instruction: str, start_url: str, older: Sequence[Step]) -> str:
    lines = [f"Task: {safe_text(instruction)}", f"Start page: {safe_text(start_url)}"]
    if older:
        lines += ["Earlier steps:", *(_summary(step) for step in older)]
    return "\n".join(lines) + "\n"


def _summary(step: Step) -> str:
    done = describe(step.action) if step.action else f"no action ({step.parse_error})"
    effect = {True: "page changed", False: "page unchanged", None: "executed"}[step.page_changed]
    return safe_text(f"Step {step.index + 1} on [{step.observation.title}]: {done} -> {effect}")


def _turn(past: Sequence[Step], index: int, observation: Observation) -> str:
    """Return what stands under a screenshot: what went wrong before it, and the marked elements."""
    lines = []
    if index > 0 and (before := past[index - 1]).parse_error:
        lines.append(f"The last reply was no action: {before.parse_error}.")
    elif index > 0 and past[index - 1].action_error:
        lines.append(f"The last action failed: {safe_text(str(past[index - 1].action_error))}.")
    if observation.elements:
        lines += ["Elements:", *(_listed(element) for element in observation.elements)]
    return "\n".join(lines)


def _listed(element: Element) -> str:
    value = f" = {json.dumps(element.value, ensure_ascii=False)}" if element.value else ""
    return safe_text(f"[{element.id}] {element.role} {json.dumps(element.name, ensure_ascii=False)}{value}")
