"""Tables of actions as arguments of one function, which yield its JSON schema, and the parser and writer of calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from webgym_cli.records.action import Action, ActionName, InteractionMode
from webgym_cli.records.webrl import AnyAction


class UnknownActionError(ValueError):
    """A call names an action that the set lacks."""


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a call: its JSON schema, and the fields of an action that it sets."""

    schema: Mapping[str, Any]
    read: Callable[[Any], dict[str, Any]]
    """Returns the fields for a value. Raises `ValueError`."""
    write: Callable[[Action], Any]
    """Returns the value for an action; None to leave the argument out."""


def make_argument(name: str, description: str, **schema: Any) -> Argument:
    """Make an argument that sets one field of an action."""
    return Argument(
        {**schema, "description": description},
        read=lambda value: {name: _freeze(value)},
        write=lambda action: _plain(getattr(action, name)),
    )


def make_flag(name: str, description: str) -> Argument:
    """Make a boolean argument whose field is set only if it is true."""
    argument = make_argument(name, description, type="boolean")
    read = argument.read
    return Argument(argument.schema, read=lambda value: {} if value is False else read(value), write=argument.write)


def _freeze(value: Any) -> Any:
    return tuple(map(_freeze, value)) if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    if not isinstance(value, tuple):
        return value
    return [int(part) if isinstance(part, float) and part.is_integer() else _plain(part) for part in value]


@dataclass(frozen=True, slots=True)
class CallForm:
    """An action under its name in a set."""

    name: ActionName
    arguments: str = ""
    """Names of the arguments, separated by spaces; optional ones end in a question mark."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the action that the name implies."""
    untargeted: Mapping[str, Any] = field(default_factory=lambda: {"here": True})
    """Fields that are set if the target is optional and missing."""
    own: Mapping[str, Argument] = field(default_factory=dict)
    """Arguments that differ from those of the same name in the rest of the set."""
    ignored: frozenset[str] = frozenset()
    """Fields that `write` may change, because the set can't express them."""

    def takes(self, argument: str) -> bool | None:
        """Return True for a required argument, False for an optional one, None for any other."""
        names = self.arguments.split()
        if argument in names:
            return True
        return False if f"{argument}?" in names else None


@dataclass(frozen=True, slots=True, kw_only=True)
class WebActions:
    """The actions of a set in both interaction modes."""

    functions: Mapping[InteractionMode, str]
    """Name of the called function, in each supported mode."""
    forms: Mapping[InteractionMode, Mapping[str, CallForm]]
    """The actions by name, in each supported mode."""
    arguments: Mapping[str, Argument]
    """All arguments of the forms, in the order of the schema."""
    rules: str = ""
    """Rules that the schema lacks; empty for `BASIC`, whose plain prompt is fixed."""

    def has(self, name: ActionName) -> bool:
        """Whether the set has an action."""
        return any(form.name is name for form in chain.from_iterable(forms.values() for forms in self.forms.values()))

    def build_schema(self, mode: InteractionMode) -> dict[str, Any]:
        """Return the function's JSON schema for the system prompt."""
        forms = self.forms[mode]
        properties: dict[str, Any] = {"action": {"type": "string", "enum": list(forms)}}
        for name, argument in self.arguments.items():
            needing = [called for called, form in forms.items() if form.takes(name)]
            allowing = [called for called, form in forms.items() if form.takes(name) is False]
            groups = (("for", needing), ("optional for", allowing))
            listed = ((word, filter(None, (", ".join(names[:-1]), *names[-1:]))) for word, names in groups if names)
            if uses := [f"{word} {' and '.join(names)}" for word, names in listed]:
                text = "; ".join(uses)
                described = f"{argument.schema['description']} {text[0].upper()}{text[1:]}."
                properties[name] = {**argument.schema, "description": described}
        parameters = {"type": "object", "properties": properties, "required": ["action"]}
        description = "Acts on the web page that the last screenshot shows."
        return {
            "type": "function",
            "function": {"name": self.functions[mode], "description": description, "parameters": parameters},
        }

    def read(self, arguments: Mapping[str, Any], mode: InteractionMode) -> Action:
        """Return the action of a call. Raises `UnknownActionError`, or `ValueError` with the reason."""
        called = arguments.get("action")
        if not isinstance(called, str) or called not in self.forms[mode]:
            raise UnknownActionError(f"no action {called!r}")
        form = self.forms[mode][called]
        given = {key: value for key, value in arguments.items() if key != "action"}
        if unknown := sorted(key for key in given if key not in self.arguments or form.takes(key) is None):
            raise ValueError(f"{called} has no argument {', '.join(unknown)}")
        given = {key: value for key, value in given.items() if value is not None}
        if missing := [name for name in self.arguments if form.takes(name) and name not in given]:
            raise ValueError(f"{called} lacks the argument {', '.join(missing)}")
        fields: dict[str, Any] = {"name": form.name, **form.fields}
        if any(form.takes(place) is False for place in _PLACES) and not given.keys() & _PLACES:
            fields |= form.untargeted
        for key, value in given.items():
            argument = form.own.get(key, self.arguments[key])
            if value not in argument.schema.get("enum", [value]):
                raise ValueError(f"{key} must be one of {', '.join(argument.schema['enum'])}")
            fields |= argument.read(value)
        return Action.model_validate(fields, strict=True)

    def write(self, action: AnyAction, mode: InteractionMode) -> dict[str, Any]:
        """Return the arguments that `read` reads as an action. Raises `ValueError` if the set lacks the action."""
        for called, form in self.forms[mode].items():
            if not isinstance(action, Action) or form.name is not action.name:
                continue
            taken = [name for name in self.arguments if form.takes(name) is not None]
            values = {name: form.own.get(name, self.arguments[name]).write(action) for name in taken}
            arguments = {"action": called, **{name: value for name, value in values.items() if value is not None}}
            if self._reads_back(arguments, mode, action, form.ignored):
                return arguments
        raise ValueError(f"the action set has no such action: {action.model_dump_json(exclude_none=True)}")

    def _reads_back(
        self, arguments: Mapping[str, Any], mode: InteractionMode, action: Action, ignored: frozenset[str]
    ) -> bool:
        try:
            read = self.read(arguments, mode)
        except ValueError:
            return False
        alike = dict.fromkeys(ignored)
        return read.model_copy(update=alike) == action.model_copy(update=alike)


_PLACES = frozenset({"coordinate", "element_id"})
