"""The function that a policy may call in each interaction mode, and its textual form."""

from __future__ import annotations

import json
from typing import Any

from webgym_cli.agent.webrl_forms import render_webrl_action
from webgym_cli.records.action import WEB_ACTIONS, Action, ActionName, CustomAction, InteractionMode
from webgym_cli.records.webrl import AnyAction, WebRLAction

# The function's name in each mode.
FUNCTIONS: dict[InteractionMode, str] = {
    InteractionMode.COORDINATES: "computer_use",
    InteractionMode.SET_OF_MARKS: "web_interaction",
}

CALL_NAMES: dict[InteractionMode, dict[ActionName, str]] = {
    mode: {name: name.value for name in WEB_ACTIONS} for mode in InteractionMode
}
# What an action is called inside a tool call: as its key, but `left_click` in coordinates mode.
CALL_NAMES[InteractionMode.COORDINATES][ActionName.CLICK] = "left_click"
del CALL_NAMES[InteractionMode.COORDINATES][ActionName.HOVER]  # WebGym's computer_use has none

_TARGETS: dict[InteractionMode, dict[str, Any]] = {
    InteractionMode.COORDINATES: {
        "coordinate": {
            "type": "array",
            "items": {"type": "number", "minimum": 0, "maximum": 1000},
            "minItems": 2,
            "maxItems": 2,
            "description": "The point [x, y]; both axes run from 0 to 1000, from the top left corner.",
        }
    },
    InteractionMode.SET_OF_MARKS: {
        "element_id": {"type": "integer", "minimum": 0, "description": "The number of a marked element."}
    },
}


def build_schema(mode: InteractionMode) -> dict[str, Any]:
    """Return the function's JSON schema, as it stands in the system prompt."""
    pointed = "left_click and type" if mode is InteractionMode.COORDINATES else "click, type and hover"
    properties = {
        "action": {"type": "string", "enum": list(CALL_NAMES[mode].values())},
        **{
            name: {**target, "description": f"{target['description']} For {pointed}."}
            for name, target in _TARGETS[mode].items()
        },
        "text": {"type": "string", "description": "What to type, or the answer to the task. For type and answer."},
        "direction": {
            "type": "string",
            "enum": ["up", "down"],
            "description": "Where to move by one page. For scroll.",
        },
        "time": {"type": "number", "description": "Seconds. For wait."},
        "url": {"type": "string", "description": "An address. For navigate."},
    }
    parameters = {"type": "object", "properties": properties, "required": ["action"]}
    description = "Acts on the web page that the last screenshot shows."
    return {
        "type": "function",
        "function": {"name": FUNCTIONS[mode], "description": description, "parameters": parameters},
    }


def render_web_action(action: Action, mode: InteractionMode) -> str:
    """Return an action as the text of a tool call: the inverse of the parser."""
    arguments: dict[str, Any] = {"action": CALL_NAMES[mode][action.name]}
    if action.element_id is not None:
        arguments["element_id"] = action.element_id
    if action.coordinate is not None:
        arguments["coordinate"] = [int(axis) if float(axis).is_integer() else axis for axis in action.coordinate]
    for name, value in (
        ("text", action.text),
        ("direction", action.direction),
        ("time", action.seconds),
        ("url", action.url),
    ):
        if value is not None:
            arguments[name] = value
    return format_tool_call(FUNCTIONS[mode], arguments)


def format_tool_call(name: str, arguments: dict[str, Any]) -> str:
    """Return a call of a function as JSON between its tags."""
    call = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    call = call.replace("</", "<\\/")  # the same JSON, in which no text ends the call
    return f"<tool_call>\n{call}\n</tool_call>"


def describe_action(action: AnyAction) -> str:
    """Return an action in a few words, for the summary of older steps; what only WebRL can say in its own words."""
    if isinstance(action, CustomAction):
        return f"{action.name}({json.dumps(action.arguments, ensure_ascii=False)})"
    if isinstance(action, WebRLAction):
        return render_webrl_action(action)
    if action.calls:
        return ", ".join(f"{call.name}({json.dumps(call.arguments, ensure_ascii=False)})" for call in action.calls)
    if action.element_id is not None:
        target = f"[{action.element_id}]"
    elif action.coordinate is not None:
        target = f"({action.coordinate[0]:g}, {action.coordinate[1]:g})"
    else:
        target = ""
    details = (target, action.text and json.dumps(action.text, ensure_ascii=False), action.direction, action.url)
    return " ".join(filter(None, (action.name.value, *details)))
