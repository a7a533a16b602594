"""Exported samples: a step as it was sent, or a whole episode as one conversation. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from webgym_cli.agent.actions.action_sets import RenderFn, find_action_set
from webgym_cli.agent.forms.sanitize import sanitize_text
from webgym_cli.agent.prompt import render_step
from webgym_cli.agent.prompts.prompt_template import HistoryWindow
from webgym_cli.config.model import Settings
from webgym_cli.prepare.sft.convert import add_thinking_tag, build_sample
from webgym_cli.prepare.sft.filters import DropReason, find_step_drop
from webgym_cli.records.sample import IMAGE, Message, Sample
from webgym_cli.records.trajectory import Step, Trajectory


@dataclass(frozen=True, slots=True)
class Example:
    """A sample, with a rejected reply or label for preference training."""

    sample: Sample
    rejected: str | None = None
    """A rejected reply to the same prompt; the sample's own is preferred."""
    desirable: bool | None = None
    """Whether the sample's reply is desirable (KTO)."""
    trajectory: Trajectory | None = None
    """The whole trajectory, for formats of whole trajectories; the sample then has all its images."""
    prompt_ids: tuple[list[int], ...] = ()
    """Token ids of the prompt of each step, for formats with tokens."""

    @property
    def id(self) -> str:
        """Id of the trajectory and step of the reply."""
        return f"{self.sample.trajectory}/{self.sample.step}"


def build_step_sample(trajectory: Trajectory, index: int) -> Sample:
    """Return a step's prompt as it was sent, and its reply."""
    prompt = render_step(trajectory, index)
    return build_sample(trajectory, index, (*prompt.messages, build_reply(trajectory, index)), prompt.images)


def build_trajectory_sample(trajectory: Trajectory) -> Sample:
    """Return an episode with at least one step as one conversation.

    Each turn contains the new information with its screenshot, and each reply is complete with reasoning. That differs
    from the prompts as sent, which have a history window and no earlier reasoning. Conversations with tools are sent
    completely, so their last step is the sample, as with action sets that render their prompts in a form of their own.
    """
    actions = find_action_set(trajectory.prompt)
    if actions.render_episode is not None:
        return _sample_own_form(trajectory, actions.render_episode)
    if actions.template is None:
        return build_step_sample(trajectory, len(trajectory.steps) - 1)
    spec = trajectory.prompt.model_copy(update={"history_window": len(trajectory.steps), "max_images": None})
    template = actions.template
    messages = [Message(role="system", content=template.system(spec.interaction_mode))]
    for index, step in enumerate(trajectory.steps):
        past = trajectory.steps[:index]
        window = HistoryWindow(spec, trajectory.instruction, trajectory.task.start_url, past, step.observation)
        head = "" if index else template.head(window)
        messages.append(Message(role="user", content=IMAGE + head + template.turn(window, index)))
        messages.append(build_reply(trajectory, index))
    images = tuple(picture.sha256 for picture in trajectory.pictures)
    return build_sample(trajectory, len(trajectory.steps) - 1, tuple(messages), images)


def _sample_own_form(trajectory: Trajectory, render: RenderFn) -> Sample:
    """Return an episode as its action set renders it, with complete replies."""
    *past, last = trajectory.steps
    turns, images = render(trajectory.prompt, trajectory.instruction, past, last.observation)
    replies = (build_reply(trajectory, step.index) for step in past)
    messages = [next(replies, turn) if turn.role == "assistant" else turn for turn in turns]
    return build_sample(trajectory, last.index, (*messages, build_reply(trajectory, last.index)), images)


def build_reply(trajectory: Trajectory, index: int) -> Message:
    """Return a step's reply as training target, with an opening thinking tag."""
    text = add_thinking_tag(trajectory.steps[index].response, thinking=trajectory.prompt.thinking)
    return Message(role="assistant", content=text)


def find_step_problem(step: Step, settings: Settings, *, wanted: bool) -> DropReason | None:
    """Return why a step's reply is not exported, or None. A rejected reply need not be an action."""
    if wanted and (reason := find_step_drop(step, settings)) is not None:
        return reason
    return _unreadable(step)


def find_trajectory_problem(trajectory: Trajectory) -> DropReason | None:
    """Return why an episode is not exported as one conversation, or None."""
    if not trajectory.steps:
        return DropReason.EMPTY
    return next(filter(None, map(_unreadable, trajectory.steps)), None)


def _unreadable(step: Step) -> DropReason | None:
    if not step.response.strip():
        return DropReason.RESPONSE_TOO_SHORT
    return DropReason.RESPONSE_HAS_PLACEHOLDER if sanitize_text(step.response) != step.response else None
