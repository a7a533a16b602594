"""Tasks of the sites for every seed, loaded from YAML files; their episodes (a task and a seed), and their expert.

The files are `shop_tasks.yaml` and so on. Expressions can use the names of the site's module, `world` (the seeded
content), `state` (the episode's changes) and all values sampled before.
"""

from __future__ import annotations

import random
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from webgym_cli.environments.fixture_sites import mail_pages, shop_pages
from webgym_cli.environments.fixture_sites.answers import (
    contains_answer,
    find_stray_numbers,
    is_same_text,
)
from webgym_cli.environments.fixture_sites.expressions import draw_names, evaluate, fill
from webgym_cli.environments.fixture_sites.web import SitePages
from webgym_cli.environments.sites.accounts import SITE_HOSTS
from webgym_cli.environments.sites.site_expert import ActionPlan, ExpertPage, ExpertRun, SiteExpert
from webgym_cli.errors import UsageError
from webgym_cli.records.task import Task
from webgym_cli.tasks.expand import parse_values
from webgym_cli.util.registry import suggest_name


@dataclass(frozen=True, slots=True, eq=False)
class SiteTask:
    """One task on one site, for any seed."""

    id: str
    host: str
    instruction: str
    """Template, filled with the sampled values."""
    facts: Mapping[str, str]
    """Conditions of success: a rubric template and an expression. `says` and `same` compare answers and texts."""
    draw: Mapping[str, str] = field(default_factory=dict)
    """Sampled values in order: one name, or several separated by commas, and an expression."""
    reference: str | None = None
    """Answer of an information task, a Jinja template."""
    rivals: str = "()"
    """Expression: texts that a right answer must not contain, because listing all candidates is no answer."""
    prepare: str = ""
    """Expression that changes the site's initial state before the episode."""
    expert: Sequence[Any] = ()
    """Solution of the task: steps of `follow_steps`."""

    @property
    def task(self) -> Task:
        """The task as a record; instruction and rubric are templates."""
        return Task(
            id=self.id,
            instruction=self.instruction,
            start_url=f"http://{self.host}/",
            environment="sites",
            difficulty=len(self.facts),
            rubric=tuple(self.facts),
        )


def find_task(task_id: str) -> SiteTask:
    """Return a task. Raises `UsageError` with the known names."""
    known = load_site_tasks()
    if task_id not in known:
        raise UsageError(
            f"the sites have no task {task_id!r}; {suggest_name(task_id, known)}",
            hint="webgym tasks sample sites:all -n 10",
        )
    return known[task_id]


@cache
def load_site_tasks() -> dict[str, SiteTask]:
    """Return the tasks by id, site by site."""
    tasks = {}
    for host in SITE_HOSTS:
        path = Path(__file__).with_name(f"{host.partition('.')[0]}_tasks.yaml")
        for task_id, fields in yaml.safe_load(path.read_text(encoding="utf-8")).items():
            tasks[task_id] = SiteTask(task_id, host, **fields)
    return tasks


# Seed of the content of all tasks in WebArena's form.
WORLD = 1
# The sites by host name.
SITES: dict[str, SitePages[Any]] = dict(zip(SITE_HOSTS, (shop_pages.PAGES, mail_pages.PAGES), strict=True))


class SiteEpisode:
    """One episode, determined by task and seed. Its state is created only when needed."""

    def __init__(self, task: SiteTask, seed: int) -> None:
        self.task = task
        self.seed = seed
        self._states: dict[str, Any] = {}

    @cached_property
    def _given(self) -> dict[str, Any]:
        """Names for expressions: those of the site, and the sampled values of the task."""
        site, seed = SITES[self.task.host], self.seed
        rng = random.Random(f"{self.task.id}/{seed}")
        given = {**site.names, "rng": rng, "world": site.world(seed), "state": site.new_state(seed)}
        return given | draw_names(self.task.draw, given)

    @cached_property
    def values(self) -> dict[str, str]:
        """Values of the names in the templates of instruction and facts."""
        templates = (self.task.instruction, *self.task.facts)
        names = {name for _, name, _, _ in chain.from_iterable(map(string.Formatter().parse, templates))}
        return {name: str(self._given[name]) for name in names if name}

    @property
    def instruction(self) -> str:
        """Instruction of the episode."""
        return self.task.instruction.format_map(self.values)

    @property
    def rubric(self) -> tuple[str, ...]:
        """Facts of the episode."""
        return tuple(fact.format_map(self.values) for fact in self.task.facts)

    @cached_property
    def reference(self) -> str | None:
        """The right answer, alternatives separated by `|OR|`; None if only the state counts."""
        return self.task.reference and fill(self.task.reference, self._given)

    @cached_property
    def rivals(self) -> tuple[str, ...]:
        """Texts that a right answer must not contain."""
        return tuple(map(str, evaluate(self.task.rivals, self._given)))

    def state(self, host: str) -> Any:
        """Return the state of one site, created on first use."""
        if host not in self._states:
            state = self._states[host] = SITES[host].new_state(self.seed)
            if host == self.task.host and self.task.prepare:
                evaluate(self.task.prepare, {**self._given, "state": state})
        return self._states[host]

    def score(self, answer: str | None) -> tuple[float, str]:
        """Return 1.0 if all facts hold, else 0.0, and the reason."""
        text, reference = answer or "", self.reference
        if reference is not None and not text.strip():
            return 0.0, "no answer was given"
        if unmet := self._find_unmet(text):
            return 0.0, "not met: " + "; ".join(unmet)
        if reference is not None:
            rivals = [rival for rival in self.rivals if contains_answer(text, rival)]
            if stray := rivals or find_stray_numbers(text, reference, self.instruction):
                return 0.0, "the answer also names " + ", ".join(stray)
        return 1.0, "all facts hold"

    def _find_unmet(self, answer: str) -> list[str]:
        names = {
            **self._given,
            "state": self.state(self.task.host),
            "says": lambda *texts: any(contains_answer(answer, str(text)) for text in texts),
            "same": is_same_text,
        }
        facts = zip(self.rubric, self.task.facts.values(), strict=True)
        return [text for text, holds in facts if not evaluate(holds, names)]


def follow_steps(page: ExpertPage, steps: Sequence[Any], values: Mapping[str, Any]) -> ActionPlan:
    """Follow the steps, each of one of these kinds; a list in place of a step is followed too.

    - `click`: the role and the name of an element;
    - `type`: texts by the names of fields; a line feed at the end submits the form;
    - `read`: a pattern, whose groups are names from then on; `rows`: all its places, as a list of that name;
    - `set`: names and expressions;
    - `each` and `do`: steps for each item of a list; the names of each are in `done` afterwards;
    - `switch_tab`: a number;
    - `answer`: the answer.

    All texts are for Jinja, with the names so far, first `values`.
    """
    yield _follow(page, steps, dict(values))


def make_expert_run(steps: Sequence[Any], values: Mapping[str, Any]) -> ExpertRun:
    """Return the expert of one episode. `values`: the values in the instruction, by the names in the steps."""
    return ExpertRun(SiteExpert.of(follow_steps, "fixture sites"), {"steps": steps, "values": values})


def make_site_expert(task_id: str, instruction: str) -> ExpertRun:
    """Return an expert for one episode of a task of the sites.

    Raises `UsageError` for an unknown task, `LookupError` for an instruction of another task.
    """
    task = find_task(task_id)
    if (values := parse_values(task.instruction, instruction)) is None:
        raise LookupError(f"the instruction is not understood: {instruction!r}")
    return make_expert_run(task.expert, values)


def _follow(page: ExpertPage, steps: Sequence[Any], names: dict[str, Any]) -> ActionPlan:
    for step in steps:
        if isinstance(step, list):
            yield _follow(page, step, names)
        elif "each" in step:
            yield _repeat(page, step, names)
        else:
            ((kind, value),) = step.items()
            yield _act(page, kind, value, names)


def _repeat(page: ExpertPage, step: Mapping[str, Any], names: dict[str, Any]) -> ActionPlan:
    listed, done = step["each"], []
    for item in evaluate(listed, names) if isinstance(listed, str) else listed:
        one = names | {name: fill(str(value), names) for name, value in item.items()}
        yield _follow(page, step["do"], one)
        done.append(one)
    names["done"] = done


def _act(page: ExpertPage, kind: str, value: Any, names: dict[str, Any]) -> ActionPlan:
    if kind == "click":
        role, name = fill(value, names).split(" ", 1)
        yield page.click(name, role)
    elif kind == "type":
        for name, text in value.items():
            yield page.type(fill(name, names), fill(text, names))
    elif kind == "read":
        names |= yield page.read(fill(value, names))
    elif kind == "rows":
        names["rows"] = yield page.read_all(fill(value, names))
    elif kind == "set":
        for name, expression in value.items():
            names[name] = evaluate(expression, names)
    elif kind == "switch_tab":
        yield page.switch_tab(value)
    elif kind == "answer":
        yield page.answer(fill(value, names))
    else:
        raise ValueError(f"an expert's step is of no kind: {kind}")
