"""Folders that look like checkpoints, made without torch."""

import json
import struct
import zipfile
from pathlib import Path

from tests.records import builders
from webgym_cli.store.checkpoints import RECORD
from webgym_cli.store.run import RunDir
from webgym_cli.train import working_dir
from webgym_cli.util.files import write_json


def archive(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("data", b"0" * 200)


def weights(path: Path, size: int = 64) -> None:
    header = json.dumps({"w": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * size)


def adapter(folder: Path) -> None:
    """What a LoRA training writes in place of the model's weights."""
    weights(folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text('{"r": 8}')


def checkpoint(
    folder: Path, step: int = 4, world_size: int = 1, zero: bool = False, max_steps: int = 4, lora: bool = False
) -> Path:
    """A checkpoint as the trainer leaves it."""
    folder.mkdir(parents=True)
    if lora:
        adapter(folder)
    else:
        weights(folder / "model.safetensors")
    for name in ["scheduler.pt", *([] if zero else ["optimizer.pt"])]:
        archive(folder / name)
    for rank in range(world_size):
        archive(folder / (f"rng_state_{rank}.pth" if world_size > 1 or zero else "rng_state.pth"))
        if zero:
            archive(folder / f"global_step{step}" / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")
    if zero:
        archive(folder / f"global_step{step}" / "mp_rank_00_model_states.pt")
        (folder / "latest").write_text(f"global_step{step}")
    state = {"global_step": step, "max_steps": max_steps, "log_history": [{"grad_norm": 1.0, "step": step}]}
    (folder / "trainer_state.json").write_text(json.dumps(state))
    return folder


def published(run: RunDir, version: int, training: working_dir.TrainingIdentity | None = None, **facts) -> Path:
    """A checkpoint that is a policy of the run."""
    record = builders.checkpoint(version, resumable=True, steps=4)
    folder = checkpoint(run.checkpoints / record.name, **facts)
    write_json(folder / RECORD, record.model_dump(mode="json"))
    if training:
        write_json(folder / working_dir.RECORD, training.model_dump(mode="json"))
    return folder
