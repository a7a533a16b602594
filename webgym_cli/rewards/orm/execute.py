"""Scores stored trajectories by an outcome reward model: so many at once, one line stored as each is done."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from webgym_cli.agent.orm_prompt import build_orm_prompt
from webgym_cli.agent.orm_tokens import OrmError
from webgym_cli.config.orm import OrmSettings
from webgym_cli.errors import WebGymError
from webgym_cli.jobs.workers import Failures, run_workers
from webgym_cli.records.events import Event, EventSink
from webgym_cli.records.judgement import Judgement
from webgym_cli.records.statistics import wilson
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.rewards.judge.execute import Agreement
from webgym_cli.rewards.judge.plan import load_owed
from webgym_cli.rewards.orm.answer import Probability
from webgym_cli.rewards.orm.client import OrmClient, OrmReply
from webgym_cli.rewards.orm.plan import OrmPlan, ToScore
from webgym_cli.store.buffer import append_judgement
from webgym_cli.store.run import RunDir, now


@dataclass(slots=True)
class OrmTally:
    """The counts of one command."""

    done: int = 0
    """Trajectories that were seen to."""
    scored: int = 0
    """Those of them with a probability."""
    asked: int = 0
    """Those of them for which the model was asked; of the others it was known."""
    successes: int = 0
    unreadable: int = 0
    """Trajectories without an answer that can be read: neither solved nor not, nothing is stored of them."""
    cut: int = 0
    """Trajectories whose prompt was too long and was cut."""
    with_environment: Agreement = field(default_factory=Agreement)
    _sum: float = 0.0

    def take(self, owed: ToScore, probability: float, *, success: bool) -> None:
        """Count a probability."""
        self.scored += 1
        self.successes += success
        self._sum += probability
        self.with_environment.take(success, owed.environment)

    def to_json(self) -> dict[str, Any]:
        """Return the facts of the summary. The success rate leaves out what has no probability."""
        low, high = wilson(self.successes, self.scored)
        return {
            "scored": self.scored,
            "asked": self.asked,
            "successes": self.successes,
            "success_rate": round(self.successes / self.scored, 4) if self.scored else None,
            "interval": [round(low, 4), round(high, 4)],
            "mean_probability": round(self._sum / self.scored, 4) if self.scored else None,
            "unreadable": self.unreadable,
            "cut": self.cut,
            "agreement_with_environment": self.with_environment.to_json(),
        }


@dataclass(slots=True)
class Scoring:
    """One `webgym score` at work."""

    plan: OrmPlan
    run: RunDir
    settings: OrmSettings
    """With the server's base URL, wherever one is to be asked."""
    sink: EventSink
    tally: OrmTally = field(default_factory=OrmTally)
    _failures: Failures = field(init=False)

    def __post_init__(self) -> None:
        """Work on as much at once as the settings allow and as there is."""
        owed = len(self.plan.owed)
        self._failures = Failures(min(self.settings.concurrency, owed), owed)

    async def execute(self) -> Event:
        """Score everything that is owed and return the summary event.

        Raises `WebGymError` when the model is down or gives no answers; what was scored before is stored.
        """
        start = time.monotonic()
        client = OrmClient(self.settings) if self.plan.to_ask else None
        waiting = load_owed(self.run, self.plan.owed)
        try:
            await run_workers(self._failures.workers, lambda: self._work(client, waiting))
        finally:
            if client is not None:
                await client.close()
        seconds = round(time.monotonic() - start, 2)
        known = {"model": self.plan.model, "threshold": self.plan.threshold, "seconds": seconds}
        return {"event": "score", **self.tally.to_json(), **known}

    async def _work(self, client: OrmClient | None, waiting: Iterator[tuple[ToScore, Trajectory]]) -> None:
        for owed, trajectory in waiting:
            began = time.monotonic()
            reply, problem = None, ""
            if owed.probability is None and client is not None:
                try:
                    reply = await client.ask(build_orm_prompt(trajectory))
                except OrmError as error:
                    problem = str(error)
            self._take(owed, reply, seconds=round(time.monotonic() - began, 3))
            self.sink(self._told(owed, trajectory, reply, problem))
            self._refuse_hopeless(problem)

    def _take(self, owed: ToScore, reply: OrmReply | None, *, seconds: float) -> None:
        """Store and count what came of a trajectory. Without a probability nothing is stored: it is owed again."""
        self.tally.done += 1
        probability = reply.probability.yes if reply else owed.probability
        if probability is None:
            self.tally.unreadable += 1
            return
        success = probability >= self.plan.threshold
        judgement = Judgement(
            trajectory=owed.id,
            source="orm",
            models={"verdict": self.plan.model},
            settings_digest=self.plan.settings_digest,
            probability=probability,
            success=success,
            calls=int(reply is not None),
            seconds=seconds,
            judged_at=now(),
        )
        append_judgement(self.run, owed.split, owed.iteration, judgement)
        self.tally.take(owed, probability, success=success)
        self.tally.asked += reply is not None
        self.tally.cut += bool(reply and reply.cut)

    def _refuse_hopeless(self, problem: str) -> None:
        """Raise `WebGymError` when too many in a row have failed, or all that there are."""
        if self._failures.is_too_many(failed=bool(problem)):
            limit = self._failures.limit
            count = f"{limit} answers in a row" if limit > 1 else "the answer"
            raise WebGymError(
                f"{count} can't be used: {problem}",
                hint="check orm.base_url, orm.model and the key, then run the same command again: what is scored stays",
            )

    def _told(self, owed: ToScore, trajectory: Trajectory, reply: OrmReply | None, problem: str) -> Event:
        tally = self.tally
        found = reply.probability if reply else None
        probability = found.yes if found else owed.probability
        rate = f"{tally.successes / tally.scored:.0%} success" if tally.scored else "no score yet"
        unreadable = f"  unreadable {tally.unreadable}" if tally.unreadable else ""
        return {
            "event": "scored",
            "id": owed.id,
            "task": trajectory.task.id,
            "probability": probability,
            "success": None if probability is None else probability >= self.plan.threshold,
            "mass": _mass(found),
            "prompt_tokens": reply.prompt_tokens if reply else None,
            "cut_tokens": reply.cut if reply else None,
            "failure_detail": problem or None,
            "environment": owed.environment,
            "bar": "score",
            "done": tally.done,
            "total": len(self.plan.owed),
            "facts": f"{rate}{unreadable}",
        }


def _mass(found: Probability | None) -> float | None:
    return round(found.mass, 6) if found else None


def score_in_words(summary: Event) -> str:
    """Return the summary in one line."""
    parts = [f"scored {summary['scored']}: {summary['successes']} solved from {summary['threshold']:g} on"]
    if again := summary["scored"] - summary["asked"]:
        parts.append(f"{again} decided anew by the probability that was known")
    if unreadable := summary["unreadable"]:
        parts.append(f"{unreadable} without an answer (neither solved nor not)")
    if cut := summary["cut"]:
        parts.append(f"{cut} prompts cut")
    agreement = summary["agreement_with_environment"]
    if agreement["both"]:
        parts.append(f"{agreement['same']} of {agreement['both']} as their environment says")
    return ", ".join([*parts, f"in {summary['seconds']:g} s"])
