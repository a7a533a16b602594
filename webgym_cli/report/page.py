"""A report as one HTML page, without scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from webgym_cli.records.stored_events import PhaseEvent
from webgym_cli.report.charts import NONE, draw_swatch, format_percent, format_value
from webgym_cli.report.facts import ReportFacts, find_newest_test
from webgym_cli.report.figures import Figure, ReportSection, Table, format_interval
from webgym_cli.report.success import SuccessPoint
from webgym_cli.report.views import build_sections
from webgym_cli.util.html_page import render_page
from webgym_cli.util.json_values import encode_json
from webgym_cli.util.text import format_count, format_duration, truncate

# Maximum characters of a setting's value.
_LONGEST = 400


def render_report(facts: ReportFacts) -> bytes:
    """Render a report page, encoded in UTF-8."""
    return _render_template(
        "report",
        "report.html",
        facts=facts,
        tiles=_tiles(facts),
        sections=[*build_sections(facts), *build_phase_sections(facts)],
        settings=[
            (key, to_short_json(of["value"]), to_short_json(of["default"])) for key, of in facts["settings"].items()
        ],
    )


def _tiles(facts: ReportFacts) -> list[tuple[str, str, str]]:
    """Return the tiles at the top of the page: label, value, and explanation."""
    tiles = []
    newest = find_newest_test(facts["points"])
    if newest and newest["success_rate"] is not None:
        name = f"success, {newest['series']} {newest['iteration']}"
        tiles.append(
            (name, format_percent(newest["success_rate"]), format_interval(newest["interval"], format_percent))
        )
    tiles.append(("policy version", str(facts["policy_version"]), facts["policy"]))
    tiles.append(("episodes", f"{facts['trajectories']:,}", format_count(facts["steps"], "step")))
    times, spent = facts["timing"], facts["cost"]["total"]
    idle = NONE if times["idle_share"] is None else f"{format_percent(times['idle_share'])} idle"
    tiles.append(("time", format_duration(times["wall_seconds"]), idle))
    if spent["cost"] is not None:
        tiles.append(("cost", f"{spent['cost']:,.2f}", f"{spent['gpu_hours']:,.1f} GPU hours"))
    return tiles


def render_sections(
    command: str,
    heading: str,
    tiles: Sequence[tuple[str, str, str]],
    sections: Sequence[ReportSection],
    links: Mapping[str, str] | None = None,
) -> bytes:
    """Render a page of tiles (label, value, explanation), links and sections, encoded in UTF-8."""
    values = {"heading": heading, "tiles": tiles, "sections": sections, "links": links or {}}
    return _render_template(command, "sections.html", **values)


def _render_template(command: str, template: str, **values: Any) -> bytes:
    return render_page(Path(__file__).parent, template, command, style="report.css", swatch=draw_swatch, **values)


def to_short_json(value: Any) -> str:
    """Return a setting's value as JSON, cut to a length that fits a table."""
    return truncate(encode_json(value), _LONGEST)


_COLUMNS = ("phase", "new tasks", "turned down", "episodes", "solved", "policy version", "success of that policy, test")
_NOTE = (
    "Each phase tries new tasks, made of those that failed before, and trains on it. Solved is what the policy of the "
    "phase before solved of them, as far as they were scored."
)


def build_phase_sections(facts: ReportFacts) -> list[ReportSection]:
    """Return the section on the phases; an empty list for a run without phases."""
    if not facts["phases"]:
        return []
    tests = {row["iteration"]: row for row in facts["points"] if row["series"] == "test" and row["band"] is None}
    rows = tuple(_row(phase, tests.get(phase.version)) for phase in facts["phases"])
    return [ReportSection("phases", "Phases", (Figure("Phases", Table(_COLUMNS, rows)),), _NOTE)]


def _row(phase: PhaseEvent, test: SuccessPoint | None) -> tuple[str, ...]:
    counts = (phase.new_tasks, phase.turned_down, phase.episodes)
    known = (format_value(count, ",") for count in counts)
    solved = f"{phase.successes} of {phase.scored} scored"
    return str(phase.phase), *known, solved, str(phase.version), format_percent(test and test["success_rate"])
