"""LLaMA-Factory as a training backend."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from webgym_cli.config.model import Settings
from webgym_cli.records.events import EventSink
from webgym_cli.store.weights import Tensor
from webgym_cli.train.backend import TrainingBackend, TrainingStart, TrainPlan, fresh_note
from webgym_cli.train.footprint import TrainingMemory, configured_memory
from webgym_cli.train.llamafactory import optimizer_carryover
from webgym_cli.train.llamafactory.plan import plan_sft
from webgym_cli.train.process_env import child_environment
from webgym_cli.util.optional import when
from webgym_cli.util.registry import lazy


async def build_start(plan: TrainPlan, settings: Settings, log: Path, sink: EventSink) -> TrainPlan:
    """Build the starting state with carried optimizer states; fall back to a new optimizer."""
    launch, parent = plan.launch, cast(Path, plan.start.source)
    options = optimizer_carryover.ADAM | plan.options
    options = {name: options[name] for name in ("learning_rate", *optimizer_carryover.ADAM)}
    options |= optimizer_carryover.steps_for(plan.options, plan.total_steps)
    env = child_environment(launch.env, settings, launch.python)
    target = Path(plan.options["resume_from_checkpoint"])
    reason = await optimizer_carryover.build_start(launch.python, parent, target, options, env, log)
    message = fresh_note(reason) if reason else f"the optimizer goes on from {parent.name}"
    sink({"event": "train_note", "message": message})
    if not reason:
        return plan
    return replace(plan, start=TrainingStart(plan.start.training.model_copy(update={"carried": False}), note=message))


def estimate_memory(
    settings: Settings, model: list[Tensor], deepspeed: dict[str, Any] | None, processes: int
) -> TrainingMemory:
    """Return the memory of a training without activations. The settings have LLaMA-Factory's names."""
    return configured_memory(model, settings.algorithm_config.model_dump(mode="json"), deepspeed, processes)


LLAMAFACTORY = TrainingBackend(
    plan_sft,
    "dataset",
    check_data=lazy("webgym_cli.train.llamafactory.rendering:require_same_rendering"),
    build_start=build_start,
    export=lazy("webgym_cli.train.llamafactory.lora_merge:export"),
    deepspeed_setting="algorithm_config.deepspeed_config_filename",
    # vLLM applies no adapter to a vision tower.
    adapter_rank=lambda settings: when(
        settings.algorithm_config.finetuning_type == "lora" and settings.algorithm_config.freeze_vision_tower,
        settings.algorithm_config.lora_rank,
    ),
    estimate_memory=estimate_memory,
)
