"""ShareGPT format of samples for LLaMA-Factory and `export-sharegpt`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from webgym_cli.records.dataset import TRAIN, TRAIN_FILE, VALIDATION, VALIDATION_FILE
from webgym_cli.records.sample import IMAGE, Sample
from webgym_cli.util.optional import when

SPEAKERS = {"user": "human", "assistant": "gpt"}


def to_sharegpt(sample: Sample, locate: Callable[[str], str]) -> dict[str, Any]:
    """Return a sample as a ShareGPT record. `locate` returns the path of an image by its SHA-256.

    Raises `ValueError` if placeholders and images don't match.
    """
    # LLaMA-Factory would fail on such a record in the middle of a training.
    refuse_mismatch(sample)
    system = [message.content for message in sample.messages if message.role == "system"]
    turns = [message for message in sample.messages if message.role != "system"]
    return {
        "conversations": [{"from": SPEAKERS[turn.role], "value": turn.content} for turn in turns],
        "system": "\n".join(system),
        "images": [locate(sha256) for sha256 in sample.images],
    }


def refuse_mismatch(sample: Sample) -> None:
    """Raise `ValueError` if a sample's placeholders and images don't match."""
    placeholders = sum(message.content.count(IMAGE) for message in sample.messages)
    if placeholders != len(sample.images):
        raise ValueError(f"{sample.trajectory}: {placeholders} placeholders for {len(sample.images)} images")


def dump_json_array(records: Iterable[dict[str, Any]]) -> str:
    """Return records as one JSON array, one record per line."""
    return "[\n" + ",\n".join(map(json.dumps, records)) + "\n]\n"


def build_dataset_info(*, validation: bool) -> dict[str, Any]:
    """Return LLaMA-Factory's `dataset_info.json`."""
    files = {TRAIN: TRAIN_FILE, **when(validation, {VALIDATION: VALIDATION_FILE})}
    return {name: {"file_name": file, **FORMAT} for name, file in files.items()}


# LLaMA-Factory's column mapping of a record.
FORMAT: dict[str, Any] = {
    "formatting": "sharegpt",
    "columns": {"messages": "conversations", "system": "system", "images": "images"},
    "tags": {
        "role_tag": "from",
        "content_tag": "value",
        "user_tag": "human",
        "assistant_tag": "gpt",
        "observation_tag": "observation",
    },
}
