"""Reads the prompts that WebGym kept with its steps: chat messages in JSON, images as paths of their machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from pydantic import ValidationError

from webgym_cli.agent.sanitize import sanitize_text
from webgym_cli.imports.source import ImportedPrompt
from webgym_cli.records.sample import IMAGE, Message

_FILE = "file://"


def shorten_path(path: str) -> str:
    """Return the end of a picture's path that tells it apart: folder of the episode and file."""
    return "/".join(PurePosixPath(path).parts[-2:])


def read_sent(raw: str, steps: Mapping[str, int]) -> ImportedPrompt | None:
    """Return the messages that were sent; None where they are missing or show what is no picture of the episode.

    `steps`: the step of each picture, by `shorten_path`.
    """
    try:
        value = json.loads(raw)
    except ValueError:
        return None
    if not isinstance(value, list) or not value:
        return None
    messages: list[Message] = []
    pictures: list[int] = []
    try:
        for message in value:
            content = _join_parts(message["content"], steps, pictures)
            messages.append(Message(role=message["role"], content=content))
    except (KeyError, TypeError, ValidationError):
        return None
    return ImportedPrompt(tuple(messages), tuple(pictures)) if messages[-1].role == "user" else None


def _join_parts(content: Any, steps: Mapping[str, int], pictures: list[int]) -> str:
    """Return a message's text with placeholders, and add the steps of its pictures. Raises `KeyError`, `TypeError`."""
    if isinstance(content, str):
        return sanitize_text(content)
    text = ""
    for part in content:
        if part["type"] == "image_url":
            pictures.append(steps[shorten_path(part["image_url"]["url"].removeprefix(_FILE))])
            text += IMAGE
        else:
            text += sanitize_text(part["text"])
    return text
