"""What the tiny model's tokenizer is trained on: webgym's own prompts and the text of the MiniWoB pages."""

from __future__ import annotations

import re
from collections import Counter

from webgym_cli.agent.prompt import system_prompt
from webgym_cli.agent.tools import CALL_NAMES, FUNCTIONS
from webgym_cli.environments.miniwob_pages import pages_folder
from webgym_cli.records.action import InteractionMode

PROMPT_WORDS = (
    "Task Start page html Elements Earlier steps Step on page changed page unchanged executed no action "
    "The last reply was no action The last action failed click type hover scroll wait go_back navigate answer "
    "left_click up down button textbox checkbox radio link tab dialog combobox option textarea password slider div "
    "span true false checked expanded collapsed Click the button ONE TWO Click Me Close the dialog box by clicking "
    "labeled Cancel OK Tab Focus into the textbox 1st 2nd 3rd input Expand the section below and click submit "
    "Section Submit widget text Select from the list Enter yes no okay next previous "
    "no_tool_call several_tool_calls invalid_json unknown_function unknown_action invalid_arguments truncated"
)
"""What the prompts say, and the labels that the MiniWoB pages use most."""
REPEATS = 50
"""Weight of the prompt's words against those of the pages."""
_WORD = re.compile(r"[A-Za-z]{2,12}")


def phrases() -> list[str]:
    """Return fixed texts that are one token each: the system prompts and the frame of a tool call.

    They stand in every sample and teach nothing; as single tokens they leave a small machine its time for the rest.
    """
    found = []
    for mode in InteractionMode:
        found.append(system_prompt(mode))
        found.append(f'<tool_call>\n{{"name": "{FUNCTIONS[mode]}", "arguments": {{"action": "')
    return [
        *found,
        '", "element_id": ',
        '", "coordinate": [',
        '], "text": "',
        ', "text": "',
        "}}\n</tool_call>",
        '"}}\n</tool_call>',
    ]


def corpus() -> list[str]:
    """Return the training texts, the same on every machine."""
    words: Counter[str] = Counter()
    for page in sorted(pages_folder().glob("*.html")):
        words.update(_WORD.findall(page.read_text(encoding="utf-8", errors="replace")))
    common = [f" {word} {word}" for word, count in sorted(words.items()) if count >= 3]
    calls = [f'"{name}"' for mode in InteractionMode for name in CALL_NAMES[mode].values()]
    elements = [f'[{number}] button "OK"\n' for number in range(10)]
    return [*common, *[PROMPT_WORDS, *calls, *elements] * REPEATS]
