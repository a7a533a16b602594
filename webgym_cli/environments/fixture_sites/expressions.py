"""Jinja expressions and templates of the task files: sampled values, conditions and typed texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from jinja2 import Environment, StrictUndefined, Template

from webgym_cli.environments.fixture_sites.words import add_money, address, code, money, people


def evaluate(expression: str, names: Mapping[str, Any]) -> Any:
    """Return the value of an expression."""
    return _compile_expression(expression)(names)


def fill(text: str, names: Mapping[str, Any]) -> str:
    """Return a text with its `{{ }}` replaced."""
    return _compile_text(text).render(names)


def draw_names(order: Mapping[str, str], given: Mapping[str, Any]) -> dict[str, Any]:
    """Evaluate expressions in order and return their values by name (one name, or several separated by commas)."""
    drawn: dict[str, Any] = {}
    for names, expression in order.items():
        value = evaluate(expression, {**given, **drawn})
        listed = names.split(", ")
        drawn |= {names: value} if len(listed) == 1 else dict(zip(listed, value, strict=True))
    return drawn


@cache
def _compile_expression(expression: str) -> Callable[..., Any]:
    return _load_environment().compile_expression(expression, undefined_to_none=False)


@cache
def _compile_text(text: str) -> Template:
    return _load_environment().from_string(text)


@cache
def _load_environment() -> Environment:
    """Return a Jinja environment with functions for names and money."""
    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True)
    environment.globals |= {part.__name__: part for part in (add_money, address, code, money, people)}
    return environment
