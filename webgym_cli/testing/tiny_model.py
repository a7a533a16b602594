"""A small randomly initialised model of the Qwen3-VL architecture, made offline: for tests and for the demo."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from webgym_cli.config.model import Settings
from webgym_cli.errors import JobError, UsageError
from webgym_cli.roles.locate import role_python
from webgym_cli.store.files import read_json, write_json
from webgym_cli.testing.tiny_corpus import corpus, phrases

RECORD = "tiny_model.json"
"""Written last: the arguments that the model was made from."""
HEAD_DIM = 32
"""Size of an attention head: one that vLLM's CPU backend has."""
BUILD_TIMEOUT = 600.0
"""Seconds; nearly all of it is importing on a busy machine."""


def build_tiny_model(
    folder: Path, settings: Settings, *, hidden: int = 128, layers: int = 3, vocabulary: int = 1500, seed: int = 0
) -> dict[str, Any]:
    """Build the model into `folder` and return its facts; a folder with the same model is left as it is.

    Needs the train role. Raises `UsageError` when the folder holds something else, `JobError` when the build fails.
    """
    if hidden < HEAD_DIM or hidden % HEAD_DIM:
        raise UsageError(f"--hidden must be a multiple of {HEAD_DIM}, got {hidden}")
    wanted = {"hidden": hidden, "layers": layers, "vocabulary": vocabulary, "seed": seed}
    if (folder / RECORD).is_file():
        facts: dict[str, Any] = read_json(folder / RECORD)
        if {key: facts.get(key) for key in wanted} == wanted:
            return facts
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder}: the folder holds something else", hint="give an empty or a new folder")
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    built = _build(
        role_python(settings, "train"),
        partial,
        {**wanted, "head_dim": HEAD_DIM, "texts": corpus(), "phrases": phrases()},
    )
    facts = {"model": str(folder), **wanted, "parameters": built["parameters"], "tokens": built["vocabulary"]}
    write_json(partial / RECORD, facts)
    if folder.exists():
        folder.rmdir()
    partial.rename(folder)
    return facts


def _build(python: Path, folder: Path, arguments: dict[str, Any]) -> dict[str, Any]:
    script = Path(__file__).with_name("tiny_model_build.py")
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    try:
        done = subprocess.run(
            [python, script, folder],
            input=json.dumps(arguments),
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise JobError(f"{folder}: the model was not built within {BUILD_TIMEOUT:g} s") from None
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise JobError(
            f"{folder}: the model can't be built: {reason}", hint="webgym doctor", returncode=done.returncode
        )
    built: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return built
