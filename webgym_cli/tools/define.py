"""What a tool is, and the decorator that makes one of a function or a class."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, overload

from pydantic import BaseModel

from webgym_cli.errors import UsageError
from webgym_cli.tools.context import find_context_parameter
from webgym_cli.tools.docstring import read_docstring
from webgym_cli.tools.schema import argument_model, parameters_schema

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
# How a PNG image begins.
PNG = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a tool may return in place of a text."""

    text: str = ""
    """What the policy reads."""
    image: bytes | None = None
    """A PNG image that the policy sees with the text."""
    terminal: bool = False
    """Whether the episode ends with this call."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """What else came of it: for the reward function, never for the policy."""


@dataclass(frozen=True)
class Tool:
    """A function or class that a policy may call by name. Calling it in Python calls what was decorated."""

    name: str
    """What the policy calls it."""
    description: str
    """What the policy reads of it."""
    arguments: type[BaseModel]
    """Checks the arguments of a call."""
    make: Callable[..., Callable[..., Any]]
    """Returns what is called: the function, or a new instance of the class."""
    context: str = ""
    """The parameter of a call that takes the episode's context; empty: it takes none."""
    made_with: str = ""
    """The same of the class's constructor."""
    stateful: bool = False
    """Whether it is a class: each episode has an instance of its own, whose calls never overlap."""
    terminal: bool = False
    """Whether a call that works ends the episode."""
    timeout: float | None = None
    """Longest call in seconds; None: `agent.tool_timeout`."""
    max_length: int | None = None
    """Longest text that the policy gets to read, in characters; None: `agent.tool_max_length`."""

    @property
    def schema(self) -> dict[str, Any]:
        """The tool as OpenAI's protocol describes functions."""
        about = {"name": self.name, "description": self.description, "parameters": parameters_schema(self.arguments)}
        return {"type": "function", "function": about}

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call what was decorated; of a class, a new instance."""
        return self.make()(*arguments, **named)


@overload
def tool(decorated: Callable[..., Any], /) -> Tool: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
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
    terminal: bool = False,
    timeout: float | None = None,
    max_length: int | None = None,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a function, sync or async, or of a class whose instances are called.

    Name, description and parameters come from the signature and the docstring unless given. A class is made anew for
    each episode; its method `close`, if it has one, is called at the end. A parameter `context`, of a function, of the
    class's method or its constructor, takes the `EpisodeContext` and is not shown to the policy. What is returned is a
    text, a number, a `ToolOutput`, a mapping with `observation` (and `image`, `status`: "terminal", and whatever the
    reward function should see), or anything that JSON can hold; None is an empty text. Raises `UsageError` for what
    can't be described to a policy.
    """

    def decorate(given: Callable[..., Any]) -> Tool:
        called = given.__name__ if name is None else name
        if not _NAME.fullmatch(called):
            raise UsageError(f"tool {called!r}: a name has letters, digits, _ and - only, 64 at most")
        for what, limit in (("timeout", timeout), ("max_length", max_length)):
            if limit is not None and limit <= 0:
                raise UsageError(f"tool {called}: {what} must be above 0, it is {limit}")
        stateful = inspect.isclass(given)
        function = _method_of(called, given) if stateful else given
        context = find_context_parameter(function)
        text, parameters = read_docstring(given)
        if not (described := description or text):
            raise UsageError(f"tool {called}: the policy is not told what it does", hint="give it a docstring")
        return Tool(
            name=called,
            description=described,
            arguments=argument_model(called, function, parameters | read_docstring(function)[1], hidden=context),
            make=given if stateful else lambda: given,
            context=context,
            made_with=find_context_parameter(given) if stateful else "",
            stateful=stateful,
            terminal=terminal,
            timeout=timeout,
            max_length=max_length,
        )

    return decorate if decorated is None else decorate(decorated)


def to_output(value: Any) -> ToolOutput:
    """Return what a tool returned as its output. Raises `TypeError` or `ValueError` for what is none."""
    if isinstance(value, ToolOutput):
        output = value
    elif isinstance(value, Mapping) and value.keys() & {"observation", "image"}:
        output = _from_mapping(value)
    else:
        output = ToolOutput(_text(value))
    if output.image is not None and not output.image.startswith(PNG):
        raise ValueError("its image is no PNG")
    return output


def _from_mapping(value: Mapping[str, Any]) -> ToolOutput:
    ends = value.get("status") in ("terminal", "finish")
    info = {str(key): item for key, item in value.items() if key not in ("observation", "image", "status")}
    return ToolOutput(_text(value.get("observation", "")), _png(value.get("image")), ends, info)


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _png(image: Any) -> bytes | None:
    """Return an image's PNG: bytes as they are, a Pillow image encoded."""
    if image is None or isinstance(image, bytes):
        return image
    if not hasattr(image, "save"):
        raise TypeError(f"its image is a {type(image).__name__}, neither PNG bytes nor a Pillow image")
    from io import BytesIO

    buffer = BytesIO()
    image.save(buffer, format="PNG")
    return buffer.getvalue()


def _method_of(name: str, given: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that a call of an instance runs. Raises `UsageError` where it has none, or can't be made."""
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
