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
from webgym_cli.agent.actions.tool_calls import describe_tools
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
    phrases = []
    for mode in InteractionMode:
        phrases += [
            render_system_prompt(mode),
            f'<tool_call>\n{{"name": "{FUNCTIONS[mode]}", "arguments": {{"action": "',
        ]
    frame = (
        '", "element_id": ',
        '", "coordinate": [',
        '], "text": "',
        ', "text": "',
        "}}\n</tool_call>",
        '"}}\n</tool_call>',
    )
    return [*phrases, *frame, *_calculator(), *_texts_of(version)]


def _texts_of(version: str) -> tuple[str, ...]:
    """Return what a prompt version has beside the texts of `vanilla`."""
    actions = find_action_set(PromptSpec(version=version))
    if version == PromptVersion.VANILLA:
        return ()
    if actions.template is None:
        return _pages()
    return tuple(actions.template.system(mode) for mode in actions.modes)


def _calculator() -> tuple[str, ...]:
    """Return the constant parts of conversations with the calculator."""
    described = f"\n\n{describe_tools((calculator.schema,))}"
    call = format_tool_call("calculator", {"expression": "|"})
    return described, call.partition("|")[0], ANSWER.partition("{")[0] + "{"


def _pages() -> tuple[str, ...]:
    """Return the constant parts of WebRL's pages and actions, and the names of links.

    A name is the same token in a task and on a page, so that the model can learn to match them.
    """
    frame = ('<a id="', '" data-bbox="', '"> ', " </a> ", " </a>", 'do(action="Click", element="', '")')
    return *frame, 'exit(message="")', *_load_words()["links"]


def _elements() -> list[str]:
    roles, names = _load_words()["roles"].split(), _load_words()["names"].split()
    return [f'[{n}] {roles[n % len(roles)]} "{names[n % len(names)]}"' for n in range(4 * NUMBERED)]


def _call(function: str, arguments: dict[str, object]) -> str:
    return json.dumps({"name": function, "arguments": arguments})


def _calls() -> list[str]:
    marks = "web_interaction"
    calls, names = [], _load_words()["names"].split()
    for number in range(NUMBERED):
        word = names[number % len(names)]
        calls += [
            _call(marks, {"action": "click", "element_id": number}),
            _call(marks, {"action": "type", "element_id": number, "text": word}),
        ]
    rest: tuple[dict[str, object], ...] = (
        {"action": "hover", "element_id": 1},
        {"action": "scroll", "direction": "down"},
        {"action": "scroll", "direction": "up"},
        {"action": "wait", "time": 1},
        {"action": "go_back"},
        {"action": "navigate", "url": "https://example.com/"},
        {"action": "answer", "text": "yes"},
    )
    calls += [_call(function, arguments) for arguments, function in product(rest, (marks, "computer_use"))]
    return [f"<tool_call>\n{call}\n</tool_call>" for call in calls]


def _points() -> list[str]:
    points = [(37 * step % 1001, 91 * step % 1001) for step in range(200)]
    calls = [_call("computer_use", {"action": "left_click", "coordinate": list(point)}) for point in points]
    calls += [
        _call("computer_use", {"action": "type", "coordinate": [500, 250], "text": word})
        for word in _load_words()["names"].split()
    ]
    return [f"<tool_call>\n{call}\n</tool_call>" for call in calls]


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
    words = _words(sizes)
    wanted = _marker_content(sizes, words)
    if _there(directory, wanted):
        return directory
    python = role_python(settings, "train")
    directory.parent.mkdir(parents=True, exist_ok=True)
    half = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        _build(python, {**_sizes(sizes), "directory": str(half), **words})
        (half / MARKER).write_text(json.dumps(wanted, indent=1, sort_keys=True), encoding="utf-8")
        half.chmod(0o755)
        (half / "model.safetensors").chmod((half / MARKER).stat().st_mode)  # safetensors writes it for its owner alone
        half.replace(directory)  # replaces at most an empty folder
    finally:
        shutil.rmtree(half, ignore_errors=True)
    return directory


def plan_tiny_model(directory: Path, sizes: TinyModel) -> dict[str, object]:
    """Return the output of `--dry-run`. Raises `UsageError` if other files are in the way."""
    state = "ready" if _there(directory, _marker_content(sizes, _words(sizes))) else "make"
    return {"event": "plan", "stage": "init-model", "model": str(directory), "state": state, **asdict(sizes)}


def _sizes(sizes: TinyModel) -> dict[str, object]:
    """Return the model's arguments except its texts."""
    return {name: value for name, value in asdict(sizes).items() if name != "prompt_version"}


def _words(sizes: TinyModel) -> dict[str, list[str]]:
    return {"texts": build_corpus(), "phrases": list_phrases(sizes.prompt_version)}


def _marker_content(sizes: TinyModel, words: dict[str, list[str]]) -> dict[str, object]:
    """Return the expected content of the model's marker."""
    return {**_sizes(sizes), "words": hashlib.sha256(json.dumps(words).encode()).hexdigest()}


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
