"""The class `Tool`, and the decorator that makes a tool from a function or class."""

from __future__ import annotations

import inspect
import re
import textwrap
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, overload

from pydantic import BaseModel

from webgym_cli.errors import UsageError
from webgym_cli.store.screenshots import flatten_png
from webgym_cli.tools.schema import argument_model, parameters_schema
from webgym_cli.util.json_values import as_text
from webgym_cli.util.optional import known_or, when


@dataclass(frozen=True, slots=True)
class EpisodeContext:
    """An episode's task, and the state that its tools and its reward function share."""

    id: str = ""
    """The task's id."""
    question: str = ""
    """The task's question."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """The fields of the task's record, as reward functions receive them."""
    seed: int = 0
    """The episode's seed."""
    state: dict[str, Any] = field(default_factory=dict)
    """Storage for tools, initially empty."""
    tools: dict[str, Any] = field(default_factory=dict)
    """Instances of class tools by the tool's name, from its first call on."""


def find_context_parameter(function: Callable[..., Any]) -> str:
    """Return the name of the context's parameter: `context`, unless it has another type; empty if there is none."""
    parameter = inspect.signature(function).parameters.get("context")
    if parameter is None or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        return ""
    try:
        hint = typing.get_type_hints(function).get("context")
    except (NameError, TypeError):
        hint = parameter.annotation
    return when(hint in (None, EpisodeContext), "context")


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """Output of a tool, for more than a text."""

    text: str = ""
    """Text for the policy."""
    image: bytes | None = None
    """PNG image for the policy, shown with the text."""
    terminal: bool = False
    """Whether the call ends the episode."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """Additional results for the reward function, never shown to the policy."""


@dataclass(frozen=True)
class Tool:
    """A function or class that a policy may call by name. A call in Python calls the decorated object."""

    name: str
    """Name in the policy's calls."""
    description: str
    arguments: type[BaseModel]
    """Model that validates the arguments of a call."""
    make: Callable[..., Callable[..., Any]]
    """Returns the callable: the function, or a new instance of the class."""
    context: str = ""
    """Parameter of a call that receives the episode's context; empty: none."""
    fields: Mapping[str, bool] = field(default_factory=dict)
    """Parameters that receive the record's fields of their names, and whether the record must have them."""
    made_with: str = ""
    """Parameter of the class's constructor that receives the context; empty: none."""
    stateful: bool = False
    """Whether it is a class: each episode has its own instance, whose calls never overlap."""
    terminal: bool = False
    """Whether a successful call ends the episode."""
    timeout: float | None = None
    """Timeout of a call in seconds; None: `agent.tool_timeout`."""
    max_length: int | None = None
    """Maximum length of the text for the policy, in characters; None: 2048."""

    @property
    def schema(self) -> dict[str, Any]:
        """The tool as a function schema in OpenAI's format."""
        about = {"name": self.name, "description": self.description, "parameters": parameters_schema(self.arguments)}
        return {"type": "function", "function": about}

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the decorated function, or a new instance of the decorated class."""
        return self.make()(*arguments, **named)


@overload
def tool(decorated: Callable[..., Any], /) -> Tool: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    fields: Sequence[str] = (),
    terminal: bool = False,
    timeout: float | None = None,
    max_length: int | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    decorated: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    fields: Sequence[str] = (),
    terminal: bool = False,
    timeout: float | None = None,
    max_length: int | None = None,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool from a function, sync or async, or from a class whose instances are called.

    Name, description and parameters come from the signature and the docstring unless given. A class is instantiated
    for each episode; its method `close`, if any, is called at the end. A parameter `context` of the function, of the
    class's `__call__` or of its constructor receives the `EpisodeContext` and is hidden from the policy, and so are the
    parameters named in `fields`, which receive the fields of the task's record of the same names. A tool returns a
    text, a number, a `ToolOutput`, a mapping with `observation` or `image` (and `status`: "terminal", and entries for
    the reward function), or any other value that is formatted as JSON; None is an empty text. Raises `UsageError` for a
    tool that can't be described to a policy.
    """

    def decorate(given: Callable[..., Any]) -> Tool:
        called = known_or(name, given.__name__)
        stateful = inspect.isclass(given)
        function = _method_of(called, given) if stateful else given
        _check_definition(called, function, {"timeout": timeout, "max_length": max_length})
        context = find_context_parameter(function)
        filled = _find_fields(called, function, fields)
        text, parameters = read_docstring(given)
        if not (described := description or text):
            raise UsageError(f"tool {called}: the policy is not told what it does", hint="give it a docstring")
        return Tool(
            name=called,
            description=described,
            arguments=argument_model(
                called, function, parameters | read_docstring(function)[1], hidden=(context, *filled)
            ),
            make=given if stateful else lambda: given,
            context=context,
            fields=filled,
            made_with=when(stateful, find_context_parameter(given)),
            stateful=stateful,
            terminal=terminal,
            timeout=timeout,
            max_length=max_length,
        )

    return decorate if decorated is None else decorate(decorated)


def _check_definition(name: str, function: Callable[..., Any], limits: Mapping[str, float | None]) -> None:
    """Raise `UsageError` for an invalid name or limit, or a generator."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"tool {name!r}: a name has letters, digits, _ and - only, 64 at most")
    for what, limit in limits.items():
        if limit is not None and limit <= 0:
            raise UsageError(f"tool {name}: {what} must be above 0, it is {limit}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError(f"tool {name}: it yields, and a call has one result", hint="return a value")


def to_output(value: Any) -> ToolOutput:
    """Convert a tool's return value to its output. Raises `TypeError` or `ValueError` for an invalid one."""
    if isinstance(value, ToolOutput):
        output = replace(value, text=_text(value.text), image=_png(value.image), info=dict(value.info))
    elif isinstance(value, Mapping) and value.keys() & {"observation", "image"}:
        output = _from_mapping(value)
    else:
        output = ToolOutput(_text(value))
    if output.image is None:
        return output
    return replace(output, image=flatten_png(output.image))


def _from_mapping(value: Mapping[str, Any]) -> ToolOutput:
    ends = value.get("status") in ("terminal", "finish")
    info = {str(key): item for key, item in value.items() if key not in ("observation", "image", "status")}
    return ToolOutput(_text(value.get("observation", "")), _png(value.get("image")), ends, info)


def _text(value: Any) -> str:
    if value is None:
        return ""
    return as_text(value, default=str)


def _png(image: Any) -> bytes | None:
    """Return an image as PNG: bytes unchanged, a Pillow image encoded."""
    if image is None or isinstance(image, bytes):
        return image
    if not hasattr(image, "save"):
        raise TypeError(f"its image is a {type(image).__name__}, neither PNG bytes nor a Pillow image")
    from io import BytesIO

    buffer = BytesIO()
    image.save(buffer, format="PNG")
    return buffer.getvalue()


def _find_fields(name: str, function: Callable[..., Any], fields: Sequence[str]) -> dict[str, bool]:
    """Return which of the parameters for record fields have no default. Raises `UsageError` if one is no parameter."""
    parameters = inspect.signature(function).parameters
    if unknown := [named for named in fields if named not in parameters]:
        raise UsageError(f"tool {name}: fields names {unknown[0]!r}, which is no parameter of it")
    return {named: parameters[named].default is inspect.Parameter.empty for named in fields}


def _method_of(name: str, given: Callable[..., Any]) -> Callable[..., Any]:
    """Return a class's `__call__`. Raises `UsageError` if it has none, or its constructor needs other arguments."""
    method = inspect.getattr_static(given, "__call__", None)
    if not inspect.isfunction(method):
        raise UsageError(f"tool {name}: the class has no __call__", hint="def __call__(self, ...): what a call does")
    needed = [
        parameter.name
        for parameter in inspect.signature(given).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in _VARIADIC
        and parameter.name != find_context_parameter(given)
    ]
    if needed:
        raise UsageError(f"tool {name}: it is made with no argument but context, and needs {', '.join(needed)}")
    return method


_SECTION = re.compile(r"^(?:[A-Z][A-Za-z ]*:\s*$|:\w+.*:)", re.MULTILINE)
_ARGUMENTS = re.compile(r"^(?:Args|Arguments|Parameters):[ \t]*\n((?:[ \t].*\n?|\n)*)", re.MULTILINE)
# A parameter, and its text up to the next one.
_GOOGLE = re.compile(
    r"^\*{0,2}(\w+)[ \t]*(?:\([^)\n]*\))?[ \t]*:(.*(?:\n(?!\*{0,2}\w+[ \t]*(?:\([^)\n]*\))?[ \t]*:).*)*)", re.MULTILINE
)
_REST = re.compile(
    r"^[ \t]*:param[ \t]+(?:[^:\n]*[ \t])?(\w+)[ \t]*:(.*(?:\n(?![ \t]*(?::\w+.*:|$)).*)*)", re.MULTILINE
)


def read_docstring(documented: Callable[..., object] | type) -> tuple[str, dict[str, str]]:
    """Return the description (all before the first section, line ends kept) and the text of each parameter."""
    text = inspect.cleandoc(documented.__doc__ or "")
    arguments = _ARGUMENTS.search(text)
    entries = _REST.findall(text) + (_GOOGLE.findall(textwrap.dedent(arguments[1])) if arguments else [])
    description = _SECTION.split(text, maxsplit=1)[0].strip()
    return description, {name: " ".join(words.split()) for name, words in entries}
