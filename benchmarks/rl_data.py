"""Batches of made-up conversations for the trainer: their lengths, and who said what, as of an agent with tools."""

from __future__ import annotations

import hashlib
import json
import math
import random
import struct
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

TEMPERATURE = 1.0
SHORTEST = 8
"""Tokens of a prompt and of what follows it, each."""
_PART = 32
"""Pixels of the side of a square that becomes a token, in Qwen3-VL."""


@dataclass(frozen=True, slots=True)
class Conversations:
    """Groups of conversations that begin with the same prompt. Lengths are lognormal: most short, few very long."""

    groups: int
    size: int = 8
    """Conversations of a group."""
    prompt: int = 80
    """Tokens of a prompt: the median."""
    answer: int = 200
    """Tokens of what follows it: the median."""
    sigma: float = 0.8
    """How far the answers' lengths lie apart."""
    longest: int = 2048
    """Most tokens of a conversation."""
    turns: int = 3
    """How often the policy speaks; what a tool said stands between."""
    vocabulary: int = 8192
    """Token ids are below it; 0 and 1 are left to padding and end."""
    seed: int = 0
    picture: tuple[int, int, tuple[int, ...]] | None = None
    """Width and height of the picture that each prompt ends with, and its tokens: of its start, each part and end."""

    def to_json(self) -> dict[str, Any]:
        """Return what the rows of the benchmark say of the batch."""
        drawn = rows(self)
        return {
            **asdict(self),
            "sequences": len(drawn),
            "tokens": sum(len(row["input_ids"]) for row in drawn),
            "trained_tokens": sum(sum(row["mask"]) for row in drawn),
            "longest_drawn": max(len(row["input_ids"]) for row in drawn),
        }


def rows(given: Conversations) -> list[dict[str, Any]]:
    """Return the sequences, as `rows.jsonl` holds them, each a trajectory; the same from the same seed."""
    chance = random.Random(given.seed)
    result = []
    for number in range(given.groups * given.size):
        if number % given.size == 0:
            prompt = _tokens(chance, _length(chance, given.prompt, 0.3, given.longest // 2), given.vocabulary)
            prompt += _picture_tokens(given)
        length = _length(chance, given.answer, given.sigma, given.longest - len(prompt))
        mask = [0] * len(prompt) + spoken(length, given.turns)
        ids = prompt + _tokens(chance, length, given.vocabulary)
        row = {"number": number, "step": 0, "input_ids": ids, "mask": mask, "logprobs": [-1.0] * sum(mask)}
        if given.picture:
            row |= {"images": ["picture.png"], "sizes": [given.picture[:2]]}
        result.append(row)
    return result


def _picture_tokens(given: Conversations) -> list[int]:
    if given.picture is None:
        return []
    width, height, (start, part, end) = given.picture
    return [start, *[part] * (width * height // _PART**2), end]


def _noise(width: int, height: int) -> bytes:
    """Return a PNG of random colours."""
    chance = random.Random(0)
    lines = b"".join(b"\0" + chance.randbytes(3 * width) for _ in range(height))
    parts = {b"IHDR": struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0), b"IDAT": zlib.compress(lines), b"IEND": b""}
    chunks = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts.items()
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def trajectories(given: Conversations) -> list[dict[str, Any]]:
    """Return groups and rewards, as `trajectories.jsonl` holds them. No two rewards are the same."""
    count = given.groups * given.size
    rewards = random.Random(given.seed).sample(range(1000 * count), count)
    return [
        {"number": number, "group": number // given.size, "reward": reward / (1000 * count)}
        for number, reward in enumerate(rewards)
    ]


def spoken(length: int, turns: int) -> list[int]:
    """Return the mask of what follows a prompt: the policy's words and the tools', by turns and equally long."""
    width = max(1, length // (2 * turns - 1))
    return [1 - min(place // width, 2 * turns - 2) % 2 for place in range(length)]


def write(folder: Path, given: Conversations) -> Path:
    """Write the batch as `prepare` leaves it; return its folder."""
    folder.mkdir()
    content = _lines(rows(given))
    if given.picture:
        (folder / "picture.png").write_bytes(_noise(*given.picture[:2]))
    (folder / "rows.jsonl").write_bytes(content)
    (folder / "trajectories.jsonl").write_bytes(_lines(trajectories(given)))
    head = {
        "schema": 1,
        "iteration": 0,
        "digest": hashlib.sha256(content).hexdigest(),
        "sampling": {"temperature": TEMPERATURE},
    }
    (folder / "rl.json").write_text(json.dumps(head), encoding="utf-8")
    return folder


def _length(chance: random.Random, median: int, sigma: float, most: int) -> int:
    return min(most, max(SHORTEST, round(chance.lognormvariate(math.log(median), sigma))))


def _tokens(chance: random.Random, count: int, vocabulary: int) -> list[int]:
    return [chance.randrange(2, vocabulary) for _ in range(count)]


def _lines(records: list[dict[str, Any]]) -> bytes:
    return "".join(f"{json.dumps(record)}\n" for record in records).encode()
