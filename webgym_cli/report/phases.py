"""Section of a report on a curriculum's phases, from their tasks to the resulting policy. Pure."""

from __future__ import annotations

from webgym_cli.records.stored_events import PhaseEvent
from webgym_cli.report.charts import format_percent, format_value
from webgym_cli.report.facts import ReportFacts
from webgym_cli.report.figures import Figure, ReportSection, Table
from webgym_cli.report.success import SuccessPoint

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
