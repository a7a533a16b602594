"""Export formats of text: ShareGPT, messages, OpenAI's fine-tuning lines, and whole episodes with what was sampled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import webgym_cli
from webgym_cli.agent.prompt import render_step, split_at_images
from webgym_cli.prepare.export.options import ExportObjective, ExportUnit
from webgym_cli.prepare.export.outputs import ExportOutput
from webgym_cli.prepare.export.registry import export_format
from webgym_cli.prepare.sft.convert import Example
from webgym_cli.prepare.sft.sharegpt import FORMAT, refuse_mismatch, to_sharegpt
from webgym_cli.records.action import Action
from webgym_cli.records.sample import IMAGE, Message
from webgym_cli.records.trajectory import Step, Trajectory
from webgym_cli.util.json_values import encode_json
from webgym_cli.util.optional import when

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


_SFT = frozenset({ExportObjective.SFT})
# One record an episode, which must have been recorded token for token.
_WHOLE: dict[str, Any] = {"unit": ExportUnit.TRAJECTORY, "objectives": _SFT, "embeds_images": True}


@export_format("openenv", with_tokens=True, **_WHOLE)
def write_training_traces(examples: Iterator[Example], output: ExportOutput) -> None:
    """OpenEnv's TrainingTrace (schema 1): the token ids and log-probabilities of each call, as JSON Lines."""
    for example in examples:
        if (trajectory := example.trajectory) is not None:
            prompts = zip(trajectory.steps, example.prompt_ids, strict=True)
            turns = [_build_turn(trajectory, step, ids, output) for step, ids in prompts]
            output.write_line(encode_json({"schema_version": 1, "turns": turns}))


@export_format("atif", **_WHOLE)
def write_atif(examples: Iterator[Example], output: ExportOutput) -> None:
    """ATIF 1.7 (Harbor): messages, calls and sampled tokens of each step, as JSON Lines."""
    for example in examples:
        if example.trajectory is not None:
            output.write_line(encode_json(_build_atif(example.trajectory, output)))


def _build_turn(trajectory: Trajectory, step: Step, prompt_ids: list[int], output: ExportOutput) -> dict[str, Any]:
    generation, prompt = step.generation, render_step(trajectory, step.index)
    sampled, urls = list(generation.token_ids or ()), map(output.image_url, prompt.images)
    messages = [{"role": message.role, "content": build_parts(message, urls)} for message in prompt.messages]
    policy = generation.policy_version
    return {
        "node_id": f"{trajectory.id}/{step.index}",
        "prompt_token_ids": prompt_ids,
        "completion_token_ids": sampled,
        # Rounding may leave a probability just above 1.
        "per_token_logps": [min(one, 0.0) for one in generation.logprobs or ()],
        "loss_mask": [0] * len(prompt_ids) + [1] * len(sampled),
        "request": {"messages": messages, "tools": list(trajectory.prompt.tools or ())},
        "response": {"content": step.response, "finish_reason": generation.finish_reason},
        "metadata": {
            "trajectory": trajectory.id,
            "task": trajectory.task.id,
            "reward": trajectory.outcome.reward,
            "policy_version": policy.number if policy else None,
        },
    }


def _build_atif(trajectory: Trajectory, output: ExportOutput) -> dict[str, Any]:
    steps: list[dict[str, Any]] = []
    for step in trajectory.steps:
        prompt = render_step(trajectory, step.index)
        paths = map(output.image_path, prompt.images)
        turns = [(message.role, _to_content(message, paths)) for message in prompt.messages]
        # Prompts repeat the history: a step shows what is new in it.
        shown = turns if not steps else turns[-1:]
        steps += [{"source": role, "message": content} for role, content in shown if role != "assistant"]
        steps.append(_build_agent_step(step))
    agent = {"name": "webgym", "version": webgym_cli.__version__, "model_name": trajectory.policy}
    tools = when(trajectory.prompt.tools, {"tool_definitions": list(trajectory.prompt.tools or ())})
    facts = {"task": trajectory.task.id, "reward": trajectory.outcome.reward, "answer": trajectory.outcome.answer}
    return {
        "schema_version": "ATIF-v1.7",
        "session_id": trajectory.id,
        "agent": agent | tools,
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, 1)],
        "extra": facts,
    }


def _to_content(message: Message, paths: Iterator[str]) -> list[dict[str, Any]]:
    sources = ({"media_type": f"image/{path.rpartition('.')[2]}", "path": path} for path in paths)
    parts = build_parts(message, sources)
    return [part if "text" in part else {"type": "image", "source": part["image_url"]["url"]} for part in parts]


def _build_agent_step(step: Step) -> dict[str, Any]:
    generation = step.generation
    metrics: dict[str, Any] = {"prompt_tokens": generation.prompt_tokens}
    if ids := generation.token_ids:
        metrics |= {"completion_tokens": len(ids), "completion_token_ids": list(ids)}
    if generation.logprobs:
        metrics["logprobs"] = list(generation.logprobs)
    action = step.action
    calls = [
        {"tool_call_id": f"call-{step.index}-{number}", "function_name": call.name, "arguments": call.arguments}
        for number, call in enumerate((action.calls if isinstance(action, Action) else None) or ())
    ]
    return {
        "source": "agent",
        "message": step.response,
        "metrics": {name: value for name, value in metrics.items() if value is not None},
    } | when(calls, {"tool_calls": calls})
