"""Judges stored trajectories again, without browser or policy: so many at once, one line stored as each is done."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from webgym_cli.config.rollout import JudgeSettings
from webgym_cli.errors import WebGymError
from webgym_cli.jobs.workers import Failures, run_workers
from webgym_cli.records.events import Event, EventSink
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.judgement import Judgement
from webgym_cli.records.statistics import wilson
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.rewards.judge.judge import Judge
from webgym_cli.rewards.judge.plan import JudgePlan, Owed, load_owed
from webgym_cli.store.buffer import append_judgement
from webgym_cli.store.run import RunDir
from webgym_cli.store.screenshots import ScreenshotStore


@dataclass(slots=True)
class Agreement:
    """How often two verdicts on the same trajectories are the same."""

    both: int = 0
    """Trajectories on which there are both."""
    same: int = 0

    def take(self, ours: bool | None, theirs: bool | None) -> None:
        """Count a trajectory; one that lacks a verdict says nothing."""
        if ours is not None and theirs is not None:
            self.both += 1
            self.same += ours is theirs

    def to_json(self) -> dict[str, Any]:
        """Return the counts and the share."""
        return {"both": self.both, "same": self.same, "rate": round(self.same / self.both, 4) if self.both else None}


@dataclass(slots=True)
class Tally:
    """The counts of one command."""

    judged: int = 0
    """Trajectories that were put before the judge."""
    verdicts: int = 0
    """Those of them with a verdict."""
    successes: int = 0
    blocked: int = 0
    failed: int = 0
    calls: int = 0
    with_previous: Agreement = field(default_factory=Agreement)
    with_environment: Agreement = field(default_factory=Agreement)

    def take(self, owed: Owed, judgement: Judgement) -> None:
        """Count a judgement."""
        self.judged += 1
        self.calls += judgement.calls
        self.verdicts += judgement.success is not None
        self.successes += bool(judgement.success)
        self.blocked += judgement.failure is FailureKind.SITE_BLOCKED
        self.failed += judgement.failure is FailureKind.JUDGE_FAILED
        self.with_previous.take(judgement.success, owed.previous)
        self.with_environment.take(judgement.success, owed.environment)

    def to_json(self) -> dict[str, Any]:
        """Return the facts of the summary. The success rate leaves out what has no verdict."""
        low, high = wilson(self.successes, self.verdicts)
        return {
            "judged": self.judged,
            "verdicts": self.verdicts,
            "successes": self.successes,
            "success_rate": round(self.successes / self.verdicts, 4) if self.verdicts else None,
            "interval": [round(low, 4), round(high, 4)],
            "judge_failed": self.failed,
            "site_blocked": self.blocked,
            "calls": self.calls,
            "agreement_with_previous": self.with_previous.to_json(),
            "agreement_with_environment": self.with_environment.to_json(),
        }


@dataclass(slots=True)
class Judging:
    """One `webgym judge` at work."""

    plan: JudgePlan
    run: RunDir
    settings: JudgeSettings
    sink: EventSink
    tally: Tally = field(default_factory=Tally)
    _failures: Failures = field(init=False)

    def __post_init__(self) -> None:
        """Work on as much at once as the settings allow and as there is."""
        owed = len(self.plan.owed)
        self._failures = Failures(min(self.settings.concurrency, owed), owed)

    async def execute(self) -> Event:
        """Judge everything that is owed and return the summary event.

        Raises `WebGymError` when the judge is down; what was judged before is stored.
        """
        start = time.monotonic()
        judge = Judge(self.settings, ScreenshotStore(self.run.screenshots).get)
        waiting = load_owed(self.run, self.plan.owed)
        try:
            await run_workers(self._failures.workers, lambda: self._work(judge, waiting))
        finally:
            await judge.close()
        seconds = round(time.monotonic() - start, 2)
        return {"event": "judge", **self.tally.to_json(), "seconds": seconds, "models": self.plan.models}

    async def _work(self, judge: Judge, waiting: Iterator[tuple[Owed, Trajectory]]) -> None:
        for owed, trajectory in waiting:
            judgement = await judge.judge(trajectory)
            if not (judgement.unavailable and owed.known):  # a judge that was not there takes no older verdict away
                append_judgement(self.run, owed.split, owed.iteration, judgement)
            self.tally.take(owed, judgement)
            self.sink(self._told(owed, trajectory, judgement))
            self._refuse_hopeless(judgement)

    def _refuse_hopeless(self, judgement: Judgement) -> None:
        """Raise `WebGymError` when too many in a row have failed, or all that there are."""
        if self._failures.is_too_many(failed=judgement.failure is FailureKind.JUDGE_FAILED):
            limit = self._failures.limit
            count = f"{limit} judgements in a row" if limit > 1 else "the judgement"
            raise WebGymError(
                f"{count} failed: {judgement.failure_detail}",
                hint="check judge.base_url, judge.model and the key, then run the same command again: "
                "what was judged stays",
            )

    def _told(self, owed: Owed, trajectory: Trajectory, judgement: Judgement) -> Event:
        tally = self.tally
        rate = f"{tally.successes / tally.verdicts:.0%} success" if tally.verdicts else "no verdict yet"
        failed = f"  judge_failed {tally.failed}" if tally.failed else ""
        return {
            "event": "judgement",
            "id": owed.id,
            "task": trajectory.task.id,
            "success": judgement.success,
            "failure": judgement.failure,
            "failure_detail": judgement.failure_detail or None,
            "previous": owed.previous,
            "environment": owed.environment,
            "calls": judgement.calls,
            "seconds": judgement.seconds,
            "bar": "judge",
            "done": tally.judged,
            "total": len(self.plan.owed),
            "facts": f"{rate}{failed}",
        }


def judge_in_words(summary: Event) -> str:
    """Return the summary in one line."""
    parts = [f"judged {summary['judged']}: {summary['successes']} of {summary['verdicts']} solved"]
    if blocked := summary["site_blocked"]:
        parts.append(f"{blocked} blocked by their sites")
    if failed := summary["judge_failed"]:
        parts.append(f"{failed} judge_failed (neither solved nor not)")
    for name, words in (("previous", "as judged before"), ("environment", "as their environment says")):
        agreement = summary[f"agreement_with_{name}"]
        if agreement["both"]:
            parts.append(f"{agreement['same']} of {agreement['both']} {words}")
    return ", ".join([*parts, f"{summary['calls']} calls in {summary['seconds']:g} s"])
