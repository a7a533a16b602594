"""Serialise prompts as bodies of chat requests. Encoded images are cached for later requests that contain them."""

from __future__ import annotations

import base64
import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from webgym_cli.agent.prompt import Prompt, split_at_images
from webgym_cli.records.sample import IMAGE
from webgym_cli.store.screenshots import data_url_type

# SHA-256 of a screenshot -> its bytes, a PNG or a WebP.
ImageLoader = Callable[[str], bytes]

# Maximum size of the image cache: the windows of some 100 episodes with screenshots of 200 kB.
CACHE_BYTES = 128 * 2**20


class EncodedImages:
    """LRU cache of images, encoded as message parts.

    A screenshot is in as many consecutive prompts as the window has rounds; reading, checking and encoding it takes a
    third of a millisecond per 150 kB.
    """

    def __init__(self, load: ImageLoader, limit: int = CACHE_BYTES) -> None:
        """`limit`: maximum size in bytes; a single larger image is not cached."""
        self._load = load
        self._limit = limit
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._size = 0

    def part(self, sha256: str) -> bytes:
        """Return the JSON of the message part with an image as a data URL. Raises the loader's exceptions."""
        encoded = self._kept.get(sha256)
        if encoded is not None:
            self._kept.move_to_end(sha256)
            return encoded
        image = self._load(sha256)
        kind = data_url_type(image).encode()
        part = b'{"type":"image_url","image_url":{"url":"data:%b;base64,%b"}}' % (kind, base64.b64encode(image))
        self._kept[sha256] = part
        self._size += len(part)
        while self._size > self._limit:
            _, oldest = self._kept.popitem(last=False)
            self._size -= len(oldest)
        return part


def build_request_body(prompt: Prompt, images: EncodedImages, parameters: Mapping[str, Any]) -> bytes:
    """Return the JSON body of a chat request in OpenAI's format: the parameters and the prompt's messages."""
    left = iter(prompt.images)
    messages = []
    for message in prompt.messages:
        if IMAGE in message.content:
            parts = [
                images.part(next(left)) if piece is None else json.dumps({"type": "text", "text": piece}).encode()
                for piece in split_at_images(message)
            ]
            content = b"[" + b",".join(parts) + b"]"
        else:
            content = json.dumps(message.content).encode()
        messages.append(b'{"role":"%b","content":%b}' % (message.role.encode(), content))
    frame = json.dumps({**parameters, "messages": []}).encode()
    return frame.removesuffix(b"]}") + b",".join(messages) + b"]}"
