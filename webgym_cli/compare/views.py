"""Tables of comparisons, which the command line prints: of evaluation records, policy versions and runs.

Also the HTML pages of an evaluation's record, and of several runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from webgym_cli.compare.study import RATES, ComparedRun, build_study
from webgym_cli.config.sources import flatten
from webgym_cli.report.charts import NONE, format_percent
from webgym_cli.report.facts import read_points
from webgym_cli.report.figures import Figure, ReportSection, build_table, format_interval, make_success_curve
from webgym_cli.report.page import render_sections
from webgym_cli.report.training_metrics import STEP_CURVES, build_step_figures
from webgym_cli.store.metrics import read_step_curves
from webgym_cli.util.json_values import as_text
from webgym_cli.util.optional import when

_NAMES = {"overall": "overall", "valid_only": "valid only"}
_COUNTS = ("episodes", "valid", "blocked", "failed")
_NOTE = (
    "Overall counts blocked and failed episodes as not solved; valid only leaves them out. A task counts once, with "
    "the mean of its repeats; the interval is Wilson's over tasks, 95 %."
)


def describe_record(record: Mapping[str, Any]) -> str:
    """Return the main numbers in one line."""
    rates = []
    for name, words in (("overall", "overall"), ("valid_only", "of valid episodes")):
        rate = record[name]
        if rate["rate"] is not None:
            spread = rate["standard_deviation"]
            deviation = "" if spread is None else f", SD of repeats {spread:.3f}"
            low, high = rate["interval"]
            rates.append(f"{rate['rate']:.3f} ({low:.3f}-{high:.3f}{deviation}) {words}")
    counts = f"{record['episodes']} episodes, {record['blocked']} blocked, {record['failed']} failed"
    if record["conditions"]["judge"] and "judged" in record:  # older records lack it
        counts += f", {record['judged']} judged"
        if not record["judged"]:
            counts += ": their environment scored all, the judge was asked for nothing"
    return f"success {', '.join(rates) or 'unknown'}; {counts}"


def render_record(record: Mapping[str, Any]) -> bytes:
    """Render the page of an evaluation, encoded in UTF-8."""
    conditions = record["conditions"]
    judge = conditions["judge"]
    tiles = [
        *((f"success, {_NAMES[of]}", format_percent(record[of]["rate"]), _format_spread(record[of])) for of in RATES),
        ("episodes", str(record["episodes"]), f"{record['blocked']} blocked, {record['failed']} failed"),
        ("judge", judge["protocol"] if judge else "environment", _describe_judging(record)),
        ("browser", conditions["browser"]["access"], ", ".join(conditions["browser"]["via"])),
    ]
    heading = f"{Path(conditions['policy']['name']).name} on {Path(conditions['tasks']['source']).name}"
    groups = [build_count_table(name, record[f"by_{name}"]) for name in ("site", "band")]
    failures = when(record["failures"], (build_table("failures", ("", "episodes"), record["failures"].items()),))
    sections = [
        ReportSection("success", "Success", (build_rate_table(record), *groups), _NOTE),
        ReportSection("failures", "Failures", failures),
        ReportSection("spent", "Time, tokens, cost", (_build_pairs("spent", record["spent"]),)),
        ReportSection("settings", "Conditions", (_build_pairs("conditions", conditions),)),
        ReportSection("tasks", "Tasks", (_build_task_table(record["tasks"]),)),
    ]
    return render_sections("eval", heading, tiles, sections)


def build_rate_table(record: Mapping[str, Any]) -> Figure:
    """Return both success rates and pass@k."""
    rows = [
        (_NAMES[rate], format_percent(of["rate"]), format_interval(of["interval"], format_percent), _format_spread(of))
        for rate, of in ((rate, record[rate]) for rate in RATES)
    ]
    rows += [
        (f"pass@{k}", format_percent(of["rate"]), NONE, f"{of['tasks']} tasks") for k, of in record["pass_at_k"].items()
    ]
    return build_table("success", ("", "success", "95 % interval", "repeats"), rows)


def build_count_table(name: str, groups: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Return counts and rates by site or band."""
    rows = [
        (group, *(of[key] for key in _COUNTS), *(format_percent(of[rate]["rate"]) for rate in RATES))
        for group, of in groups.items()
    ]
    return build_table(f"by {name}", (name, *_COUNTS, *_NAMES.values()), rows)


def build_comparison_tables(comparison: Mapping[str, Any], *, tasks: bool) -> list[Figure]:
    """Return the tables of compared records. `tasks`: with the tasks that changed."""
    sides = [comparison["first"], *comparison["others"]]
    records = [
        (
            number,
            one["record"],
            one["policy"],
            *(one[key] for key in _COUNTS),
            *(format_percent(one["rates"][rate]["rate"]) for rate in RATES),
        )
        for number, one in enumerate(sides)
    ]
    tests: list[tuple[Any, ...]] = []
    different: list[tuple[str, str]] = []
    changed: list[tuple[str, str, str]] = []
    for number, one in enumerate(comparison["others"], 1):
        pair = f"{number} - 0"
        for rate in RATES:
            of = one[rate]
            numbers = (format_points(of["difference"]), of["p_value"], of["p_holm"])
            tests.append((pair, _NAMES[rate], of["pairs"], *of["counts"].values(), *numbers))
        different += [(pair, line) for line in one["different"]]
        for change, names in one["overall"]["tasks"].items():
            changed += [(pair, change, task) for task in names]
    columns = ("", "", "pairs", "gained", "lost", "kept", "failed", "difference", "p (McNemar)", "p (Holm)")
    tables = [
        build_table("records", ("", "record", "policy", *_COUNTS, *_NAMES.values()), records),
        build_table("paired by task", columns, tests),
        build_table("conditions that differ", ("", "condition"), different),
    ]
    if tasks:
        tables.append(build_table("changed tasks", ("", "change", "task"), changed))
    return tables


def _build_pairs(title: str, values: Mapping[str, Any]) -> Figure:
    rows = ((key, as_text(value)) for key, value in flatten(values).items())
    return build_table(title, ("", "value"), rows)


def _build_task_table(tasks: Iterable[Mapping[str, Any]]) -> Figure:
    rows = [
        (of["task"], of["seed"], of["site"], of["band"], ", ".join(of["results"]), str(of["steps"])[1:-1])
        for of in tasks
    ]
    return build_table("tasks", ("task", "seed", "site", "band", "results", "steps"), rows)


def _describe_judging(record: Mapping[str, Any]) -> str:
    """Return the judge's model and how many episodes it judged; older records lack the number."""
    if (judge := record["conditions"]["judge"]) is None:
        return ""
    judged = [f"{record['judged']} of {record['episodes']} episodes"] if "judged" in record else []
    return ", ".join([judge["models"]["verdict"], *judged])


def _format_spread(rate: Mapping[str, Any]) -> str:
    if rate["standard_deviation"] is None:
        return "one repeat"
    shown = " ".join(map(format_percent, rate["by_repeat"]))
    return f"{format_percent(rate['mean'])} ± {format_percent(rate['standard_deviation'])} of {shown}"


def build_study_tables(study: dict[str, Any]) -> list[Figure]:
    """Return the tables of a study: its runs, its groups, and the settings that differ between these."""
    groups = study["groups"]
    runs = [
        (row["group"], row["run"], row["seed"], row["policy_version"], row["split"], row["iteration"], _rate(row))
        for row in study["runs"]
    ]
    means = [
        (
            of["group"],
            of["runs"],
            " ".join(map(str, of["seeds"])),
            format_percent(of["mean"]),
            format_percent(of["standard_deviation"]),
            format_interval(of["interval"], format_percent),
        )
        for of in groups
    ]
    settings = [(key, *(json.dumps(of["settings"][key]) for of in groups)) for key in groups[0]["settings"]]
    return [
        build_table("runs", ("group", "run", "seed", "policy version", "split", "iteration", "success"), runs),
        build_table("groups", ("group", "runs", "seeds", "mean success", "deviation", "95 % interval"), means),
        build_table("settings that differ", ("", *(str(of["group"]) for of in groups)), settings),
    ]


def render_study(runs: Sequence[ComparedRun], links: Mapping[str, str]) -> bytes:
    """Render the page of some runs in UTF-8: their curves in one chart each, and tables. `links`: their own pages."""
    points = [read_points(index) for _, index in runs]
    study = build_study(runs, points)
    curves: dict[str, dict[str, list[Any]]] = {}
    for (run, _), of_run in zip(runs, points, strict=True):
        for row in of_run:
            if row["band"] is None and row["scored"]:
                curves.setdefault(row["series"], {}).setdefault(str(run.root), []).append(row)
    success = [make_success_curve(f"Success, {name}", rows) for name, rows in curves.items()]
    metrics = [name for *_, name in STEP_CURVES]
    steps = build_step_figures({str(run.root): read_step_curves(run, metrics) for run, _ in runs})
    sections = [
        ReportSection("success", "Success", tuple(success)),
        ReportSection("training", "Training", tuple(steps)),
        *(ReportSection(of.title, of.title.title(), (of,)) for of in build_study_tables(study) if of.rows),
    ]
    return render_sections("compare", f"{len(runs)} runs", [], sections, links=links)


def build_version_tables(difference: dict[str, Any], *, tasks: bool) -> list[Figure]:
    """Return the tables of two compared versions. `tasks`: with the tasks and episodes that changed."""
    unit, counts = f"{difference['unit']}s", difference["counts"]
    names = ("run", "iteration", "success_rate", "mean_steps", "only_here")
    tables = [
        build_table(
            f"{difference['split']}, {difference['pairs']} {unit}",
            ("", "run", "iteration", "success", "steps", f"{unit} only here"),
            [(side, *(difference[side][name] for name in names)) for side in ("first", "second")],
        ),
        build_table(
            "change",
            (*counts, "unscored", "p (McNemar)"),
            [(*counts.values(), difference["unscored"], difference["p_value"])],
        ),
    ]
    if tasks:
        changed = [(task, *of.values()) for task, of in difference["by_task"].items() if of["gained"] or of["lost"]]
        tables.append(build_table("by task", ("task", "pairs", *counts), changed))
        for kind in ("gained", "lost"):
            rows = [(pair["task"], pair.get("seed"), pair["first"], pair["second"]) for pair in difference[kind]]
            tables.append(build_table(kind, ("task", "seed", "first", "second"), rows))
    return tables


def _rate(side: Mapping[str, Any] | None) -> str:
    return (
        f"{format_percent(side['success_rate'])} of {side['scored_cases']}" if side and side["scored_cases"] else NONE
    )


def format_points(of: float | None) -> str:
    """Format a difference of shares in percentage points."""
    if of is None:
        return NONE
    points = format_percent(of).replace(" %", " pp")
    return f"+{points}" if of > 0 else points
