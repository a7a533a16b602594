"""Compares two model folders: can a server of the one take the weights of the other, and are they the same weights?"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

_INCIDENTAL = frozenset({"transformers_version", "_name_or_path", "dtype", "torch_dtype", "use_cache"})
"""Keys of `config.json` that differ between writers of the same model."""


def same_shape(first: str, second: str) -> bool:
    """Whether two local folders hold the same architecture and tokenizer, so that only the weights differ.

    False whenever that can't be seen: the server is then restarted, which is always right.
    """
    one, other = Path(first), Path(second)
    if not (one.is_dir() and other.is_dir()):
        return False
    known = _architecture(one) is not None and _vocabulary(one) is not None
    return known and bool(_architecture(one) == _architecture(other) and _vocabulary(one) == _vocabulary(other))


def same_weights(first: str, second: str) -> bool:
    """Whether two local folders hold byte for byte the same weights. Reads both: for the rare case of doubt."""
    one, other = Path(first), Path(second)
    return one.is_dir() and other.is_dir() and _digests(one) == _digests(other) != []


def _architecture(folder: Path) -> Any:
    return _without_incidental(_json(folder / "config.json"))


def _vocabulary(folder: Path) -> Any:
    tokenizer = _json(folder / "tokenizer.json")
    return (tokenizer.get("model"), tokenizer.get("added_tokens")) if isinstance(tokenizer, dict) else None


def _without_incidental(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_incidental(item) for key, item in value.items() if key not in _INCIDENTAL}
    return value


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _digests(folder: Path) -> list[str]:
    digests = []
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            digests.append(hashlib.file_digest(file, "sha256").hexdigest())
    return digests
