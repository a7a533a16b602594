"""Export formats of text: ShareGPT, messages with role and content, OpenAI's fine-tuning lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from webgym_cli.agent.prompt import split_at_images
from webgym_cli.prepare.export.options import ExportObjective, ExportUnit
from webgym_cli.prepare.export.outputs import ExportOutput
from webgym_cli.prepare.export.registry import export_format
from webgym_cli.prepare.sft.conversations import Example
from webgym_cli.prepare.sft.sharegpt import FORMAT, refuse_mismatch, to_sharegpt
from webgym_cli.records.sample import IMAGE, Message
from webgym_cli.util.json_values import encode_json

# LLaMA-Factory's column mapping for messages with role and content.
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

# Maps a screenshot's SHA-256 to its value in a record: a path, a URL, or its bytes.
Locate = Callable[[str], Any]


@export_format("json", file_name="train.json", dataset_entry=FORMAT)
def write_json_array(examples: Iterator[Example], output: ExportOutput) -> None:
    """ShareGPT records as one JSON array."""
    before = "["
    for example in examples:
        record = build_sharegpt_record(example, output.image_path)
        output.write_line(f"{before}{encode_json(record, indent=1)}")
        before = ","
    output.write_line("]" if before == "," else "[]")


@export_format("jsonl", dataset_entry=FORMAT)
def write_json_lines(examples: Iterator[Example], output: ExportOutput) -> None:
    """ShareGPT records as JSON Lines."""
    for example in examples:
        output.write_line(encode_json(build_sharegpt_record(example, output.image_path)))


@export_format("messages", dataset_entry=MESSAGES)
def write_messages(examples: Iterator[Example], output: ExportOutput) -> None:
    """Messages with role and content, `<image>` in the text and a list of images, as JSON Lines."""
    for example in examples:
        output.write_line(encode_json(build_messages_record(example, output.image_path)))


@export_format("openai", embeds_images=True, objectives=frozenset({ExportObjective.SFT, ExportObjective.DPO}))
def write_openai(examples: Iterator[Example], output: ExportOutput) -> None:
    """OpenAI's messages, with images as parts, as JSON Lines."""
    for example in examples:
        record = build_openai_record(example, output.image_url, output.options.unit)
        output.write_line(encode_json(record))


def build_sharegpt_record(example: Example, locate: Locate) -> dict[str, Any]:
    """Return a ShareGPT record. Raises `ValueError` if placeholders and images don't match."""
    record = {"id": example.id, **to_sharegpt(example.sample, locate)}
    return _add_preference(record, record["conversations"], example, {"from": "gpt", "value": example.rejected})


def build_messages_record(example: Example, locate: Locate) -> dict[str, Any]:
    """Return a record of messages with role and content. Raises `ValueError` as `build_sharegpt_record`."""
    refuse_mismatch(example.sample)
    messages = [{"role": message.role, "content": message.content} for message in example.sample.messages]
    record = {"id": example.id, "messages": messages, "images": [locate(sha256) for sha256 in example.sample.images]}
    return _add_preference(record, messages, example, {"role": "assistant", "content": example.rejected})


def build_parts(message: Message, urls: Iterator[Any]) -> list[dict[str, Any]]:
    """Return a message's content as OpenAI's parts; each image takes the next URL."""
    parts: list[dict[str, Any]] = []
    for text in split_at_images(message):
        if text is None:
            parts.append({"type": "image_url", "image_url": {"url": next(urls)}})
        else:
            parts.append({"type": "text", "text": text})
    return parts


def build_openai_record(example: Example, locate: Locate, unit: ExportUnit) -> dict[str, Any]:
    """Return a line for OpenAI's fine-tuning: a conversation, or a prompt with preferred and other reply."""
    refuse_mismatch(example.sample)
    images = map(locate, example.sample.images)
    messages: list[dict[str, Any]] = []
    for message in example.sample.messages:
        parts = build_parts(message, images)
        messages.append({"role": message.role, "content": parts if IMAGE in message.content else message.content})
    *prompt, reply = messages
    if unit is ExportUnit.STEP:
        # Only the last reply is a target; the earlier ones have records of their own.
        prompt = [turn | {"weight": 0} if turn["role"] == "assistant" else turn for turn in prompt]
    if example.rejected is None:
        return {"messages": [*prompt, reply]}
    rejected = Message(role="assistant", content=example.rejected).model_dump()
    return {"input": {"messages": prompt}, "preferred_output": [reply], "non_preferred_output": [rejected]}


def _add_preference(
    record: dict[str, Any], turns: list[Any], example: Example, rejected: dict[str, Any]
) -> dict[str, Any]:
    """Move the last turn to `chosen` next to a rejected reply, and add KTO's label, if the example has them."""
    if example.rejected is not None:
        record |= {"chosen": turns.pop(), "rejected": rejected}
    if example.desirable is not None:
        record["kto_tag"] = example.desirable
    return record
