"""Pages of sections, each of charts and tables, without scripts: a run's report, an evaluation's record, a study."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from webgym_cli.report.charts import NONE, draw_swatch, format_percent
from webgym_cli.report.facts import ReportFacts, find_newest_test
from webgym_cli.report.figures import ReportSection, format_interval
from webgym_cli.report.views import build_sections, describe_origin
from webgym_cli.util.html_page import render_page
from webgym_cli.util.optional import map_known, when
from webgym_cli.util.text import format_count, format_duration


def render_report(facts: ReportFacts) -> bytes:
    """Render a report page, encoded in UTF-8."""
    empty = when(not facts["trajectories"], ["There are no trajectories yet."])
    sections = [*build_sections(facts), *describe_origin(facts)]
    return render_sections("report", facts["run"], _tiles(facts), sections, alerts=[*empty, *facts["warnings"]])


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
    idle = map_known(lambda share: f"{format_percent(share)} idle", times["idle_share"]) or NONE
    tiles.append(("time", format_duration(times["wall_seconds"]), idle))
    if spent["cost"] is not None:
        tiles.append(("cost", f"{spent['cost']:,.2f}", f"{spent['gpu_hours']:,.1f} GPU hours"))
    return tiles


def render_sections(
    command: str,
    heading: str,
    tiles: Sequence[tuple[str, str, str]],
    sections: Iterable[ReportSection],
    *,
    alerts: Sequence[str] = (),
    links: Mapping[str, str] | None = None,
) -> bytes:
    """Render a page of tiles (label, value, explanation), alerts, links and the sections with figures, in UTF-8."""
    shown = [section for section in sections if section.figures]
    values: dict[str, Any] = {
        "heading": heading,
        "tiles": tiles,
        "alerts": alerts,
        "sections": shown,
        "links": links or {},
    }
    folder = Path(__file__).parent
    return render_page(folder, "sections.html", command, style="report.css", swatch=draw_swatch, **values)
