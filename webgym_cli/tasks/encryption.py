"""Tasks of benchmarks that must not stand in plain text: every file has them encrypted, as their authors publish them.

They are decrypted in memory, for the request to the policy or the judge.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode
from functools import reduce
from itertools import cycle
from typing import Any

from webgym_cli.records.task import Task
from webgym_cli.util.text import map_texts

# Field of `extra` with the password of the task's texts.
CANARY = "canary"
# In front of an encrypted text.
ENCRYPTED = "encrypted:"
# In place of another program's words, which may quote the plain text.
NOT_STORED = "not stored, as the task is encrypted"


def is_encrypted(task: Task) -> bool:
    """Whether a task's texts are encrypted. No policy may be trained on such a task."""
    return CANARY in task.extra


def decrypt(text: str, canary: str) -> str:
    """Return the plain text, as BrowseComp encrypts: XOR with the canary's SHA-256. Raises `ValueError`."""
    if not text.startswith(ENCRYPTED):
        raise ValueError("it is not encrypted")
    content = b64decode(text.removeprefix(ENCRYPTED), validate=True)
    key = hashlib.sha256(canary.encode()).digest()
    return bytes(one ^ two for one, two in zip(content, cycle(key), strict=False)).decode()


def list_secrets(task: Task) -> dict[str, str]:
    """Return the plain text by encrypted text, the longest first; empty for a usual task."""
    if not is_encrypted(task):
        return {}
    texts = sorted(filter(None, (task.instruction, task.reference_answer)), key=len, reverse=True)
    return {text: decrypt(text, task.extra[CANARY]) for text in texts}


def replace_texts(value: Any, texts: dict[str, str]) -> Any:
    """Return a JSON value with texts replaced in all its strings."""
    return map_texts(value, lambda text: reduce(lambda whole, pair: whole.replace(*pair), texts.items(), text))
