"""Parser of the prompts that WebGym stored with its steps: chat messages in JSON, images as paths on its machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from pydantic import TypeAdapter

from webgym_cli.imports.chat import ChatMessage, convert_parts
from webgym_cli.imports.source import Conversation, Picture
from webgym_cli.records.sample import Message

_FILE = "file://"
_MESSAGES = TypeAdapter(list[ChatMessage])


def shorten_path(path: str) -> str:
    """Return the end of a screenshot's path that identifies it: the episode's folder and the file."""
    return "/".join(PurePosixPath(path).parts[-2:])


def read_sent(raw: str, screenshots: Mapping[str, Path]) -> Conversation[Picture] | None:
    """Parse the messages that were sent; None if they are invalid or refer to images of other episodes.

    `screenshots`: those of the episode, by `shorten_path`. Messages stay as they were: none are joined.
    """
    pictures: list[Picture] = []
    messages: list[Message] = []

    def find_image(url: str) -> Path:
        return screenshots[shorten_path(url.removeprefix(_FILE))]

    try:
        for message in _MESSAGES.validate_python(json.loads(raw)):
            if message.content is None:
                return None
            parts = convert_parts(message.content, pictures, find_image)
            messages.append(Message.model_validate({"role": message.role, "content": "".join(parts)}))
    except (ValueError, KeyError):
        return None
    is_prompt = bool(messages) and messages[-1].role == "user"
    return Conversation(tuple(messages), tuple(pictures)) if is_prompt else None
