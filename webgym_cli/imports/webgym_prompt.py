"""Parser of the prompts that WebGym stored with its steps: chat messages in JSON, images as paths on its machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import ValidationError

from webgym_cli.agent.forms.sanitize import sanitize_text
from webgym_cli.imports.chat import Conversation
from webgym_cli.records.sample import IMAGE, Message

_FILE = "file://"


def shorten_path(path: str) -> str:
    """Return the end of a screenshot's path that identifies it: the episode's folder and the file."""
    return "/".join(PurePosixPath(path).parts[-2:])


def read_sent(raw: str, screenshots: Mapping[str, Path]) -> Conversation[Path] | None:
    """Parse the messages that were sent; None if they are invalid or refer to images of other episodes.

    `screenshots`: those of the episode, by `shorten_path`.
    """
    try:
        value = json.loads(raw)
    except ValueError:
        return None
    if not isinstance(value, list) or not value:
        return None
    messages: list[Message] = []
    pictures: list[Path] = []
    try:
        for message in value:
            content = _join_parts(message["content"], screenshots, pictures)
            messages.append(Message(role=message["role"], content=content))
    except (KeyError, TypeError, ValidationError):
        return None
    return Conversation(tuple(messages), tuple(pictures)) if messages[-1].role == "user" else None


def _join_parts(content: Any, screenshots: Mapping[str, Path], pictures: list[Path]) -> str:
    """Return a message's text with image placeholders; append its images. Raises `KeyError`, `TypeError`."""
    if isinstance(content, str):
        return sanitize_text(content)
    text = ""
    for part in content:
        if part["type"] == "image_url":
            pictures.append(screenshots[shorten_path(part["image_url"]["url"].removeprefix(_FILE))])
            text += IMAGE
        else:
            text += sanitize_text(part["text"])
    return text
