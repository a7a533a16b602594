"""`Budget`: admits an episode or a judgement only while the limits of `cost` leave room for it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum

from webgym_cli.config.cost import CostSettings
from webgym_cli.errors import BudgetSpentError
from webgym_cli.records.usage import Requests, TokenUsage


class Work(StrEnum):
    """What is admitted as a whole, and finished once it has begun: a part of it would be paid for and lost."""

    EPISODE = "episode"
    JUDGEMENT = "judgement"


@dataclass(slots=True)
class Budget:
    """The limits of a run beside what it has spent. Without limits it admits everything."""

    cost: CostSettings = field(default_factory=CostSettings)
    run: str = ""
    spent: float = 0.0
    """By all commands of the run, in the currency of the prices."""
    judge_calls: int = 0
    """By all commands of the run."""
    largest_judgement: int = 0
    """Most calls of one judgement so far; 0: not known."""
    _largest_cost: dict[Work, float] = field(default_factory=dict)
    _running: Counter[Work] = field(default_factory=Counter)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _refused: str = ""

    @asynccontextmanager
    async def admit(self, work: Work) -> AsyncIterator[bool]:
        """Yield whether there is room for a piece of work, and count it as running within the block.

        Waits while only what runs leaves no room. After the first refusal nothing is admitted any more.
        """
        while not self._refused and (reason := self._find_reason(work)):
            if not self._running.total():
                self._refused = reason
                break
            self._changed.clear()
            await self._changed.wait()
        self._running[work] += 1
        try:
            yield not self._refused
        finally:
            self._running[work] -= 1
            self._changed.set()

    def add(self, tokens: TokenUsage, models: Collection[str]) -> float:
        """Count tokens of requests that are not held back, and return their cost."""
        cost = self.cost.price(models, tokens) or 0.0
        self.spent += cost
        return cost

    def charge(self, work: Work, requests: Requests, calls: int = 0) -> None:
        """Count what a piece of work took."""
        cost = sum(self.add(tokens, models) for models, tokens in requests)
        self._largest_cost[work] = max(cost, self._largest_cost.get(work, 0.0))
        if work is Work.JUDGEMENT:
            self.judge_calls += calls
            self.largest_judgement = max(calls, self.largest_judgement)

    def refuse(self, work: Work) -> str:
        """Return why nothing more is admitted, for work that is not waited for; empty if there is room."""
        self._refused = self._refused or self._find_reason(work)
        return self._refused

    def require(self) -> None:
        """Raise `BudgetSpentError` if work was refused."""
        if self._refused:
            option = "--max-judge-calls" if self._refused.endswith("calls)") else "--max-cost"
            hint = f"webgym resume {self.run} {option} MORE: what was begun is finished and stored"
            raise BudgetSpentError(f"{self.run}: {self._refused}", hint=hint)

    def _find_reason(self, work: Work) -> str:
        """Return why a piece of work does not fit beside what runs; empty if it does."""
        limit, calls = self.cost.max_cost, self.cost.max_judge_calls
        kinds = self._running + Counter([work])
        expected = self.spent + sum(count * self._largest_cost.get(kind, 0.0) for kind, count in kinds.items())
        # the first of a kind runs alone: nobody knows yet what one takes
        is_first = self._running[work] > 0 and work not in self._largest_cost
        if limit is not None and (self.spent >= limit or expected > limit or is_first):
            return f"{self.spent:.4f} of the cost of {limit:g} is spent: no room for another {work} (--max-cost)"
        if calls is None or work is not Work.JUDGEMENT:
            return ""
        wanted = self.judge_calls + kinds[work] * max(1, self.largest_judgement)
        if wanted > calls or (self._running[work] and not self.largest_judgement):
            return f"{self.judge_calls} of {calls} judge calls are made: no room for a judgement (--max-judge-calls)"
        return ""
