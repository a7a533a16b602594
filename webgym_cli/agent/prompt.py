"""Prompts and replies of policies. A prompt is a pure function of the episode so far: stored episodes reproduce theirs.

The window holds the last `history_window` rounds in full (observation and response) and the current observation;
older steps take one line each. Only the newest `max_images` of these rounds have their screenshot. Text of pages and
models can't forge images or turns. Rendering costs the window plus a few microseconds per older step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from webgym_cli.agent.actions.action_sets import find_action_set, require_template
from webgym_cli.agent.forms.reasoning import history_text
from webgym_cli.agent.forms.sanitize import sanitize_page, sanitize_text
from webgym_cli.agent.prompts.prompt_template import HistoryWindow
from webgym_cli.records.action import InteractionMode
from webgym_cli.records.sample import IMAGE, Message
from webgym_cli.records.task import Task
from webgym_cli.records.trajectory import Generation, Observation, PromptSpec, PromptVersion, Step, Trajectory
from webgym_cli.tasks.encryption import list_secrets, replace_texts
from webgym_cli.util.json_values import digest_json
from webgym_cli.util.optional import when

# Replaces a screenshot beyond `max_images`.
NO_IMAGE = "(This screenshot is left out.)\n"
# Counters of each server by its address. Totals: `requests`, `failures` that were the server's fault, `opened` (its
# outages), `seconds` (duration of all requests). Current values: `outstanding` requests, `open` (1 while it is out).
ServerCounters = dict[str, dict[str, float]]


@dataclass(frozen=True, slots=True)
class Prompt:
    """Chat messages; each `<image>` in them stands for the next of `images` (SHA-256 of the screenshot)."""

    messages: tuple[Message, ...]
    images: tuple[str, ...]
    episode: str = field(default="", compare=False)
    """Id of the episode, by which the load balancer keeps its requests on one server. Never sent; empty: none."""
    greedy: bool = field(default=False, compare=False)
    """Decode greedily, regardless of the policy's sampling parameters."""
    seed: int | None = field(default=None, compare=False)
    """Sampling seed, sent to servers that accept one; None: the server's choice."""
    model: str = field(default="", compare=False)
    """Model name in the request; empty: the client's model."""
    servers: tuple[str, ...] = field(default=(), compare=False)
    """Addresses of the servers that may answer; empty: all."""
    private: bool = field(default=False, compare=False)
    """Whether it has plain text of an encrypted task, which a server's error may quote: its words are not stored."""
    fields: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Further fields of the request, such as `response_format`; the policy's own parameters override them."""

    @property
    def digest(self) -> str:
        """SHA-256 of the messages and the images' digests."""
        content = [[message.role, message.content] for message in self.messages]
        return digest_json([content, self.images])


@dataclass(frozen=True, slots=True)
class PolicyReply:
    """Reply of a policy."""

    text: str
    """The whole response. Reasoning that the server's parser split off is put back in front, between `<think>` and
    `</think>`. The sampled token ids need not begin with `<think>`: the chat template may have opened the reasoning
    in the prompt, and `prepare` allows for that."""
    generation: Generation


def split_at_images(message: Message) -> Iterator[str | None]:
    """Yield a message's texts in order, and None for each image. Empty texts are left out."""
    for position, text in enumerate(message.content.split(IMAGE)):
        if position:
            yield None
        if text:
            yield text


def render_system_prompt(mode: InteractionMode, version: PromptVersion = PromptVersion.VANILLA) -> str:
    """Return the system message of a built-in version with screenshots. Raises `ValueError` for one without."""
    return require_template(PromptSpec(version=version)).system(mode)


def render(spec: PromptSpec, instruction: str, start_url: str, past: Sequence[Step], current: Observation) -> Prompt:
    """Return the prompt for the current observation, given the finished steps of the episode."""
    actions = find_action_set(spec)
    if actions.render is not None:
        return Prompt(*actions.render(spec, instruction, past, current))
    window = HistoryWindow(spec, instruction, start_url, past, current)
    template = require_template(spec)
    messages = [Message(role="system", content=template.system(spec.interaction_mode))]
    images: list[str] = []
    for index in range(window.first, len(past) + 1):
        shown = [seen.sha256 for seen in window.observation(index).pictures if index >= window.first_image]
        # The built-in templates have always had the note, even without a screenshot: stored digests depend on it.
        is_left_out = isinstance(spec.version, PromptVersion) or window.observation(index).pictures
        picture = IMAGE * len(shown) or when(is_left_out, NO_IMAGE)
        images += shown
        head = template.head(window) if index == window.first else ""
        messages.append(Message(role="user", content=picture + head + template.turn(window, index)))
        if index < len(past):
            reply = history_text(past[index].response, thinking=spec.thinking)
            messages.append(Message(role="assistant", content=sanitize_text(reply)))
    return Prompt(messages=tuple(messages), images=tuple(images))


def reveal_prompt(prompt: Prompt, task: Task) -> Prompt:
    """Return a prompt with the plain text of an encrypted task, to be sent and never stored."""
    if not (secrets := list_secrets(task)):
        return prompt
    texts = {text: sanitize_page(plain) for text, plain in secrets.items()}
    messages = (
        message.model_copy(update={"content": replace_texts(message.content, texts)}) for message in prompt.messages
    )
    return replace(prompt, messages=tuple(messages), private=True)


def render_step(trajectory: Trajectory, index: int, *, window: int | None = None) -> Prompt:
    """Return the prompt that was sent for a stored step, or the same prompt with another history window.

    Messages that another system sent are returned unchanged.
    """
    if (sent := trajectory.steps[index].sent) is not None:
        return Prompt(sent.messages, sent.images)
    spec = trajectory.prompt if window is None else trajectory.prompt.model_copy(update={"history_window": window})
    steps = trajectory.steps
    url = trajectory.task.start_url
    return render(spec, trajectory.instruction, url, steps[:index], steps[index].observation)
