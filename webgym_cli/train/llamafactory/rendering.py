"""Checks that LLaMA-Factory trains on the served prompts: compares both renderings of some samples by token.

The server renders a prompt by the model's chat template, LLaMA-Factory by a template of its own. The comparison runs in
the train environment, once for a tokenizer, a template and a shape of conversations.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from webgym_cli.agent.tokens.orm_tokens import NO_THINKING
from webgym_cli.agent.tokens.tokens import FILES, ModelTokens
from webgym_cli.config.model import Settings
from webgym_cli.config.model_families import chat_template_kwargs, find_model_folder
from webgym_cli.errors import JobError, SettingsError
from webgym_cli.jobs.process import last_line
from webgym_cli.records.dataset import TRAIN_FILE
from webgym_cli.records.sample import IMAGE
from webgym_cli.store.run import RunDir
from webgym_cli.train.llamafactory.dataset import read_train_config
from webgym_cli.train.process_limits import run_within
from webgym_cli.util.arguments import read_arguments
from webgym_cli.util.files import read_json, write_json
from webgym_cli.util.optional import when
from webgym_cli.util.temporary_folder import TemporaryFolder
from webgym_cli.venvs.locate import role_home, role_python, trainer_environ

SCRIPT = Path(__file__).with_name("rendering_script.py")
LOG = "rendering.log"
# Arguments of vLLM's by which it renders chats otherwise than by the model's files.
_TEMPLATES = ("--chat-template", "--default-chat-template-kwargs", "--tokenizer")
# Samples that are compared: evenly spaced in the dataset.
SAMPLES = 8


async def require_same_rendering(run: RunDir, settings: Settings, logs: Path) -> None:
    """Raise `SettingsError` with both texts around the difference if trained and served prompts differ."""
    if not settings.train.check_template:
        return
    config = read_train_config(run)
    model = str(config["model_name_or_path"])
    folder = find_model_folder(model)
    if folder is None or not (folder / "config.json").is_file() or config.get("template") is None:
        return
    names = (name for name, _ in read_arguments(settings.serve.extra_args))
    if name := next(filter(_TEMPLATES.__contains__, names), ""):
        raise SettingsError(
            f"serve.extra_args: the model was served prompts by {name}, which LLaMA-Factory's can't be compared with",
            hint="leave it out and change the model's chat_template.jinja; -s train.check_template=false trains so",
        )
    python = role_python(settings, "train")
    thinking, samples = when(run.orm_of, NO_THINKING), read_json(run.dataset / TRAIN_FILE)
    question = {
        "model": str(folder),
        "config": config,
        "samples": samples[:: max(1, len(samples) // SAMPLES)][:SAMPLES],
        # raw texts need no chat template, and base models have none
        "system_prefix": "" if config["template"] == "empty" else ModelTokens(str(folder)).date_block,
        "chat_template_kwargs": chat_template_kwargs(str(folder)) | thinking,
        "trust_remote_code": bool(config.get("trust_remote_code")),
    }
    known = role_home() / "rendering" / f"{_digest(question, folder, python)}.json"
    if known.is_file():
        return
    difference = await _compare(python, settings, question, logs)
    if difference is not None:
        raise SettingsError(
            f"policy_config.template: LLaMA-Factory's {config['template']} renders other prompts than the model was "
            f"served; sample {difference['sample']} of those compared, token {difference['token']}:\n"
            f"  served:  {difference['served']!r}\n"
            f"  trained: {difference['trained']!r}",
            hint="-s policy_config.template=NAME takes another of LLaMA-Factory's; "
            "-s train.check_template=false trains so",
        )
    write_json(known, {"model": model, "template": config["template"]})


def _digest(question: dict[str, Any], folder: Path, python: Path) -> str:
    """Return the SHA-256 of what decides both renderings: programs, files, settings and the shapes of the texts."""
    digest = hashlib.sha256(SCRIPT.read_bytes())
    for file in (folder / name for name in FILES):
        digest.update(file.read_bytes() if file.is_file() else b"\0")
    versions = sorted(path.name for path in python.parent.parent.glob("lib/python*/site-packages/llamafactory-*"))
    names = ("template", "tool_format", "default_system", "enable_thinking", "preserve_thinking", "mask_history")
    values = [question["config"].get(name) for name in names]
    shapes = sorted({json.dumps(_shape(sample)) for sample in question["samples"]})
    digest.update(json.dumps([versions, values, question["chat_template_kwargs"], shapes]).encode())
    return digest.hexdigest()


def _shape(sample: dict[str, Any]) -> list[Any]:
    """Return a sample's properties that can affect a template: roles, outer whitespace, images, reasoning."""
    texts = [("system", sample.get("system", ""))]
    texts += [(turn["from"], turn["value"]) for turn in sample["conversations"]]
    return [(who, text[:1].isspace(), text[-1:].isspace(), IMAGE in text, "</think>" in text) for who, text in texts]


async def _compare(python: Path, settings: Settings, question: dict[str, Any], logs: Path) -> dict[str, Any] | None:
    """Return the first difference, or None. Raises `JobError` where it can't be found out."""
    log, name = logs / LOG, "the comparison of the templates"
    # the model's files are local: no requests to the hub
    alone = {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    env = trainer_environ(python) | alone
    with TemporaryFolder("rendering") as folder:
        question_file, answer = folder / "question.json", folder / "answer.json"
        write_json(question_file, question)
        argv = [str(python), str(SCRIPT), str(question_file), str(answer)]
        code = await run_within(settings.train, argv, name, env=env, log=log, folder=folder)
        if code != 0:
            raise JobError(
                f"LLaMA-Factory's rendering of the samples couldn't be compared (exit status {code}): {last_line(log)}",
                hint=f"read {log}; -s train.check_template=false trains without the comparison",
                returncode=code,
            )
        difference: dict[str, Any] | None = read_json(answer)
        return difference
