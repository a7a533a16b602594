"""Sections of a comparison page: curves of both runs, and the tables that the command line also prints. Pure."""

from __future__ import annotations

from webgym_cli.compare.runs import ComparedRow, Comparison
from webgym_cli.report.charts import NONE, format_number, format_percent
from webgym_cli.report.figures import (
    Figure,
    ReportSection,
    Table,
    format_interval,
    make_success_curve,
)
from webgym_cli.report.page import render_template, to_short_json
from webgym_cli.report.success import SuccessCounts

# The columns of the main table.
ROWS = ("", "A", "B", "success A", "success B", "steps A", "steps B", "B - A", "how sure", "verdict")
FAILURES = ("", "A", "B", "B - A", "95 % interval", "verdict")


def render_comparison(comparison: Comparison) -> bytes:
    """Render a comparison page, encoded in UTF-8."""
    settings = [
        (key, to_short_json(of["first"]), to_short_json(of["second"])) for key, of in comparison["settings"].items()
    ]
    sections = build_sections(comparison)
    return render_template("compare", comparison=comparison, sections=sections, settings=settings)


def build_sections(comparison: Comparison) -> list[ReportSection]:
    """Return the sections of a comparison's page."""
    every = dict.fromkeys(row["series"] for row in comparison["rows"])
    figures = [figure for series in every if (figure := _curves(comparison, series))]
    success = Figure("Comparison", Table(ROWS, tuple(build_success_rows(comparison))))
    note = (
        "Where both runs were asked the same test tasks with the same seeds, these are paired and p is McNemar's, "
        "exact; else the interval is Newcombe's for two independent shares. Differences are in percentage points (pp). "
        "Each row has a chance of 5 % to tell of a difference where there is none."
    )
    if warning := warn_of_different_tasks(comparison):
        note = f"{warning} {note}"
    shown = [ReportSection("success", "Success", (*figures, success), note)]
    if rows := build_failure_rows(comparison):
        table = Table(FAILURES, tuple(rows))
        figure = Figure("Failures by kind", table, "Differences are of the shares of all episodes.")
        shown.append(ReportSection("failures", "Failures", (figure,)))
    return shown


def build_success_rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """Return the rows of the main table as text."""
    return [
        (
            row["series"],
            str(row["first_iteration"]),
            str(row["second_iteration"]),
            *(_rate(row[side]) for side in ("first", "second")),
            *(_steps(row[side]) for side in ("first", "second")),
            _points(row.get("difference")),
            _sure(row),
            _verdict(row),
        )
        for row in comparison["rows"]
    ]


def warn_of_different_tasks(comparison: Comparison) -> str:
    """Return the warning that the runs have no task in common; empty if they have one, or nothing is compared."""
    common = [row["common_tasks"] for row in comparison["rows"] if row["method"]]
    if any(common) or not common:
        return ""
    return "The runs have no task in common: the success rates are those of different tasks, and no verdict follows."


def build_failure_rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """Return the rows of the failure table as text."""
    return [
        (
            kind,
            str(of["first"]),
            str(of["second"]),
            _points(of.get("difference")),
            format_interval(of.get("difference_interval"), _points),
            {True: "differs", False: "may be chance", None: NONE}[of.get("significant")],
        )
        for kind, of in comparison["failures"].items()
    ]


def _curves(comparison: Comparison, series: str) -> Figure | None:
    lines: dict[str, list[dict[str, object]]] = {}
    for row in comparison["rows"]:
        same = row["first_iteration"] == row["second_iteration"]
        for name, side in (("A", row["first"]), ("B", row["second"])) if same and row["series"] == series else ():
            if side and side["scored"]:
                lines.setdefault(name, []).append({**side, "iteration": row["first_iteration"]})
    return make_success_curve(f"Success, {series}", dict(sorted(lines.items()))) if lines else None


def _rate(side: SuccessCounts | None) -> str:
    return f"{format_percent(side['success_rate'])} of {side['scored']}" if side and side["scored"] else NONE


def _steps(side: SuccessCounts | None) -> str:
    return format_number(side and side["mean_steps"])


def _points(of: float | None) -> str:
    """Format a difference of shares in percentage points."""
    return NONE if of is None else ("+" if of > 0 else "") + format_percent(of).replace(" %", " pp")


def _sure(row: ComparedRow) -> str:
    if row["method"] == "paired":
        return f"p {row['p_value']:g}: +{row['gained']} -{row['lost']} of {row['pairs']} pairs"
    return format_interval(row.get("difference_interval"), _points)


def _verdict(row: ComparedRow) -> str:
    if row["method"] is None:
        return NONE
    if not row["common_tasks"]:
        return "different tasks"
    if not row["significant"]:
        return "may be chance"
    return "B is better" if row["difference"] > 0 else "A is better"
