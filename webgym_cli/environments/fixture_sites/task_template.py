"""What a task of the sites is, before and after its episode's seed has filled it in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from webgym_cli.environments.fixture_sites.answers import ALTERNATIVES, contains_answer, find_stray_numbers
from webgym_cli.records.task import Task

# Tells from the site's state and the answer (empty without one) whether a fact holds.
Check = Callable[[Any, str], bool]


@dataclass(frozen=True, slots=True)
class TaskInstance:
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
    """A template; its names are filled from the instance."""
    facts: tuple[str, ...]
    """Templates, one for each fact."""
    draw: Callable[[int], TaskInstance]
    """Makes the instance of a seed: always the same for the same seed."""

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

    def asked(self, instance: TaskInstance) -> str:
        """Return the instruction of an episode."""
        return self.instruction.format_map(instance.values)

    def rubric(self, instance: TaskInstance) -> tuple[str, ...]:
        """Return the facts of an episode."""
        return tuple(fact.format_map(instance.values) for fact in self.facts)

    def score(self, instance: TaskInstance, state: Any, answer: str | None) -> tuple[float, str]:
        """Return 1.0 when every fact holds, else 0.0, and the reason in words."""
        said = answer or ""
        if instance.reference is not None and not said.strip():
            return 0.0, "no answer was given"
        facts = zip(self.rubric(instance), instance.checks, strict=True)
        unmet = [text for text, holds in facts if not holds(state, said)]
        if unmet:
            return 0.0, "not met: " + "; ".join(unmet)
        if instance.reference is not None:
            rivals = [rival for rival in instance.rivals if contains_answer(said, rival)]
            stray = rivals or find_stray_numbers(said, *instance.reference.split(ALTERNATIVES), self.asked(instance))
            if stray:
                return 0.0, "the answer also names " + ", ".join(stray)
        return 1.0, "all facts hold"


def answer_contains(expected: str) -> Check:
    """Make a check of the answer: it contains this text or one of its alternatives."""
    return lambda state, answer: contains_answer(answer, expected)
