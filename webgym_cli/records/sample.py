"""What a step becomes for training."""

from __future__ import annotations

from typing import Literal

from webgym_cli.records.base import Record

# Stands for one image inside a message's text, as ShareGPT and LLaMA-Factory have it.
IMAGE = "<image>"


class Message(Record):
    """One chat message; each `<image>` in `content` stands for the next entry of the conversation's images."""

    role: Literal["system", "user", "assistant"]
    content: str


class Sample(Record):
    """A prompt and the response that is trained on: the last message is always the assistant's."""

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
    """Prompt and response in tokens, images counted; None when no tokenizer was at hand."""
