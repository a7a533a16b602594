"""Models of functions' parameters, which validate arguments and yield the JSON schema for the policy."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Collection
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError

from webgym_cli.errors import UsageError
from webgym_cli.util.text import first_line

_KINDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
# Maximum length of the reason why an argument is invalid, in characters.
_MESSAGE = 200


class BadArgumentsError(ValueError):
    """The arguments of a call don't match the tool's parameters. The message is for the policy."""


def argument_model(
    name: str, function: Callable[..., Any], texts: dict[str, str], hidden: Collection[str] = ()
) -> type[BaseModel]:
    """Return the model of a function's parameters, described by `texts`, without the hidden ones.

    Fields have neutral names and the parameters' names as aliases, because a parameter may be called `json` or `copy`
    like a method of the model. Raises `UsageError` if the parameters have no JSON schema.
    """
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        raise UsageError(f"tool {name}: its types can't be read: {error}") from error
    fields: dict[str, Any] = {}
    for number, parameter in enumerate(inspect.signature(function).parameters.values()):
        if (parameter.name == "self" and number == 0) or parameter.name in hidden:
            continue
        if parameter.kind not in _KINDS:
            raise UsageError(f"tool {name}: {parameter} can't be told to a policy", hint="give every parameter a name")
        if parameter.name not in hints:
            raise UsageError(f"tool {name}: the parameter {parameter.name} has no type", hint="write name: str, ...")
        about: dict[str, Any] = {} if parameter.default is inspect.Parameter.empty else {"default": parameter.default}
        hint = hints[parameter.name]
        written = (one for one in getattr(hint, "__metadata__", ()) if isinstance(one, str))
        if text := texts.get(parameter.name) or next(written, ""):  # None would hide that of an annotated Field
            about["description"] = text
        fields[f"argument_{number}"] = (hint, Field(alias=parameter.name, **about))
    try:
        model = create_model(name, __config__=ConfigDict(extra="forbid", arbitrary_types_allowed=False), **fields)
        model.model_json_schema()
    except (PydanticUserError, TypeError) as error:
        raise UsageError(f"tool {name}: its parameters have no JSON schema: {first_line(error)}") from error
    return model


def parameters_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON schema of a parameter model, without the titles that pydantic generates."""
    schema = _plain(model.model_json_schema())
    return {"type": "object", "properties": {}, **schema}


def check_arguments(model: type[BaseModel], arguments: dict[str, Any]) -> dict[str, Any]:
    """Validate arguments and return them in the parameters' types, without defaults. Raises `BadArgumentsError`."""
    try:
        validated = model.model_validate(arguments)
    except ValidationError as error:
        reasons = (_reason(detail) for detail in error.errors(include_url=False, include_context=False))
        raise BadArgumentsError("; ".join(reasons)) from None
    names = {name: info.alias or name for name, info in type(validated).model_fields.items()}
    return {names[name]: getattr(validated, name) for name in names if name in validated.model_fields_set}


def _reason(detail: Any) -> str:
    place = ".".join(str(part) for part in detail["loc"])
    if detail["type"] == "extra_forbidden":
        return f"there is no argument {place[:_MESSAGE]}"
    if detail["type"] == "missing":
        return f"the argument {place} is missing"
    return f"{place}: {detail['msg']}"[:_MESSAGE]


def _plain(value: Any, *, names: bool = False) -> Any:
    """Remove the titles. `names`: the keys are parameter names, so a `title` among them is kept."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _plain(item, names=not names and key in ("properties", "$defs"))
        for key, item in value.items()
        if names or key != "title"
    }
