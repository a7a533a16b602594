"""Settings for a tiny model on CPU, and a tiny dataset with images as `webgym prepare` writes it."""

import hashlib
import json
import os
import shutil
from pathlib import Path

import yaml
from PIL import Image

from webgym_cli.config.model import Settings
from webgym_cli.config.shipped import find_deepspeed_file
from webgym_cli.prepare.sft.train_config import build_train_config, build_wandb_env, start_with_adapter
from webgym_cli.store import checkpoints
from webgym_cli.store.run import RunDir, run_id

CPU = {"bf16": False, "report_to": "none", "deepspeed_config_filename": None}
SMALL = CPU | {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "num_train_epochs": 2}
SMALL |= {"cutoff_len": 512, "learning_rate": 1e-3, "warmup_steps": 2}


def settings_for(model="tiny", role="", seed=7, train=None, **algorithm) -> Settings:
    given = {"seed": seed, "policy_config": {"base_model": str(model), "template": "qwen3_vl_nothink"}}
    given |= {"algorithm_config": SMALL | algorithm, "venvs": {"train": str(role), "device": "cpu"}}
    given["train"] = {"check_template": False, "extra": {"save_total_limit": 3}} | (train or {})
    return Settings.model_validate(given)


def rows(folder: Path, count: int, start: int = 0) -> list[dict]:
    folder.mkdir(parents=True, exist_ok=True)
    calls = []
    for index in range(start, start + count):
        images = []
        for name in ("before", "after"):
            image = folder / f"{index}-{name}.png"
            Image.new("RGB", (96, 64), (index * 10 % 256, 255 - index * 7 % 256, 128)).save(image)
            images.append(str(image))
        turns = [("human", "Task: find it\n<image>"), ("gpt", f"click [{index % 5}]")]
        turns += [("human", "<image>\nnow"), ("gpt", f"click [{index % 3}]")]
        conversations = [{"from": who, "value": text} for who, text in turns]
        calls.append({"conversations": conversations, "system": "You are a web agent.", "images": images})
    return calls


def prepare(run: RunDir, settings: Settings, samples: list[dict], name: str, digest: str = "d0") -> None:
    """Write what `webgym prepare` writes, as far as training reads it. `digest`: another one means other samples."""
    shutil.rmtree(run.dataset, ignore_errors=True)
    run.dataset.mkdir(parents=True)
    columns = {"messages": "conversations", "system": "system", "images": "images"}
    info = {"webgym_training": {"file_name": "finetune_train.json", "formatting": "sharegpt", "columns": columns}}
    (run.dataset / "dataset_info.json").write_text(json.dumps(info))
    beside = [
        sample | {"images": [os.path.relpath(image, run.dataset) for image in sample["images"]]} for sample in samples
    ]
    content = json.dumps(beside) + f"\n{' ' * int(digest[1:])}"
    (run.dataset / "finetune_train.json").write_text(content)
    shipped = settings.algorithm_config.deepspeed_config_filename
    deepspeed = run.dataset / "deepspeed.json" if shipped else None
    if deepspeed:
        shutil.copyfile(find_deepspeed_file(shipped), deepspeed)
    model = str(checkpoints.policy_path(run, settings))
    how = {"deepspeed": deepspeed, "validation": False, "device": "cpu", "samples": len(samples)}
    places = {"dataset_dir": run.dataset, "output_dir": run.checkpoints / name, "model": model}
    config = build_train_config(settings, **places, **how)
    config = start_with_adapter(config, run, settings)
    (run.dataset / "train_config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    (run.dataset / "wandb_env.sh").write_text(build_wandb_env(settings, run_id=run_id(run, settings)))
    newest = checkpoints.current(run)
    of_policy = {"iteration": 0, "parent": settings.policy_config.base_model}
    if newest:
        of_policy = {"iteration": newest.version, "parent": newest.name}
    counts = {"train_samples": len(samples), "val_samples": 0, "created_at": "2026-01-01T00:00:00+00:00"}
    names = {"model_name": name, "data_digest": hashlib.sha256(content.encode()).hexdigest()}
    (run.dataset / "prepared.json").write_text(json.dumps(of_policy | counts | names))
