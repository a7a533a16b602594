"""Tables of a comparison, which the command line prints, and the HTML page of two runs with the same tables. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from webgym_cli.compare.runs import ComparedRow, Comparison
from webgym_cli.compare.study import StudyCurves
from webgym_cli.report.charts import NONE, format_number, format_percent
from webgym_cli.report.figures import Figure, ReportSection, Table, format_interval, make_success_curve
from webgym_cli.report.page import render_sections
from webgym_cli.report.training_metrics import build_step_figures
from webgym_cli.util.optional import known_or, when

_ROWS = ("", "A", "B", "success A", "success B", "steps A", "steps B", "B - A", "how sure", "verdict")
_FAILURES = ("", "A", "B", "B - A", "95 % interval", "verdict")
_NOTE = (
    "Where both runs were asked the same test tasks with the same seeds, these are paired and p is McNemar's, exact; "
    "else the interval is Newcombe's for two independent shares. Differences are in percentage points (pp). Each row "
    "has a chance of 5 % to tell of a difference where there is none."
)


def build_run_tables(comparison: Comparison) -> dict[str, Figure]:
    """Return the tables of two compared runs, by the id of their section."""
    sides = (("A", comparison["first"]), ("B", comparison["second"]))
    runs = [(name, of["run"], of["policy_version"], of["policy"]) for name, of in sides]
    settings = [(key, json.dumps(of["first"]), json.dumps(of["second"])) for key, of in comparison["settings"].items()]
    return {
        "runs": build_table("runs", ("", "run", "policy version", "policy"), runs),
        "success": build_table("success", _ROWS, map(_success_cells, comparison["rows"])),
        "failures": build_table("failures", _FAILURES, (_failure_cells(*of) for of in comparison["failures"].items())),
        "settings": build_table("settings that differ", ("", "A", "B"), settings),
    }


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


def render_study(study: dict[str, Any], curves: StudyCurves, links: Mapping[str, str] | None = None) -> bytes:
    """Render a study's page, encoded in UTF-8: its curves in one chart each, and its tables. `links`: pages of runs."""
    success = [make_success_curve(f"Success, {name}", rows) for name, rows in curves["success"].items()]
    sections = [
        ReportSection("success", "Success", tuple(success)),
        ReportSection("training", "Training", tuple(build_step_figures(curves["optimizer_steps"]))),
        *(ReportSection(of.title, of.title.title(), (of,)) for of in build_study_tables(study) if of.table.rows),
    ]
    heading = f"{len(study['runs'])} runs"
    return render_sections("compare", heading, [], [of for of in sections if of.figures], links)


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


def build_sections(comparison: Comparison) -> list[ReportSection]:
    """Return the sections of a comparison's page."""
    tables = build_run_tables(comparison)
    curves = [_curves(comparison, series) for series in dict.fromkeys(row["series"] for row in comparison["rows"])]
    notes = {
        "success": f"{warn_of_different_tasks(comparison)} {_NOTE}".strip(),
        "failures": "Differences are of the shares of all episodes.",
        "settings": when(not tables["settings"].table.rows, "No settings differ."),
    }
    figures = {"success": tuple(filter(None, curves))}
    return [
        ReportSection(name, name.title(), (*figures.get(name, ()), tables[name]), note)
        for name, note in notes.items()
        if tables[name].table.rows or name != "failures"
    ]


def render_comparison(comparison: Comparison) -> bytes:
    """Render a comparison page, encoded in UTF-8."""
    sides = (("A", comparison["first"]), ("B", comparison["second"]))
    tiles = [(name, of["run"], f"policy version {of['policy_version']}: {of['policy']}") for name, of in sides]
    return render_sections("compare", "\nand ".join(of["run"] for _, of in sides), tiles, build_sections(comparison))


def warn_of_different_tasks(comparison: Comparison) -> str:
    """Return the warning that the runs have no task in common; empty if they have one, or nothing is compared."""
    common = [row["common_tasks"] for row in comparison["rows"] if row["method"]]
    if any(common) or not common:
        return ""
    return "The runs have no task in common: the success rates are those of different tasks, and no verdict follows."


def build_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Figure:
    """Return a table as a figure."""
    cells = (tuple(str(known_or(cell, "")) for cell in row) for row in rows)
    return Figure(title, Table(tuple(columns), tuple(cells)))


def _success_cells(row: ComparedRow) -> tuple[Any, ...]:
    sides = (row["first"], row["second"])
    steps = (format_number(side and side["mean_steps"]) for side in sides)
    shown = (row["series"], row["first_iteration"], row["second_iteration"], *map(_rate, sides), *steps)
    return (*shown, format_points(row.get("difference")), _sure(row), _verdict(row))


def _failure_cells(kind: str, of: dict[str, Any]) -> tuple[Any, ...]:
    interval = format_interval(of.get("difference_interval"), format_points)
    verdict = {True: "differs", False: "may be chance", None: NONE}[of.get("significant")]
    return kind, of["first"], of["second"], format_points(of.get("difference")), interval, verdict


def _curves(comparison: Comparison, series: str) -> Figure | None:
    lines: dict[str, list[dict[str, object]]] = {}
    for row in comparison["rows"]:
        same = row["first_iteration"] == row["second_iteration"]
        for name, side in (("A", row["first"]), ("B", row["second"])):
            if same and row["series"] == series and side and side["scored"]:
                lines.setdefault(name, []).append({**side, "iteration": row["first_iteration"]})
    return make_success_curve(f"Success, {series}", dict(sorted(lines.items()))) if lines else None


def _rate(side: Mapping[str, Any] | None) -> str:
    return f"{format_percent(side['success_rate'])} of {side['scored']}" if side and side["scored"] else NONE


def format_points(of: float | None) -> str:
    """Format a difference of shares in percentage points."""
    if of is None:
        return NONE
    points = format_percent(of).replace(" %", " pp")
    return f"+{points}" if of > 0 else points


def _sure(row: ComparedRow) -> str:
    if row["method"] == "paired":
        return f"p {row['p_value']:g}: +{row['gained']} -{row['lost']} of {row['pairs']} pairs"
    return format_interval(row.get("difference_interval"), format_points)


def _verdict(row: ComparedRow) -> str:
    if row["method"] is None:
        return NONE
    if not row["common_tasks"]:
        return "different tasks"
    if not row["significant"]:
        return "may be chance"
    return "B is better" if row["difference"] > 0 else "A is better"
