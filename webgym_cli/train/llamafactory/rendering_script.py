"""Compares, sample by sample, the tokens of a prompt as it was served with those that LLaMA-Factory trains on.

Runs in the train environment: python rendering_script.py QUESTION.json ANSWER.json. The question has the samples, the
model and LLaMA-Factory's settings; the answer is `null`, or the first difference: sample, token and both texts.
"""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from llamafactory.data.mm_plugin import get_mm_plugin
from llamafactory.data.processor.supervised import SupervisedDatasetProcessor
from llamafactory.data.template import get_template_and_fix_tokenizer
from transformers import AutoTokenizer

IMAGE = "<image>"
# The image token of the Qwen-VL families: their plugin needs no more of the processor than the merge size.
IMAGE_PAD = "<|image_pad|>"
PROCESSOR = SimpleNamespace(
    image_processor=SimpleNamespace(merge_size=2), video_processor=SimpleNamespace(merge_size=2)
)
ROLES = {"human": "user", "gpt": "assistant"}
DATA_ARGS = {
    **dict.fromkeys(("train_on_prompt", "mask_history", "preserve_thinking"), False),
    **dict.fromkeys(("tool_format", "default_system"), None),
    "enable_thinking": True,
}
# Tokens of both texts that are shown before and after the first difference.
AROUND = 40


def serve(tokenizer: Any, sample: dict[str, Any], question: dict[str, Any], images: bool) -> list[int]:
    """Return the ids of a sample's prompt as the server renders it: the model's chat template."""
    turns = [{"role": ROLES[turn["from"]], "content": turn["value"]} for turn in sample["conversations"][:-1]]
    if question["config"]["template"] == "empty":  # a raw prompt, served as it stands
        return list(tokenizer.encode(turns[0]["content"], add_special_tokens=False))
    system = sample.get("system", "").removeprefix(question["system_prefix"])
    messages = [{"role": "system", "content": system}] if system else []
    for turn in turns:
        if images and IMAGE in turn["content"]:
            turn["content"] = to_parts(turn["content"])
        messages.append(turn)
    text: str = tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True, **question["chat_template_kwargs"]
    )
    return list(tokenizer.encode(text, add_special_tokens=False))


def to_parts(text: str) -> list[dict[str, str]]:
    """Return a text with placeholders as parts of a message."""
    first, *others = text.split(IMAGE)
    parts = [{"type": "text", "text": first}]
    for piece in others:
        parts += [{"type": "image"}, {"type": "text", "text": piece}]
    return [part for part in parts if part.get("text") != ""]


def train(processor: Any, sample: dict[str, Any], images: bool) -> list[int]:
    """Return the ids of a sample as LLaMA-Factory trains on it."""
    turns = [{"role": ROLES[turn["from"]], "content": turn["value"]} for turn in sample["conversations"]]
    pictures = [None] * len(sample.get("images", [])) if images else []
    ids, _ = processor._encode_data_example(
        prompt=turns[:-1],
        response=turns[-1:],
        system=sample.get("system", ""),
        tools=None,
        images=pictures,
        videos=[],
        audios=[],
    )
    return list(ids)


def find_difference(question: dict[str, Any]) -> dict[str, Any] | None:
    """Return the first difference between what was served and what is trained, or None."""
    config = question["config"]
    arguments = SimpleNamespace(**{name: config.get(name, value) for name, value in DATA_ARGS.items()})
    arguments.template, arguments.cutoff_len = config["template"], config.get("cutoff_len", 2048)
    tokenizer, fixed = (
        AutoTokenizer.from_pretrained(question["model"], trust_remote_code=question["trust_remote_code"])
        for _ in range(2)  # LLaMA-Factory changes its own
    )
    template = get_template_and_fix_tokenizer(fixed, arguments)
    images = getattr(template.mm_plugin, "image_token", None) == IMAGE_PAD
    if images:
        template.mm_plugin.expand_mm_tokens = False
    else:  # the placeholder stays a text, on both sides
        template.mm_plugin = get_mm_plugin("base")
    processor = SupervisedDatasetProcessor(template=template, tokenizer=fixed, processor=PROCESSOR, data_args=arguments)
    for number, sample in enumerate(question["samples"]):
        served, trained = serve(tokenizer, sample, question, images), train(processor, sample, images)
        if trained[: len(served)] != served:
            pairs = enumerate(zip(served, trained, strict=False))
            place = next((place for place, (one, other) in pairs if one != other), min(len(served), len(trained)))
            window = slice(max(0, place - AROUND), place + AROUND)
            texts = {"served": tokenizer.decode(served[window]), "trained": fixed.decode(trained[window])}
            return {"sample": number, "token": place, **texts}
    return None


if __name__ == "__main__":
    question, answer = map(Path, sys.argv[1:])
    answer.write_text(json.dumps(find_difference(json.loads(question.read_text(encoding="utf-8")))), encoding="utf-8")
