"""What a page shows of a report's facts: sections of charts and tables, every number as text. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from webgym_cli.report.charts import Format, Line, Mark, bar_chart, line_chart, number, percent
from webgym_cli.report.success import SERIES

VERSION = "policy version"
"""The words at the axis of iterations."""
BARS = 20
"""Rows that a chart of bars has at most."""
NONE = "-"
"""Stands where nothing is known."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table in words."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart, and the table of its numbers."""

    title: str
    svg: str
    """Its markup, made by `charts`; empty: the table stands alone."""
    legend: tuple[str, ...]
    """The names of the series, in the order of their classes."""
    lines: bool
    """Whether the series are lines; else parts of bars."""
    table: Table
    note: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page."""

    id: str
    title: str
    figures: tuple[Figure, ...]
    note: str = ""


def curve(
    title: str, y: str, groups: dict[str, list[dict[str, Any]]], mark: Callable[[dict[str, Any]], Mark], *, share: bool
) -> Figure:
    """Return a figure with a line a group of points (rows with `iteration`) and the table of all of them."""
    lines = [Line(name, tuple(mark(row) for row in rows)) for name, rows in groups.items()]
    show = percent if share else number
    rows = tuple(
        (line.name, f"{at.x:.0f}", show(at.y), interval((at.low, at.high), show), at.tip)
        for line in lines
        for at in line.marks
    )
    svg = line_chart(title, (VERSION, y), lines, share=share)
    table = Table(("series", VERSION, y, "95 % interval", "of"), rows)
    if not any(at.low is not None for line in lines for at in line.marks):
        table = Table(("series", VERSION, y, "of"), tuple((*row[:3], row[4]) for row in rows))
    return Figure(title, svg, tuple(groups), True, table)


def bars(title: str, rows: Sequence[tuple[str, dict[str, float]]], kinds: Sequence[str], show: Format) -> Figure:
    """Return a figure with a bar a row, of many the last, and the table of all; `kinds` names the parts."""
    kinds = [kind for kind in kinds if any(kind in parts for _, parts in rows)]
    told = tuple(
        (name, *(show(parts[kind]) if kind in parts else NONE for kind in kinds), show(sum(parts.values())))
        for name, parts in rows
    )
    note = f"The newest {BARS} of {len(rows)}; the table has all." if len(rows) > BARS else ""
    svg = bar_chart(title, rows[-BARS:], kinds, show)
    return Figure(title, svg, tuple(kinds), False, Table(("", *kinds, "all"), told), note)


def grouped(rows: Iterable[dict[str, Any]], key: str) -> dict[str, list[dict[str, Any]]]:
    """Return rows by the value of a key, in the order in which the values come."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(str(row[key]), []).append(row)
    return found


def success_mark(row: dict[str, Any]) -> Mark:
    """Return the point of a success rate; the row must have scored trajectories."""
    low, high = row["interval"]
    tip = f"{row['successes']} of {row['scored']} solved"
    return Mark(row["iteration"], row["success_rate"], low, high, tip)


def interval(ends: Sequence[float | None] | None, show: Format) -> str:
    """Return an interval in words."""
    if ends is None or ends[0] is None or ends[1] is None:
        return NONE
    return f"{show(ends[0])} to {show(ends[1])}"


def hours(seconds: float) -> str:
    """Return a length of time in the unit that fits."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"


def sections(facts: dict[str, Any]) -> list[Section]:
    """Return the sections that have something to tell."""
    every = (_success, _pass_at_k, _steps, _failures, _verdicts, _time, _learning)
    return [section for made in every if (section := made(facts)).figures]


def _success(facts: dict[str, Any]) -> Section:
    scored = [row for row in facts["points"] if row["scored"]]
    whole = grouped((row for row in scored if row["band"] is None), "series")
    figures = [curve("Success by split", "success", whole, success_mark, share=True)] if whole else []
    for series in SERIES[:2]:
        of_bands = [row for row in scored if row["band"] is not None and row["series"] == series]
        if of_bands:
            bands = {name: rows for name, rows in sorted(grouped(of_bands, "band").items(), key=_by_band)}
            title = f"Success by difficulty, {series}"
            figures.append(curve(title, "success", bands, success_mark, share=True))
    note = (
        "Share of the scored episodes that were solved, with Wilson's 95 % interval. What failed for reasons of "
        "infrastructure is not among them; nor is what nobody has judged yet."
    )
    return Section("success", "Success", tuple(figures), note)


def _by_band(item: tuple[str, Any]) -> int:
    return ["easy", "medium", "hard"].index(item[0])


def _pass_at_k(facts: dict[str, Any]) -> Section:
    figures = []
    for split in SERIES[:2]:
        lines: dict[str, list[dict[str, Any]]] = {}
        for key, found in facts["pass_at_k"].items():
            of_split, _, iteration = key.partition(" ")
            for k, chance in found["k"].items() if of_split == split else ():
                lines.setdefault(f"pass@{k}", []).append({"iteration": int(iteration), **chance})
        if lines:
            figures.append(curve(f"pass@k, {split}", "chance", lines, _chance_mark, share=True))
    note = (
        "The chance that one of k attempts at a task succeeds, as the mean over tasks of the unbiased estimator "
        "(Chen et al. 2021). A k is given while half of the tasks have as many scored attempts."
    )
    return Section("pass-at-k", "pass@k", tuple(figures), note)


def _chance_mark(row: dict[str, Any]) -> Mark:
    return Mark(row["iteration"], row["rate"], tip=f"{row['tasks']} tasks")


def _steps(facts: dict[str, Any]) -> Section:
    figures = []
    whole = [row for row in facts["points"] if row["band"] is None]
    for title, key in (("Steps per episode", "mean_steps"), ("Steps of a solved episode", "mean_steps_solved")):
        rows = grouped((row for row in whole if row[key] is not None), "series")
        if rows:
            figures.append(curve(title, "mean steps", rows, _steps_mark(key), share=False))
    return Section("steps", "Steps", tuple(figures))


def _steps_mark(key: str) -> Callable[[dict[str, Any]], Mark]:
    count = "successes" if key == "mean_steps_solved" else "trajectories"
    return lambda row: Mark(row["iteration"], row[key], tip=f"{row[count]} episodes")


def _failures(facts: dict[str, Any]) -> Section:
    found, figures = facts["failures"], []
    kinds = list(found["by_kind"])
    if kinds:
        rows = [(kind, {kind: float(count)}) for kind, count in found["by_kind"].items()]
        figures.append(bars("Failures by kind", rows, kinds, number))
        sites = [
            (f"{site} ({of['failed']} of {of['trajectories']})", {k: float(n) for k, n in of["kinds"].items()})
            for site, of in found["by_site"].items()
        ]
        more = found["sites"] - len(sites)
        figure = bars("Failures by site", sites, kinds, number)
        note = f"The {len(sites)} sites with the most; {more} more have some." if more else ""
        figures.append(Figure(figure.title, figure.svg, figure.legend, False, figure.table, note))
    if found["stops"]:
        ends = tuple((stop, str(of["count"]), str(of["successes"])) for stop, of in found["stops"].items())
        figures.append(Figure("How the others ended", "", (), False, Table(("", "episodes", "solved"), ends)))
    total = sum(found["by_kind"].values())
    note = f"{total} of {facts['trajectories']} episodes failed for reasons that are not the policy's."
    return Section("failures", "Failures", tuple(figures), note)


def _verdicts(facts: dict[str, Any]) -> Section:
    def share(of: float | None) -> str:
        return NONE if of is None else percent(of)

    rows = tuple(
        (
            f"{row['split']} {row['iteration']}",
            str(row["judged"]),
            share(row["agreement"]),
            f"{row['unanimous']} of {row['voted']}" if row["voted"] else NONE,
            f"{share(row['same_rate'])} of {row['both']}" if row["both"] else NONE,
        )
        for row in facts["verdicts"]
    )
    columns = ("", "judged", "votes agree", "unanimous", "as the environment")
    figures = (Figure("Verdicts", "", (), False, Table(columns, rows)),) if rows else ()
    note = (
        "Of each episode the newest judgement. Agreement is the smallest share of votes that went with a decision, as "
        "a mean; where the environment has an opinion too, how often it is the same."
    )
    return Section("judge", "Judge", figures, note)


def _time(facts: dict[str, Any]) -> Section:
    times, figures = facts["timing"], []
    if times["by_iteration"]:
        rows = [(f"iteration {name}", stages) for name, stages in times["by_iteration"].items()]
        figures.append(bars("Time by iteration", rows, list(times["stages"]), hours))
    if times["stages"]:
        figures.append(Figure("Time and cost", "", (), False, _cost_table(facts), _cost_note(facts["cost"])))
        figures.append(Figure("Idle GPUs", "", (), False, _idle_table(times["gpu"], times["wall_seconds"])))
    if spent := times["episode_seconds"]:
        figures.append(
            bars("Where the episodes' time goes", [(k, {k: v}) for k, v in spent.items()], list(spent), hours)
        )
    note = (
        "Idle is the time between the first and the last stage that no stage covers: starting servers, loading models, "
        "and pauses between commands. GPUs are idle whenever no policy acts and no trainer trains. Episodes run side "
        "by side, so their own times add up to more."
    )
    return Section("time", "Time", tuple(figures), note)


def _cost_table(facts: dict[str, Any]) -> Table:
    spent, stages = facts["cost"], facts["timing"]["stages"]
    wall = facts["timing"]["wall_seconds"]
    lines = [(name, stages[name]["times"], spent["stages"].get(name), stages[name]["seconds"]) for name in stages]
    lines += [("idle", None, spent["idle"], facts["timing"]["idle_seconds"]), ("all", None, spent["total"], wall)]
    rows = []
    for name, times, of, seconds in lines:
        known = of is not None and seconds is not None
        rows.append(
            (
                name,
                NONE if times is None else str(times),
                hours(seconds) if known else "not told",
                percent(seconds / wall) if known and wall else NONE,
                number(of["gpu_hours"]) if known else NONE,
                NONE if not known or of["cost"] is None else f"{of['cost']:,.2f}",
            )
        )
    return Table(("", "times", "time", "share", "GPU hours", "cost"), tuple(rows))


def _idle_table(gpu: dict[str, Any], wall: float) -> Table:
    causes = {f"idle: {name.replace('_', ' ')}": seconds for name, seconds in gpu["causes"].items()}
    lines = {"at work": gpu["busy_seconds"], "idle": gpu["idle_seconds"], **causes}
    rows = ((name, hours(seconds), percent(seconds / wall) if wall else NONE) for name, seconds in lines.items())
    return Table(("", "time", "share"), tuple(rows))


def _cost_note(spent: dict[str, Any]) -> str:
    gpus = "1 GPU" if spent["gpus"] == 1 else f"{spent['gpus']} GPUs"
    if spent["gpu_hour_price"] is None:
        return f"Counted for {gpus}, all the time. No price is known: --gpu-hour-price gives the cost."
    return f"Counted for {gpus}, all the time, at {spent['gpu_hour_price']:g} an hour each."


def _learning(facts: dict[str, Any]) -> Section:
    figures = []
    losses = [row for row in facts["trainings"] if row["loss"] is not None]
    if losses:
        figures.append(curve("Training loss", "mean loss", {"loss": losses}, _loss_mark, share=False))
    if facts["datasets"]:
        rows = [
            (f"iteration {row['iteration']}", {"train": row["train_samples"], "validation": row["val_samples"]})
            for row in facts["datasets"]
        ]
        figures.append(bars("Samples by dataset", rows, ("train", "validation"), number))
    if facts["samples_by_iteration"]:
        parts = [(f"from iteration {key}", {"samples": n}) for key, n in facts["samples_by_iteration"].items()]
        figures.append(bars("The newest dataset", parts, ("samples",), number))
    return Section("learning", "Data and training", tuple(figures))


def _loss_mark(row: dict[str, Any]) -> Mark:
    return Mark(row["version"], row["loss"], tip=f"{row['steps']} optimizer steps")
