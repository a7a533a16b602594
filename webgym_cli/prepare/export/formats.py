"""The records of an export in each form, and how LLaMA-Factory is told to read them. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from webgym_cli.agent.prompt import pieces
from webgym_cli.prepare.export.options import ExportFormat, ExportObjective, ExportOptions, ExportUnit
from webgym_cli.prepare.sft.conversations import Example
from webgym_cli.prepare.sft.sharegpt import FORMAT, refuse_mismatch, to_sharegpt
from webgym_cli.records.dataset import TRAIN
from webgym_cli.records.sample import IMAGE, Message, Sample

FILES = {
    ExportFormat.JSON: "train.json",
    ExportFormat.JSONL: "train.jsonl",
    ExportFormat.MESSAGES: "train.jsonl",
    ExportFormat.OPENAI: "train.jsonl",
    ExportFormat.HF: "data",
    ExportFormat.WEBDATASET: "train.jsonl",  # what two runs of tar make of the shards
}
"""The data's name within a folder."""

MESSAGES: dict[str, Any] = {
    "formatting": "sharegpt",
    "columns": {"messages": "messages", "images": "images"},
    "tags": {
        "role_tag": "role",
        "content_tag": "content",
        "user_tag": "user",
        "assistant_tag": "assistant",
        "observation_tag": "tool",
        "system_tag": "system",
    },
}
"""How LLaMA-Factory finds its way in messages with role and content."""

Locate = Callable[[str], Any]
"""SHA-256 of a screenshot -> what stands for it in a record."""


def to_record(example: Example, options: ExportOptions, locate: Locate) -> dict[str, Any]:
    """Return an example in the form that is asked for.

    Raises `ValueError` when the placeholders don't match the images, and what `locate` raises.
    """
    if options.format is ExportFormat.OPENAI:
        return _openai(example, options, locate)
    if options.format.sharegpt:
        record = {"id": example.id, **to_sharegpt(example.sample, locate)}
        turns, rejected = record["conversations"], {"from": "gpt", "value": example.rejected}
    else:
        record = {"id": example.id, **_messages(example.sample, locate)}
        turns, rejected = record["messages"], {"role": "assistant", "content": example.rejected}
    if example.rejected is not None:
        record |= {"chosen": turns.pop(), "rejected": rejected}
    if example.desirable is not None:
        record["kto_tag"] = example.desirable
    return record


def dataset_info(options: ExportOptions) -> dict[str, Any] | None:
    """Return LLaMA-Factory's registry of an exported folder; None for OpenAI's parts, which it doesn't read."""
    if options.format is ExportFormat.OPENAI:
        return None
    entry = {"file_name": FILES[options.format], **(FORMAT if options.format.sharegpt else MESSAGES)}
    if options.objective is ExportObjective.DPO:
        entry["ranking"] = True
        entry["columns"] = {**entry["columns"], "chosen": "chosen", "rejected": "rejected"}
    if options.objective is ExportObjective.KTO:
        entry["columns"] = {**entry["columns"], "kto_tag": "kto_tag"}
    return {TRAIN: entry}


def _messages(sample: Sample, locate: Locate) -> dict[str, Any]:
    refuse_mismatch(sample)
    return {
        "messages": [{"role": message.role, "content": message.content} for message in sample.messages],
        "images": [locate(sha256) for sha256 in sample.images],
    }


def _openai(example: Example, options: ExportOptions, locate: Locate) -> dict[str, Any]:
    """Return a line for OpenAI's fine-tuning: a conversation, or a prompt with two replies of which one is preferred.

    Per step only the last reply is to be learned, so the others weigh nothing.
    """
    refuse_mismatch(example.sample)
    images = map(locate, example.sample.images)
    messages: list[dict[str, Any]] = []
    for message in example.sample.messages:
        parts = [_part(piece if piece is not None else next(images), piece is None) for piece in pieces(message)]
        messages.append({"role": message.role, "content": parts if IMAGE in message.content else message.content})
    *prompt, reply = messages
    if options.unit is ExportUnit.STEP:
        prompt = [turn | {"weight": 0} if turn["role"] == "assistant" else turn for turn in prompt]
    if example.rejected is None:
        return {"messages": [*prompt, reply]}
    rejected = Message(role="assistant", content=example.rejected).model_dump()
    return {"input": {"messages": prompt}, "preferred_output": [reply], "non_preferred_output": [rejected]}


def _part(value: str, is_image: bool) -> dict[str, Any]:
    if is_image:
        return {"type": "image_url", "image_url": {"url": value}}
    return {"type": "text", "text": value}
