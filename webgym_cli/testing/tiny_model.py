"""A tiny Qwen3-VL built offline, for tests, demos and trying a set-up, and the training texts of its tokenizer."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import asdict, dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from webgym_cli.agent.actions.action_sets import find_action_set
from webgym_cli.agent.actions.builtin_call_formats import describe_tools
from webgym_cli.agent.forms.tools import format_tool_call
from webgym_cli.agent.forms.web_actions import FUNCTIONS
from webgym_cli.agent.prompt import render_system_prompt
from webgym_cli.config.model import Settings
from webgym_cli.environments.tools.environment import ANSWER
from webgym_cli.errors import JobError, UsageError
from webgym_cli.records.action import InteractionMode
from webgym_cli.records.trajectory import PromptSpec, PromptVersion
from webgym_cli.testing import tiny_model_build
from webgym_cli.tools.builtin import calculator
from webgym_cli.venvs.locate import role_python

# Number of element ids that occur in the texts.
NUMBERED = 100

# Weight of the prompts' words.
REPEATS = 50
POINTS = "computer_use"


@cache
def _load_words() -> dict[str, Any]:
    words: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("tiny_corpus.yaml").read_text(encoding="utf-8"))
    return words


def build_corpus() -> list[str]:
    """Return prompt-like texts: words of MiniWoB's pages, element lists, and every action as a tool call."""
    words = _load_words()
    prompts = [words["prompt_words"] + " "] * REPEATS
    return [*words["instructions"], *prompts, *_elements(), *_calls(), *_points()]


def list_phrases(version: str = PromptVersion.VANILLA) -> list[str]:
    """Return fixed texts that become single tokens: system prompts, also of a prompt version other than `vanilla`, and
    the constant parts of calls and answers.

    They occur in every sample and carry no information; as single tokens they leave a small machine more time for the
    rest.
    """
    words, phrases = _load_words(), list[str]()
    for mode in InteractionMode:
        phrases += [
            render_system_prompt(mode),
            f'<tool_call>\n{{"name": "{FUNCTIONS[mode]}", "arguments": {{"action": "',
        ]
    call = format_tool_call("calculator", {"expression": "|"}).partition("|")[0]
    tools = f"\n\n{describe_tools((calculator.schema,))}"
    phrases += [*words["call_parts"], tools, call, ANSWER.partition("{")[0] + "{"]
    actions = find_action_set(PromptSpec(version=version))
    if version == PromptVersion.VANILLA:
        return phrases
    if actions.template is None:
        return [*phrases, *words["page_parts"], *words["links"]]
    return [*phrases, *(actions.template.system(mode) for mode in actions.modes)]


def _elements() -> list[str]:
    roles, names = _load_words()["roles"].split(), _load_words()["names"].split()
    return [f'[{n}] {roles[n % len(roles)]} "{names[n % len(names)]}"' for n in range(4 * NUMBERED)]


def _call(function: str, **arguments: object) -> str:
    call = json.dumps({"name": function, "arguments": arguments})
    return f"<tool_call>\n{call}\n</tool_call>"


def _calls() -> list[str]:
    marks, words = "web_interaction", _load_words()
    calls, names = [], words["names"].split()
    for number in range(NUMBERED):
        calls += [
            _call(marks, action="click", element_id=number),
            _call(marks, action="type", element_id=number, text=names[number % len(names)]),
        ]
    return calls + [_call(function, **action) for action, function in product(words["actions"], (marks, POINTS))]


def _points() -> list[str]:
    points = [[37 * step % 1001, 91 * step % 1001] for step in range(200)]
    calls = [_call(POINTS, action="left_click", coordinate=point) for point in points]
    typed = _load_words()["names"].split()
    return calls + [_call(POINTS, action="type", coordinate=[500, 250], text=word) for word in typed]


# File with the arguments of a complete tiny model.
MARKER = "webgym_tiny_model.json"
BUILD_TIMEOUT = 300.0


@dataclass(frozen=True, slots=True)
class TinyModel:
    """Sizes of a tiny model. `vocab_size` is an upper limit that includes special tokens."""

    seed: int = 0
    hidden: int = 128
    layers: int = 3
    heads: int = 4
    head_dim: int = 32
    vision_hidden: int = 64
    vision_depth: int = 2
    vocab_size: int = 1792
    tie_embeddings: bool = False
    """With tied embeddings, vLLM on CPU would keep the old output layer after an in-place update and need a restart."""
    min_pixels: int = 32 * 32
    """Smaller images are enlarged to this number of pixels."""
    prompt_version: str = PromptVersion.VANILLA
    """Prompt version whose system prompt is a single token, as that of `vanilla` is; of WebRL's: constant parts of its
    pages and actions, and the category names of the shop."""


def build_tiny_model(directory: Path, settings: Settings, sizes: TinyModel | None = None) -> Path:
    """Build a model in the train environment and return its folder, which is either complete or absent.

    The same arguments give the same bytes; an existing equal model is kept. Raises `UsageError` if other files are in
    the way.
    """
    sizes = sizes or TinyModel()
    arguments, wanted = _plan(sizes)
    if _there(directory, wanted):
        return directory
    python = role_python(settings, "train")
    directory.parent.mkdir(parents=True, exist_ok=True)
    half = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        _build(python, {**arguments, "directory": str(half)})
        (half / MARKER).write_text(json.dumps(wanted, indent=1, sort_keys=True), encoding="utf-8")
        half.chmod(0o755)
        (half / "model.safetensors").chmod((half / MARKER).stat().st_mode)  # safetensors writes it for its owner alone
        half.replace(directory)  # replaces at most an empty folder
    finally:
        shutil.rmtree(half, ignore_errors=True)
    return directory


def plan_tiny_model(directory: Path, sizes: TinyModel) -> dict[str, object]:
    """Return the output of `--dry-run`. Raises `UsageError` if other files are in the way."""
    state = "ready" if _there(directory, _plan(sizes)[1]) else "make"
    return {"event": "plan", "stage": "init-model", "model": str(directory), "state": state, **asdict(sizes)}


def _plan(sizes: TinyModel) -> tuple[dict[str, object], dict[str, object]]:
    """Return the arguments of the build, and the content of the model's marker."""
    own = {name: value for name, value in asdict(sizes).items() if name != "prompt_version"}
    words = {"texts": build_corpus(), "phrases": list_phrases(sizes.prompt_version)}
    return {**own, **words}, {**own, "words": hashlib.sha256(json.dumps(words).encode()).hexdigest()}


def _there(directory: Path, wanted: dict[str, object]) -> bool:
    """Whether exactly this model exists. Raises `UsageError` if something else is there."""
    if not directory.exists() or (directory.is_dir() and not any(directory.iterdir())):
        return False
    marker = directory / MARKER
    if not marker.is_file():
        raise UsageError(f"{directory} exists and is no tiny model", hint="name a new folder")
    if json.loads(marker.read_text(encoding="utf-8")) != wanted:
        raise UsageError(
            f"{directory} holds a tiny model of other sizes, seed or words", hint="name a new folder, or remove it"
        )
    return True


def _build(python: Path, arguments: dict[str, object]) -> None:
    misleading = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    env = {name: value for name, value in os.environ.items() if name not in misleading}
    # one thread, and no parallel tokenizer: the result must not depend on the machine
    env |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    command = [str(python), tiny_model_build.__file__]
    try:
        done = subprocess.run(
            command, input=json.dumps(arguments), capture_output=True, text=True, env=env, timeout=BUILD_TIMEOUT
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JobError(f"building the tiny model failed: {error}") from error
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise JobError(
            f"building the tiny model failed: {last}",
            hint="webgym setup --role train",
            returncode=done.returncode,
        )
