"""What a task of the sites is, before and after its episode's seed has filled it in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from webgym_cli.environments.fixture_sites.answers import ALTERNATIVES, says, stray_numbers
from webgym_cli.records.task import Task

Check = Callable[[Any, str], bool]
"""Tells from the site's state and the answer (empty without one) whether a fact holds."""


@dataclass(frozen=True, slots=True)
class Draft:
    """What a seed decides about a task."""

    values: Mapping[str, str]
    """What stands for the names in the templates of instruction and facts."""
    checks: tuple[Check, ...]
    """One for each fact."""
    reference: str | None = None
    """The answer of an information task, alternatives with `|OR|` between; None: the state alone decides."""
    rivals: tuple[str, ...] = ()
    """What a right answer does not name: whoever lists all candidates has not answered."""
    prepare: Callable[[Any], None] | None = None
    """Changes the site's fresh state before the episode starts."""


@dataclass(frozen=True, slots=True)
class SiteTask:
    """One task on one site, for any seed."""

    id: str
    host: str
    instruction: str
    """A template; its names are filled from the draft."""
    facts: tuple[str, ...]
    """Templates, one for each fact."""
    draw: Callable[[int], Draft]
    """Makes the draft of a seed: always the same for the same seed."""

    @property
    def task(self) -> Task:
        """The task as a record, its instruction and rubric still templates."""
        return Task(
            id=self.id,
            instruction=self.instruction,
            start_url=f"http://{self.host}/",
            environment="sites",
            difficulty=len(self.facts),
            rubric=self.facts,
        )

    def asked(self, draft: Draft) -> str:
        """Return the instruction of an episode."""
        return self.instruction.format_map(draft.values)

    def rubric(self, draft: Draft) -> tuple[str, ...]:
        """Return the facts of an episode."""
        return tuple(fact.format_map(draft.values) for fact in self.facts)

    def score(self, draft: Draft, state: Any, answer: str | None) -> tuple[float, str]:
        """Return 1.0 when every fact holds, else 0.0, and the reason in words."""
        told = answer or ""
        if draft.reference is not None and not told.strip():
            return 0.0, "no answer was given"
        facts = zip(self.rubric(draft), draft.checks, strict=True)
        unmet = [text for text, holds in facts if not holds(state, told)]
        if unmet:
            return 0.0, "not met: " + "; ".join(unmet)
        if draft.reference is not None:
            rivals = [rival for rival in draft.rivals if says(told, rival)]
            stray = rivals or stray_numbers(told, *draft.reference.split(ALTERNATIVES), self.asked(draft))
            if stray:
                return 0.0, "the answer also names " + ", ".join(stray)
        return 1.0, "all facts hold"


def told(expected: str) -> Check:
    """Make a check of the answer: it contains this text or one of its alternatives."""
    return lambda state, answer: says(answer, expected)
