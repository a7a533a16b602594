"""Tables of `webgym inspect-buffer` for the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

from webgym_cli.cli.output import Output
from webgym_cli.util.json_values import as_text
from webgym_cli.util.optional import when
from webgym_cli.util.text import escape_control

# Success rates from 0 to 1.
BLOCKS = "▁▂▃▄▅▆▇█"
# Maximum number of iterations in a sparkline (the newest ones).
MAX_ITERATIONS = 40
_COLUMNS = ("count", "scored", "success", "95 %", "steps", "failures")
_TABLES = ("iteration", "task", "site", "difficulty")
_OMITTED_IF_SINGLE = ("environment", "policy")


def show_overview(output: Output, overview: dict[str, Any]) -> None:
    """Show what `overview` found, and under `prepare` what prepare would take."""
    title = f"{overview['run']}, policy version {overview['policy_version']}"
    output.table(title, ("", *_COLUMNS), [("all", *_row(overview))])
    for name in (*_TABLES, *(name for name in _OMITTED_IF_SINGLE if overview["groups"][f"by_{name}"] > 1)):
        _show_groups(output, name, overview)
    names = sorted(set().union(*overview["means"].values()))
    if rows := [(key, *(cell(means.get(name)) for name in names)) for key, means in overview["means"].items()]:
        output.table("means of scored trajectories", ("iteration", *names), rows)
    _show_pass_rates(output, overview["pass_at_k"])
    if overview["age_hours"]:
        output.table("age", ("oldest", "newest"), [[f"{hours} h ago" for hours in overview["age_hours"]]])
    if (steps := overview["cut_mean_steps"]) is not None:
        output.note(
            f"{overview['failures']['cancelled']} cancelled after {steps:g} steps on average; those that finished took "
            f"{overview['mean_steps'] or 0:g}: what an early stop leaves has too few of the longer episodes"
        )
    if plan := overview["prepare"]:
        _show_plan(output, plan)
    for line in overview["damaged_lines"]:
        output.note(escape_control(line))


def show_findings(output: Output, report: dict[str, Any]) -> None:
    """Show the counts and findings of `verify`."""
    read = {key: value for key, value in report.items() if isinstance(value, int)} | {
        f"images: {key}": value for key, value in report["images"].items()
    }
    output.table("read", ("", "count"), list(read.items()))
    columns = ("kind", "file", "place", "detail")
    rows = [[escape_control(finding[name]) for name in columns] for finding in report["findings"]]
    if rows:
        output.table("wrong", columns, rows)
    if more := sum(report["findings_by_kind"].values()) - len(rows):
        output.note(f"{more} more; --json names all")


def sparkline(rates: Iterable[float | None]) -> str:
    """Return a block character for each rate (0 to 1), and a dot for a missing rate."""
    return "".join("·" if rate is None else BLOCKS[min(int(rate * len(BLOCKS)), len(BLOCKS) - 1)] for rate in rates)


def cell(value: Any, digits: int = 6) -> str | None:
    """Return a value as a table cell: one line without control characters; None for a missing value."""
    if value is None:
        return None
    if isinstance(value, float):
        return f"{value:.{digits}g}"
    return escape_control(as_text(value))


def _show_groups(output: Output, name: str, overview: dict[str, Any]) -> None:
    groups, iterations = overview[f"by_{name}"], list(overview["success_by_iteration"])[-MAX_ITERATIONS:]
    trend = name != "iteration" and len(iterations) > 1
    rows = []
    for key, group in groups.items():
        rates = [group["success_by_iteration"].get(iteration) for iteration in iterations]
        rows.append((escape_control(key), *_row(group), *when(trend, [sparkline(rates)])))
    output.table(f"by {name}", (name, *_COLUMNS, *when(trend, ["trend"])), rows)
    if more := overview["groups"][f"by_{name}"] - len(groups):
        output.note(f"by {name}: {more} more; --top 0 shows all")


def _show_pass_rates(output: Output, groups: dict[str, Any]) -> None:
    ks = sorted({int(k) for k in chain.from_iterable(group["k"] for group in groups.values())})
    if ks in ([], [1]):  # one attempt a task: the success rate has told it
        return
    rows = []
    for key, group in groups.items():
        rates = [group["k"].get(str(k)) for k in ks]
        rows.append((key, group["tasks"], *(rate and f"{rate['rate']:.3f}" for rate in rates)))
    output.table("pass@k over tasks", ("iteration", "tasks", *(f"pass@{k}" for k in ks)), rows)


def _show_plan(output: Output, plan: dict[str, Any]) -> None:
    rows: list[tuple[str, Any]] = [
        ("iterations read", ", ".join(map(str, plan["iterations_read"]))),
        ("eligible steps", plan["eligible_steps"]),
        *((f"samples from iteration {key}", count) for key, count in plan["samples_by_iteration"].items()),
        *(
            (f"trajectories left out: {reason}", count)
            for reason, count in plan["dropped_trajectories"].items()
            if count
        ),
        *((f"steps left out: {reason}", count) for reason, count in plan["dropped_steps"].items() if count),
    ]
    output.table("prepare would take", ("", "count"), rows)


def _row(group: dict[str, Any]) -> tuple[Any, ...]:
    rate, interval = group["success_rate"], group["interval"]
    failures = "  ".join(f"{kind} {count}" for kind, count in group["failures"].items())
    return (
        group["trajectories"],
        group["scored"],
        "" if rate is None else f"{rate:.3f}",
        "" if interval is None else f"{interval[0]:.3f}-{interval[1]:.3f}",
        group["mean_steps"],
        failures or "0",
    )
