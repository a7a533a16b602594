"""The texts from which the tiny model's tokenizer learns its words."""

from __future__ import annotations

import json

from webgym_cli.agent.prompt import render_system_prompt
from webgym_cli.agent.tool_calls import render_system_message
from webgym_cli.agent.tools import FUNCTIONS, format_tool_call
from webgym_cli.environments.tools.oracle import ANSWER
from webgym_cli.records.action import InteractionMode
from webgym_cli.records.trajectory import PromptSpec
from webgym_cli.tools.calculator import calculator

# Element ids that occur in the texts.
NUMBERED = 100

INSTRUCTIONS = (
    'Click on the "ok" button.',
    'Click on the link "submit" and then press Cancel.',
    'Select the checkboxes and click Submit. Expand the section below, then close the dialog box by clicking the "x".',
    'Enter "hello" into the text field and press Submit. Focus into the textbox. Type the password in both fields.',
    'Find the email by Bob and click the trash icon to delete it. Reply to it with the text "thank you".',
    "Switch between the tabs to find and click on the link. Use the autocomplete to enter an item that starts with.",
    "Select the date in the calendar, choose from the list, scroll the textarea to the bottom of the text hit submit.",
    "Click on a shape: a large yellow circle, a small red triangle, a blue rectangle, green, black, magenta, cyan.",
    "How many items are there? What is the price of the cheapest ticket? Count the shapes, tell the size and colour.",
    "Buy the product, add it to the cart, search for it, sort by name, next page, previous page, page number.",
    "Drag the slider to the value, use the spinner, pick the option from the dropdown, toggle, expand, collapse.",
    "Book the cheapest flight from New York to San Francisco on the first of March. Log in with the username.",
    "Sign in, sign out, register, home, about, contact, help, settings, profile, account, search, save, edit, share.",
    "Previous, next, yes, no, accept, decline, login, logout, back, forward, refresh, upload, download, send, open.",
)

# What the prompts say beside their fixed texts.
PROMPT_WORDS = (
    "Task Start page html Elements Earlier steps Step on page changed page unchanged executed no action The last "
    "reply was no action The last action failed no such element click type hover scroll wait go_back navigate "
    "answer left_click up down true false checked expanded collapsed Click the button ONE TWO Click Me Close the "
    "dialog box by clicking labeled Cancel OK Tab Focus into the textbox 1st 2nd 3rd input Expand the section below "
    "and click submit Section Submit widget text Select from the list Enter no_tool_call several_tool_calls "
    "invalid_json unknown_function unknown_action invalid_arguments truncated "
)
# Weight of the prompts' words.
REPEATS = 50

ROLES = (
    "button link textbox checkbox radio option combobox listitem tab image svg text heading menu menuitem slider "
    "cell row table dialog searchbox switch spinbutton label div span input"
)

NAMES = (
    "ok OK Ok yes no Submit submit Cancel cancel Close close Login Next Prev previous one two three four five six "
    "seven eight nine ten red green blue yellow black white small medium large circle triangle rectangle square "
    "email name username password search text date number list item January February March April May June July "
    "August September October November December Monday Tuesday Wednesday Thursday Friday Saturday Sunday"
)


def build_corpus() -> list[str]:
    """Return prompt-like texts: words of MiniWoB's pages, element lists, and every action as a tool call."""
    return [*INSTRUCTIONS, *[PROMPT_WORDS] * REPEATS, *_elements(), *_calls(), *_points()]


def list_phrases() -> list[str]:
    """Return fixed texts that are one token each: the system prompts and the frames of calls and of an answer.

    They stand in every sample and teach nothing; as single tokens they leave a small machine its time for the rest.
    """
    found = []
    for mode in InteractionMode:
        found += [render_system_prompt(mode), f'<tool_call>\n{{"name": "{FUNCTIONS[mode]}", "arguments": {{"action": "']
    frame = (
        '", "element_id": ',
        '", "coordinate": [',
        '], "text": "',
        ', "text": "',
        "}}\n</tool_call>",
        '"}}\n</tool_call>',
    )
    return [*found, *frame, *_calculator()]


def _calculator() -> tuple[str, ...]:
    """Return what the conversations with the calculator have in common."""
    told = render_system_message(PromptSpec(system_prompt="|", tools=(calculator.schema,))).content
    call = format_tool_call("calculator", {"expression": "|"})
    return told.partition("|")[2], call.partition("|")[0], ANSWER.partition("{")[0] + "{"


def _elements() -> list[str]:
    roles, names = ROLES.split(), NAMES.split()
    return [f'[{n}] {roles[n % len(roles)]} "{names[n % len(names)]}"' for n in range(4 * NUMBERED)]


def _call(function: str, arguments: dict[str, object]) -> str:
    return json.dumps({"name": function, "arguments": arguments})


def _calls() -> list[str]:
    marks = "web_interaction"
    calls, names = [], NAMES.split()
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
    calls += [_call(function, arguments) for arguments in rest for function in (marks, "computer_use")]
    return [f"<tool_call>\n{call}\n</tool_call>" for call in calls]


def _points() -> list[str]:
    points = [(37 * step % 1001, 91 * step % 1001) for step in range(200)]
    calls = [_call("computer_use", {"action": "left_click", "coordinate": list(point)}) for point in points]
    calls += [
        _call("computer_use", {"action": "type", "coordinate": [500, 250], "text": word}) for word in NAMES.split()
    ]
    return [f"<tool_call>\n{call}\n</tool_call>" for call in calls]
