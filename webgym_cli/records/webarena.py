"""WebArena's terms for sites and evaluations of tasks."""

from __future__ import annotations

import re
from enum import StrEnum
from itertools import chain
from typing import Any

from pydantic import ConfigDict, Field, field_validator, model_validator

from webgym_cli.records.base import Record
from webgym_cli.util.optional import known_or, when

# Separators of alternative texts, and of texts that are all required.
OR, AND = "|OR|", "|AND|"
_SPLIT = re.compile(r"\|(?:OR|AND)\|")


class WebArenaSite(StrEnum):
    """Sites of WebArena. A site's URL placeholder is its name in capitals, like `__SHOPPING_ADMIN__`."""

    SHOPPING = "shopping"
    SHOPPING_ADMIN = "shopping_admin"
    REDDIT = "reddit"
    GITLAB = "gitlab"
    MAP = "map"
    WIKIPEDIA = "wikipedia"
    HOMEPAGE = "homepage"

    @property
    def placeholder(self) -> str:
        """Placeholder of its URL in tasks."""
        return f"__{self.upper()}__"


class EvalType(StrEnum):
    """What the evaluation of an episode checks."""

    STRING_MATCH = "string_match"
    """The answer."""
    URL_MATCH = "url_match"
    """The address of the last page."""
    PROGRAM_HTML = "program_html"
    """Contents of pages after the episode."""


class UrlRule(StrEnum):
    """How the URL of the last page is compared."""

    EXACT = "EXACT"
    GOLD_IN_PRED = "GOLD in PRED"
    """The last URL equals or extends the expected one: the same path or one below it, with the expected parameters."""


class Expected(Record):
    """Requirements on a text; all rules that are set must hold."""

    exact_match: str | None = None
    must_include: tuple[str, ...] | None = None
    """All of these; each may be alternatives with `|OR|`, and alternatives may be several texts with `|AND|`."""
    must_exclude: tuple[str, ...] | None = None
    """None of these."""
    one_of: tuple[str, ...] | None = None
    required_values: tuple[str, ...] | None = None
    """Comparisons like `>= 300`, with `|OR|`, that the text as a number has to meet."""
    fuzzy_match: tuple[str, ...] | None = None
    """Statements that a judge must find in it, all in one question. `("N/A",)`: that the task is infeasible."""

    @field_validator("must_include", "must_exclude", "one_of", "required_values", "fuzzy_match", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _asks_for_something(self) -> Expected:
        rules = {name: getattr(self, name) for name in type(self).model_fields if getattr(self, name) is not None}
        if not rules:
            raise ValueError("no rule is set, so that every text would do")
        for name, rule in rules.items():
            if name != "exact_match" and not (
                rule and all(part.strip() for part in chain.from_iterable(map(_SPLIT.split, rule)))
            ):
                raise ValueError(f"{name}: an empty text is in every text")
        return self


class HtmlTarget(Record):
    """One page to check after the episode."""

    url: str = Field(min_length=1)
    """`last` for the last page, an address, or `func:` with a helper."""
    locator: str
    """Empty for the whole page, JavaScript that the page evaluates, or `func:` with a helper."""
    required_contents: Expected
    prep_actions: tuple[str, ...] = ()
    """JavaScript that the page runs before."""


class Evaluation(Record):
    """Evaluation of an episode: the product over its types, each 0 or 1."""

    model_config = ConfigDict(extra="ignore")  # other fields are remarks of the tasks' authors

    eval_types: tuple[EvalType, ...] = Field(min_length=1)
    reference_answers: Expected | None = None
    reference_url: str | None = None
    """The wanted address, or alternatives with `|OR|`."""
    program_html: tuple[HtmlTarget, ...] = ()
    string_note: str = ""
    """Why the task can't be done, where it can't."""
    reference_answer_raw_annotation: str = ""
    """The answer as annotated by a person."""
    url_note: UrlRule = UrlRule.EXACT

    @field_validator("program_html", "string_note", "reference_answer_raw_annotation", "url_note", mode="before")
    @classmethod
    def _null_is_missing(cls, value: Any, info: Any) -> Any:
        return known_or(value, cls.model_fields[info.field_name].default)

    @field_validator("reference_answers", mode="before")
    @classmethod
    def _no_rules_are_missing(cls, value: Any) -> Any:
        rules = value.values() if isinstance(value, dict) else [value or None]  # "" in WebChoreArena
        return value if any(rule is not None for rule in rules) else None

    @model_validator(mode="after")
    def _has_what_it_looks_at(self) -> Evaluation:
        needed = {
            EvalType.STRING_MATCH: ("reference_answers", self.reference_answers),
            EvalType.URL_MATCH: ("reference_url", (self.reference_url or "").strip()),
            EvalType.PROGRAM_HTML: ("program_html", self.program_html),
        }
        for kind in self.eval_types:
            field, value = needed[kind]
            if not value:
                raise ValueError(f"{kind} needs {field}, which is empty: every episode would do")
        if EvalType.URL_MATCH in self.eval_types:
            addresses = (self.reference_url or "").split(OR)
            if AND in (self.reference_url or "") or not all(address.strip() for address in addresses):
                raise ValueError(f"reference_url: addresses with {OR} between them are needed")
        return self

    @property
    def targets(self) -> tuple[HtmlTarget, ...]:
        """The targets of `program_html`, which other types of evaluation leave aside."""
        return when(EvalType.PROGRAM_HTML in self.eval_types, self.program_html)

    @property
    def is_dummy(self) -> bool:
        """Whether it is a placeholder, as in generated tasks: N/A without the reason that real tasks give."""
        return (
            self.eval_types == (EvalType.STRING_MATCH,)
            and self.reference_answers == Expected(exact_match="N/A")
            and not self.string_note.strip()
            and not self.reference_answer_raw_annotation.strip()
        )
