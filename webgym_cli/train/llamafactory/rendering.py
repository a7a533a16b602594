"""Whether LLaMA-Factory trains on the prompts that were served: both renderings of some samples, token by token.

The server renders a prompt by the model's chat template, LLaMA-Factory by a template of its own. The comparison runs in
the train environment, once for a tokenizer, a template and a shape of conversations.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

from webgym_cli.agent.tokens import FILES, ModelTokens
from webgym_cli.config.model import Settings
from webgym_cli.config.model_families import chat_template_kwargs, find_model_folder
from webgym_cli.errors import JobError, SettingsError
from webgym_cli.jobs.process import Job, last_lines
from webgym_cli.records.dataset import TRAIN_FILE
from webgym_cli.records.sample import IMAGE
from webgym_cli.train.process_env import child_environment
from webgym_cli.train.training_plan import TrainPlan
from webgym_cli.util.files import read_json, write_json
from webgym_cli.venvs.locate import role_home

SCRIPT = Path(__file__).with_name("rendering_script.py")
QUESTION, ANSWER = "rendering.json", "rendering_answer.json"
# Samples that are compared: evenly spaced in the dataset.
SAMPLES = 8


async def require_same_rendering(plan: TrainPlan, settings: Settings, log: Path) -> None:
    """Raise `SettingsError` where what is trained is not what was served, with both texts around the difference."""
    folder = find_model_folder(plan.model)
    if folder is None or plan.config.get("template") is None:
        return
    samples = _choose_samples(Path(str(plan.config["dataset_dir"])) / TRAIN_FILE)
    question = {
        "model": str(folder),
        "config": plan.config,
        "samples": samples,
        "system_prefix": ModelTokens(str(folder)).date_block,
        "chat_template_kwargs": chat_template_kwargs(str(folder)) | plan.chat_template_kwargs,
        "trust_remote_code": bool(plan.config.get("trust_remote_code")),
    }
    known = role_home() / "rendering" / f"{_digest(question, folder, plan.python)}.json"
    if known.is_file():
        return
    difference = await _compare(plan, settings, question, log)
    if difference is not None:
        raise _refused(difference, str(plan.config["template"]))
    write_json(known, {"model": plan.model, "template": plan.config["template"]})


def _choose_samples(file: Path) -> list[dict[str, Any]]:
    samples = read_json(file)
    step = max(1, len(samples) // SAMPLES)
    return list(samples[::step][:SAMPLES])


def _digest(question: dict[str, Any], folder: Path, python: Path) -> str:
    """Return the SHA-256 of what decides both renderings: programs, files, settings and the shapes of the texts."""
    found = hashlib.sha256(SCRIPT.read_bytes())
    for file in (folder / name for name in FILES):
        found.update(file.read_bytes() if file.is_file() else b"\0")
    versions = sorted(path.name for path in python.parent.parent.glob("lib/python*/site-packages/llamafactory-*"))
    names = ("template", "tool_format", "default_system", "enable_thinking", "preserve_thinking", "mask_history")
    told = [question["config"].get(name) for name in names]
    shapes = sorted({json.dumps(_shape(sample)) for sample in question["samples"]})
    found.update(json.dumps([versions, told, question["chat_template_kwargs"], shapes]).encode())
    return found.hexdigest()


def _shape(sample: dict[str, Any]) -> list[Any]:
    """Return what a template may look at in a sample: who speaks, blanks at the ends of texts, images, thoughts."""
    texts = [("system", sample.get("system", ""))]
    texts += [(turn["from"], turn["value"]) for turn in sample["conversations"]]
    return [(who, text[:1].isspace(), text[-1:].isspace(), IMAGE in text, "</think>" in text) for who, text in texts]


async def _compare(plan: TrainPlan, settings: Settings, question: dict[str, Any], log: Path) -> dict[str, Any] | None:
    """Return the first difference, or None. Raises `JobError` where it can't be found out."""
    asked, answer = plan.folder / QUESTION, plan.folder / ANSWER
    write_json(asked, question)
    answer.unlink(missing_ok=True)
    argv = [str(plan.python), str(SCRIPT), str(asked), str(answer)]
    env = child_environment(plan.env, settings, plan.python) | {"CUDA_VISIBLE_DEVICES": ""}
    job = Job.spawn(argv, env=env, log=log)
    try:
        code = await job.wait()
    finally:
        await asyncio.shield(job.stop())
    if code != 0:
        said = next(iter(last_lines(log, 1)), "")
        raise JobError(
            f"LLaMA-Factory's rendering of the samples couldn't be compared (exit status {code}): {said}",
            hint=f"read {log}; -s train.check_template=false trains without the comparison",
            returncode=code,
        )
    difference: dict[str, Any] | None = read_json(answer)
    asked.unlink()
    answer.unlink()
    return difference


def _refused(difference: dict[str, Any], template: str) -> SettingsError:
    return SettingsError(
        f"policy_config.template: LLaMA-Factory's {template} renders other prompts than the model was served; sample "
        f"{difference['sample']} of those compared, token {difference['token']}:\n"
        f"  served:  {difference['served']!r}\n"
        f"  trained: {difference['trained']!r}",
        hint="-s policy_config.template=NAME takes another of LLaMA-Factory's; -s train.check_template=false trains so",
    )
