"""Training samples made from steps."""

from __future__ import annotations

from typing import Literal

from webgym_cli.records.base import Record

# Placeholder of one image in a message's text, as in ShareGPT and LLaMA-Factory.
IMAGE = "<image>"


class Message(Record):
    """One chat message; each `<image>` in `content` refers to the next of the conversation's images."""

    role: Literal["system", "user", "assistant"]
    content: str


class Sample(Record):
    """A prompt and the response to train on, which is the last message, always from the assistant."""

    messages: tuple[Message, ...]
    images: tuple[str, ...]
    """SHA-256 of each image, in the order of their placeholders."""
    trajectory: str
    """Id of the trajectory."""
    step: int
    """Index of the step whose response is trained on."""
    iteration: int
    reward: float
    tokens: int | None = None
    """Length of prompt and response in tokens, including images; None if no tokenizer was available."""


class SentPrompt(Record):
    """The messages of an imported step, if the other system stored them, or of another agent's call."""

    messages: tuple[Message, ...]
    images: tuple[str, ...]
    """SHA-256 of each image, in the order of the placeholders in the messages."""
