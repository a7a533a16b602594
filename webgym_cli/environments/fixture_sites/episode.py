"""Episode on the sites: a task instantiated by a seed, with state created on first visit of a site."""

from __future__ import annotations

import random
import string
from functools import cached_property
from itertools import chain
from typing import Any

from webgym_cli.environments.fixture_hosts import SITE_HOSTS
from webgym_cli.environments.fixture_sites import mail_pages, shop_pages
from webgym_cli.environments.fixture_sites.answers import (
    contains_answer,
    find_stray_numbers,
    is_same_text,
)
from webgym_cli.environments.fixture_sites.expressions import draw_names, evaluate, fill
from webgym_cli.environments.fixture_sites.tasks import SiteTask
from webgym_cli.environments.fixture_sites.web import SitePages

# Seed of the content of all tasks in WebArena's form.
WORLD = 1
# The sites by host name.
SITES: dict[str, SitePages] = dict(zip(SITE_HOSTS, (shop_pages.PAGES, mail_pages.PAGES), strict=True))


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
