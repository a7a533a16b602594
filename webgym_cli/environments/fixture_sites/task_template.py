"""What a task of the sites is, before and after its episode's seed has filled it in.

The tasks stand in files, `shop_tasks.yaml` and its like. The names of an expression are those of the site's module,
`world` (what the seed decided about the site), `state` (what the episode changed there) and all that was drawn before.
"""

from __future__ import annotations

import random
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from webgym_cli.environments.fixture_sites.answers import (
    contains_answer,
    contains_answer_about,
    find_stray_numbers,
    is_same_text,
)
from webgym_cli.environments.fixture_sites.expressions import evaluate, fill
from webgym_cli.environments.fixture_sites.registry import find_site
from webgym_cli.records.task import Task


@dataclass(frozen=True, slots=True)
class TaskInstance:
    """What a seed decides about a task."""

    values: Mapping[str, str]
    """What stands for the names in the templates of instruction and facts."""
    drawn: Mapping[str, Any]
    """The same and more, not as texts."""
    reference: str | None = None
    """The answer of an information task; None: the state alone decides."""
    rivals: tuple[str, ...] = ()
    """What a right answer does not name: whoever lists all candidates has not answered."""


@dataclass(frozen=True, slots=True, eq=False)
class SiteTask:
    """One task on one site, for any seed."""

    id: str
    host: str
    instruction: str
    """A template; its names are filled with what was drawn."""
    facts: Mapping[str, str]
    """What must hold: a template for the rubric, and an expression. `says` and `same` compare answers and texts."""
    draw_order: Mapping[str, str] = field(default_factory=dict)
    """What a seed decides, in this order: a name, or several with commas between, and an expression."""
    reference: str | None = None
    """The answer of an information task, a text for Jinja."""
    rivals: str = "()"
    """An expression: what a right answer does not name."""
    prepare: str = ""
    """An expression that changes the site's fresh state before the episode starts."""
    expert: Sequence[Any] = ()
    """How the task is solved: steps of `ExpertDriver.follow`."""

    @property
    def task(self) -> Task:
        """The task as a record, its instruction and rubric still templates."""
        return Task(
            id=self.id,
            instruction=self.instruction,
            start_url=f"http://{self.host}/",
            environment="sites",
            difficulty=len(self.facts),
            rubric=tuple(self.facts),
        )

    def draw(self, seed: int) -> TaskInstance:
        """Make the instance of a seed: always the same for the same seed."""
        site = find_site(self.host)
        rng = random.Random(f"{self.id}/{seed}")
        given = {**site.names, "rng": rng, "world": site.world(seed), "state": site.new_state(seed)}
        drawn = draw_names(self.draw_order, given)
        names = {name for text in (self.instruction, *self.facts) for _, name, _, _ in string.Formatter().parse(text)}
        return TaskInstance(
            values={name: str(drawn[name]) for name in names if name},
            drawn=drawn,
            reference=None if self.reference is None else fill(self.reference, drawn),
            rivals=tuple(map(str, evaluate(self.rivals, {**given, **drawn}))),
        )

    def new_state(self, instance: TaskInstance, seed: int) -> Any:
        """Return the state of the task's site as the episode finds it."""
        state = find_site(self.host).new_state(seed)
        if self.prepare:
            evaluate(self.prepare, {**instance.drawn, "state": state})
        return state

    def render_instruction(self, instance: TaskInstance) -> str:
        """Return the instruction of an episode."""
        return self.instruction.format_map(instance.values)

    def rubric(self, instance: TaskInstance) -> tuple[str, ...]:
        """Return the facts of an episode."""
        return tuple(fact.format_map(instance.values) for fact in self.facts)

    def score(self, instance: TaskInstance, state: Any, answer: str | None) -> tuple[float, str]:
        """Return 1.0 when every fact holds, else 0.0, and the reason in words."""
        text = answer or ""
        if instance.reference is not None and not text.strip():
            return 0.0, "no answer was given"
        unmet = self._find_unmet(instance, state, text)
        if unmet:
            return 0.0, "not met: " + "; ".join(unmet)
        if instance.reference is not None:
            rivals = [rival for rival in instance.rivals if contains_answer(text, rival)]
            stray = rivals or find_stray_numbers(text, instance.reference, self.render_instruction(instance))
            if stray:
                return 0.0, "the answer also names " + ", ".join(stray)
        return 1.0, "all facts hold"

    def _find_unmet(self, instance: TaskInstance, state: Any, answer: str) -> list[str]:
        def says_of(subject: object, value: str, candidates: Sequence[object]) -> bool:
            others = [str(one) for one in candidates if one is not subject]
            return contains_answer_about(answer, str(subject), value, others)

        names = {
            **find_site(self.host).names,
            **instance.drawn,
            "state": state,
            "says": lambda *texts: any(contains_answer(answer, str(text)) for text in texts),
            "says_of": says_of,
            "same": is_same_text,
        }
        facts = zip(self.rubric(instance), self.facts.values(), strict=True)
        return [text for text, holds in facts if not evaluate(holds, names)]


def draw_names(order: Mapping[str, str], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the expressions of `draw_order` come to, one after the other."""
    drawn: dict[str, Any] = {}
    for names, expression in order.items():
        value = evaluate(expression, {**given, **drawn})
        listed = names.split(", ")
        drawn |= {names: value} if len(listed) == 1 else dict(zip(listed, value, strict=True))
    return drawn
