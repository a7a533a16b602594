"""Tables of a comparison, which the command line prints, and the HTML page of runs with the same tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from webgym_cli.compare.study import ComparedRun, build_study
from webgym_cli.report.charts import NONE, format_percent
from webgym_cli.report.figures import Figure, ReportSection, build_table, format_interval, make_success_curve
from webgym_cli.report.page import render_sections
from webgym_cli.report.success import read_points
from webgym_cli.report.training_metrics import STEP_CURVES, build_step_figures
from webgym_cli.store.training_logs import read_step_curves


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
        *(ReportSection(of.title, of.title.title(), (of,)) for of in build_study_tables(study) if of.table.rows),
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
