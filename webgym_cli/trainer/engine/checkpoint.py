"""Checkpoints of a training: states to resume from, and the finished model in HuggingFace's format.

In the output folder: `state-N` after optimizer step N, only the newest; `checkpoint-N` after the last, a HuggingFace
model with `trainer_state.json`, written last, and `rl_state`, the exact weights and moments for the next training.
A folder gets its name only when it is complete.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

import webgym_cli.trainer.model.critics as critics
from webgym_cli.records.training_files import ADAPTER, RL_STATE, TRAINER_STATE
from webgym_cli.trainer.engine.distributed import DistributedContext
from webgym_cli.trainer.engine.engine import TrainEngine
from webgym_cli.trainer.model.model import merge_adapter, save_adapter
from webgym_cli.trainer.options import ModelConfig

STATE = "state.json"
SIDE_FILES = ("*.json", "*.jinja", "*.txt", "*.model")
NOT_COPIED = ("model.safetensors.index.json", "pytorch_model.bin.index.json", TRAINER_STATE)


def newest_state(output: Path, digest: str) -> tuple[Path, int] | None:
    """Return folder and step of the newest state with this training's digest, or None."""
    states = []
    for path in output.glob("state-*/" + STATE):
        value = json.loads(path.read_text(encoding="utf-8"))
        if value.get("digest") == digest:
            states.append((int(value["step"]), path.parent))
    return (max(states)[1], max(states)[0]) if states else None


def is_finished(output: Path, step: int, digest: str) -> bool:
    """Return whether the finished checkpoint of this training exists."""
    path = output / f"checkpoint-{step}" / TRAINER_STATE
    return path.is_file() and json.loads(path.read_text(encoding="utf-8")).get("digest") == digest


def write_state(
    output: Path, engines: Mapping[str, TrainEngine], step: int, digest: str, world: DistributedContext
) -> Path:
    """Write the state after a step, remove the older ones, and return its folder."""
    target = output / f"state-{step}"
    work = make_empty(output / f"state-{step}.new", world)
    for name, engine in engines.items():
        if world.is_main_process:
            (work / name).mkdir()
        world.wait()
        engine.save(work / name)
    world.wait()
    if world.is_main_process:
        write_json(work / STATE, {"digest": digest, "step": step})
        shutil.rmtree(target, ignore_errors=True)  # of an interruption while the model was written
        work.rename(target)
        for other in output.glob("state-*"):
            if other != target:
                shutil.rmtree(other)
    world.wait()
    return target


def write_model(
    output: Path,
    engines: Mapping[str, TrainEngine],
    options: ModelConfig,
    sources: Mapping[str, Path],
    state: Path,
    facts: dict[str, Any],
    world: DistributedContext,
) -> Path:
    """Write the finished model and return its folder. `facts`: `trainer_state.json`; `sources`: the models' folders."""
    target = output / f"checkpoint-{facts['global_step']}"
    work = make_empty(output / f"{target.name}.new", world)
    for name, engine in engines.items():
        weights = dict(engine.weights())
        if world.is_main_process:
            folder = work if name == "actor" else work / name
            write_weights(folder, engine.module, weights, options, sources[name])
            if name == "actor" and options.lora_rank:
                own = {key.removeprefix("network."): value for key, value in weights.items()}
                save_adapter(engine.module.network, own, sources[name], folder / ADAPTER)
    if world.is_main_process:
        state.rename(work / RL_STATE)
        write_json(work / TRAINER_STATE, facts)
        shutil.rmtree(target, ignore_errors=True)
        work.rename(target)
    world.wait()
    return target


def write_weights(
    folder: Path, module: Any, weights: dict[str, torch.Tensor], options: ModelConfig, source: Path
) -> None:
    """Write a network in HuggingFace's format, in the dtype of the source model and with the source's other files."""
    import transformers

    folder.mkdir(exist_ok=True)
    own = {name.removeprefix("network."): value for name, value in weights.items() if name.startswith("network.")}
    stored = module.network.state_dict().keys()
    own |= {name: value.cpu() for name, value in module.network.named_buffers() if name in stored}
    config = transformers.AutoConfig.from_pretrained(source, trust_remote_code=options.trust_remote_code)
    kind = config.dtype or config.get_text_config().dtype or torch.float32
    whole = {
        name: value.to(kind if value.is_floating_point() else value.dtype).contiguous()
        for name, value in merge_adapter(own, options).items()
    }
    module.network.save_pretrained(folder, state_dict=whole)
    if critics.save_head(module, weights, folder):
        return
    for pattern in SIDE_FILES:
        for path in source.glob(pattern):
            if path.name not in NOT_COPIED:
                shutil.copyfile(path, folder / path.name)


def make_empty(folder: Path, world: DistributedContext) -> Path:
    """Create an empty folder that all processes see on return."""
    if world.is_main_process:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    world.wait()
    return folder


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write a JSON object."""
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
