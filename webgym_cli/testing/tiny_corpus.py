"""Training texts of the tiny model's tokenizer."""

from __future__ import annotations

import json
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
from webgym_cli.environments.tools.oracle import ANSWER
from webgym_cli.records.action import InteractionMode
from webgym_cli.records.trajectory import PromptSpec, PromptVersion
from webgym_cli.tools.builtin import calculator

# Number of element ids that occur in the texts.
NUMBERED = 100

# Weight of the prompts' words.
REPEATS = 50


@cache
def _load_words() -> dict[str, Any]:
    words: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
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
