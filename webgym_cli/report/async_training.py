"""Metrics of asynchronous training: staleness, waits, dropped episodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from webgym_cli.records.statistics import mean
from webgym_cli.records.stored_events import BatchEvent
from webgym_cli.report.charts import format_number
from webgym_cli.report.figures import ReportSection, build_table, make_bars, make_curve
from webgym_cli.store.batches import read_batches
from webgym_cli.store.metrics import read_records
from webgym_cli.store.run import RunDir
from webgym_cli.util.text import format_duration

# Keys of a batch event and their labels.
WAITS = {
    "trainer_wait_seconds": "trainer waited for episodes",
    "admission_wait_seconds": "slots waited for admission",
    "held_seconds": "episodes were held",
}


def read_async_facts(run: RunDir) -> dict[str, list[dict[str, Any]]]:
    """Return the `batches`, which are `BatchEvent`s, and the `dropped` trajectories; empty for a synchronous run.

    These by `reason`: their `count`, and of those with a reward the `mean_reward`.
    """
    ledger = {parent: batch for parent, batch in read_batches(run).items() if batch.mode == "async"}
    events_of = {event.iteration: event for event in read_records(run, BatchEvent)}
    batches = [event.model_dump() for parent, event in sorted(events_of.items()) if parent in ledger]
    counts, rewards = Counter[str](), dict[str, list[float]]()
    for group in chain.from_iterable(batch.dropped for batch in ledger.values()):
        counts[group.reason] += len(group.trajectories)
        rewards.setdefault(group.reason, []).extend(reward for reward in group.rewards if reward is not None)
    dropped = [
        {"reason": reason, "count": count, "mean_reward": mean(rewards[reason], 6)}
        for reason, count in sorted(counts.items())
    ]
    return {"batches": batches, "dropped": dropped}


def build_async_section(facts: Mapping[str, Sequence[Mapping[str, Any]]]) -> ReportSection:
    """Return the section on asynchronous training; it has no figures for a synchronous run."""
    batches, figures = facts["batches"], []
    if batches:
        lines = {
            name: [{"iteration": batch["iteration"], "staleness": float(batch["staleness"][name])} for batch in batches]
            for name in ("mean", "max")
        }
        figures.append(make_curve("Staleness of the trained tokens", "trainings", lines, "staleness"))
        waits = [
            (f"version {batch['iteration']}", {words: batch[key] for key, words in WAITS.items() if batch[key]})
            for batch in batches
        ]
        figures.append(make_bars("Waits before each batch", waits, list(WAITS.values()), format_duration))
    if facts["dropped"]:
        rows = ((row["reason"], row["count"], format_number(row["mean_reward"])) for row in facts["dropped"])
        columns = ("reason", "episodes", "mean reward")
        figures.append(build_table("Episodes that were not trained on", columns, rows))
    note = (
        "Staleness: trainings between the policy that produced a token and the one that is trained. Waits of slots and "
        "episodes are sums over them."
    )
    return ReportSection("asynchronous", "Asynchronous training", tuple(figures), note)
