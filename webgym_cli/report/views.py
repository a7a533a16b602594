"""Sections of a report page: charts and tables built from the report's facts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from webgym_cli.config.cost import SHARES, list_shares
from webgym_cli.records.groups import DifficultyBand
from webgym_cli.records.statistics import ratio
from webgym_cli.report.charts import NONE, format_number, format_percent, format_value
from webgym_cli.report.facts import SERIES, ReportFacts
from webgym_cli.report.figures import (
    Figure,
    ReportSection,
    Row,
    build_table,
    group_rows,
    make_bars,
    make_curve,
    make_success_curve,
)
from webgym_cli.report.training_metrics import build_async_section, build_step_figures, build_training_section
from webgym_cli.util.json_values import as_list, encode_json
from webgym_cli.util.optional import when
from webgym_cli.util.text import format_count, format_duration, truncate

# Maximum characters of a setting's value.
_LONGEST = 400


def build_sections(facts: ReportFacts) -> list[ReportSection]:
    """Return the sections that have data."""
    every = (_success, _rewards, _pass_at_k, _steps, _failures, _verdicts, _time, _learning)
    sections = [*(build(facts) for build in every), build_training_section(facts["trainings"])]
    sections += [build_async_section(facts["asynchronous"]), _phases(facts)]
    return [section for section in sections if section.figures]


def describe_origin(facts: ReportFacts) -> list[ReportSection]:
    """Return the sections on what the run is, and on its settings."""
    rows = [
        ("policy", f"version {facts['policy_version']}: {facts['policy']}"),
        ("base model", facts["base_model"]),
        ("episodes", f"from {facts['first_started'] or NONE} to {facts['last_started'] or NONE}"),
        ("stages", f"from {facts['timing']['first'] or NONE} to {facts['timing']['last'] or NONE}"),
        ("damaged lines", f"{facts['damaged_lines']} (webgym inspect-buffer {facts['run']})"),
        *((key, " ".join(map(str, as_list(value)))) for key, value in facts["provenance"].items()),
    ]
    settings = [
        (key, *(truncate(encode_json(of[which]), _LONGEST) for which in ("value", "default")))
        for key, of in facts["settings"].items()
    ]
    changed = build_table("Settings that are not the default", ("setting", "here", "default"), settings)
    return [
        ReportSection("origin", "Origin", (build_table("Origin", ("", ""), rows),)),
        ReportSection("settings", "Settings", (changed,), when(not settings, "All settings have their defaults.")),
    ]


def _success(facts: ReportFacts) -> ReportSection:
    scored = [row for row in facts["points"] if row["scored"]]
    whole = group_rows((row for row in scored if row["band"] is None), "series")
    figures = when(whole, [make_success_curve("Success by split", whole)])
    for series in SERIES[:2]:
        of_bands = [row for row in scored if row["band"] is not None and row["series"] == series]
        if of_bands:
            rows = group_rows(of_bands, "band")
            bands = {band.value: rows[band] for band in DifficultyBand if band in rows}
            figures.append(make_success_curve(f"Success by difficulty, {series}", bands))
    note = (
        "Share of the scored episodes that were solved, with Wilson's 95 % interval. Repeats of a test task with one "
        "seed count once, with their mean. What failed for reasons of infrastructure is not among them; nor is what "
        "nobody has judged yet."
    )
    return ReportSection("success", "Success", tuple(figures), note)


def _rewards(facts: ReportFacts) -> ReportSection:
    figures = []
    for name, rows in sorted(group_rows(facts["means"], "name").items()):
        if name != "mean_steps":
            figures.append(make_curve(name, "mean", group_rows(rows, "key"), "mean", "{trajectories} episodes"))
    note = (
        "Means over the scored episodes: the reward, the other numbers of the reward function (reward_extra/NAME) over "
        "the episodes that have them, and calls of each tool in an episode (tool_calls/NAME)."
    )
    return ReportSection("rewards", "Rewards and tools", tuple(figures), note)


def _pass_at_k(facts: ReportFacts) -> ReportSection:
    lines: dict[str, dict[str, list[Row]]] = {series: {} for series in SERIES}
    for key, rates in facts["pass_at_k"].items():
        series, _, iteration = key.rpartition(" ")
        for k, chance in rates["k"].items():
            of_k = lines.setdefault(series, {}).setdefault(f"pass@{k}", [])
            of_k.append({"iteration": int(iteration), **chance})
    figures = [
        make_curve(f"pass@k, {series}", "chance", of_series, "rate", "{tasks} tasks", share=True)
        for series, of_series in lines.items()
        if of_series
    ]
    note = (
        "The chance that one of k attempts at a task succeeds, as the mean over tasks of the unbiased estimator "
        "(Chen et al. 2021). A k is given while half of the tasks have as many scored attempts."
    )
    return ReportSection("pass-at-k", "pass@k", tuple(figures), note)


def _steps(facts: ReportFacts) -> ReportSection:
    figures = []
    whole: list[Row] = [row for row in facts["points"] if row["band"] is None]
    for title, key, count in (
        ("Steps per episode", "mean_steps", "trajectories"),
        ("Steps of a solved episode", "mean_steps_solved", "successes"),
    ):
        rows = group_rows((row for row in whole if row[key] is not None), "series")
        if rows:
            figures.append(make_curve(title, "mean steps", rows, key, f"{{{count}}} episodes"))
    return ReportSection("steps", "Steps", tuple(figures))


def _failures(facts: ReportFacts) -> ReportSection:
    failures, figures = facts["failures"], []
    kinds = list(failures["by_kind"])
    if kinds:
        rows = [(kind, {kind: float(count)}) for kind, count in failures["by_kind"].items()]
        figures.append(make_bars("Failures by kind", rows, kinds, format_number))
    if failures["stops"]:
        ends = ((stop, of["count"], of["successes"]) for stop, of in failures["stops"].items())
        figures.append(build_table("How the others ended", ("", "episodes", "solved"), ends))
    total = sum(failures["by_kind"].values())
    note = f"{total} of {facts['trajectories']} attempts failed for reasons that are not the policy's; "
    note += "webgym inspect-buffer counts them by site."
    return ReportSection("failures", "Failures", tuple(figures), note)


def _verdicts(facts: ReportFacts) -> ReportSection:
    rows = [
        (
            f"{row['split']} {row['iteration']}",
            row["judged"],
            format_percent(row["agreement"]),
            f"{row['unanimous']} of {row['voted']}" if row["voted"] else NONE,
            f"{format_percent(row['same_rate'])} of {row['both']}" if row["both"] else NONE,
        )
        for row in facts["verdicts"]
    ]
    columns = ("", "judged", "votes agree", "unanimous", "as the environment")
    figures = when(rows, (build_table("Verdicts", columns, rows),))
    note = (
        "Of each episode the newest judgement. Agreement is the smallest share of votes that went with a decision, as "
        "a mean; where the environment has an opinion too, how often it is the same."
    )
    return ReportSection("judge", "Judge", figures, note)


def _time(facts: ReportFacts) -> ReportSection:
    times, figures = facts["timing"], []
    if times["by_iteration"]:
        rows = [(f"iteration {name}", stages) for name, stages in times["by_iteration"].items()]
        figures.append(make_bars("Time by iteration", rows, list(times["stages"]), format_duration))
    if times["stages"]:
        figures.append(_cost_table(facts))
        if facts["cost"]["gpus"]:
            figures.append(_idle_table(times["gpu"], times["wall_seconds"]))
    if facts["spent"]["policy_tokens"]["prompt"] or facts["spent"]["judge_calls"]:
        figures.append(_token_table(facts["spent"]))
    if facts["spent"]["episodes"]:
        figures.append(_share_table(facts["spent"]))
    if spent := times["episode_seconds"]:
        figures.append(
            make_bars(
                "Where the episodes' time goes", [(k, {k: v}) for k, v in spent.items()], list(spent), format_duration
            )
        )
    note = (
        "Idle is the time between the first and the last stage that no stage covers: starting servers, loading models, "
        "and pauses between commands. GPUs are idle whenever no policy acts and no trainer trains. Episodes run side "
        "by side, so their own times add up to more."
    )
    return ReportSection("time", "Time", tuple(figures), note)


def _cost_table(facts: ReportFacts) -> Figure:
    spent, times = facts["cost"], facts["timing"]
    wall = times["wall_seconds"]
    lines = [
        (name, stage["times"], spent["stages"].get(name), stage["seconds"]) for name, stage in times["stages"].items()
    ]
    lines += [("idle", None, spent["idle"], times["idle_seconds"]), ("all", None, spent["total"], wall)]
    rows = []
    for name, count, share, seconds in lines:
        cells = ["unknown", NONE, NONE, NONE]
        if share is not None and seconds is not None:
            cells = [
                format_duration(seconds),
                format_percent(ratio(seconds, wall)),
                format_number(share["gpu_hours"]),
                format_value(share["cost"], ",.2f"),
            ]
        rows.append((name, format_value(count, "d"), *cells))
    columns = ("", "times", "time", "share", *when(spent["gpus"], ("GPU hours", "cost")))
    return build_table("Time and cost", columns, (row[: len(columns)] for row in rows), _cost_note(spent))


def _token_table(spent: Mapping[str, Any]) -> Figure:
    parts = [(name, spent[f"{name}_tokens"], spent[f"{name}_cost"]) for name in ("policy", "judge", "generator")]
    rows = (
        (name, *(f"{count:,}" for count in tokens.values()), format_value(cost, ",.4f"))
        for name, tokens, cost in parts
        if any(tokens.values())
    )
    note = when(spent["cost"] is None, "The cost is unknown: cost.prices lacks a model.")
    return build_table("Tokens", ("", "prompt", "cached", "answers", "cost"), rows, note)


def _share_table(spent: Mapping[str, Any]) -> Figure:
    rows = ((name.replace("_", " "), *(format_value(one, ",.4g") for one in of)) for name, *of in list_shares(spent))
    return build_table("Spent", ("", "all", *(f"a {share.replace('_', ' ')}" for share in SHARES)), rows)


def _idle_table(gpu: Mapping[str, Any], wall: float) -> Figure:
    causes = {f"idle: {name.replace('_', ' ')}": seconds for name, seconds in gpu["causes"].items()}
    lines = {"at work": gpu["busy_seconds"], "idle": gpu["idle_seconds"], **causes}
    rows = ((name, format_duration(seconds), format_percent(ratio(seconds, wall))) for name, seconds in lines.items())
    return build_table("Idle GPUs", ("", "time", "share"), rows)


def _cost_note(spent: Mapping[str, Any]) -> str:
    if not spent["gpus"]:
        return "Without a GPU; --gpus counts GPU hours."
    gpus = format_count(spent["gpus"], "GPU")
    if spent["gpu_hour_price"] is None:
        return f"Counted for {gpus}, all the time. No price is known: --gpu-hour-price gives the cost."
    return f"Counted for {gpus}, all the time, at {spent['gpu_hour_price']:g} an hour each."


def _learning(facts: ReportFacts) -> ReportSection:
    figures = build_step_figures({"all trainings": facts["optimizer_steps"]})
    if facts["datasets"]:
        rows = [
            (f"iteration {one.iteration}", {"train": one.train_samples, "validation": one.val_samples})
            for one in facts["datasets"]
        ]
        figures.append(make_bars("Samples by dataset", rows, ("train", "validation"), format_number))
    if facts["samples_by_iteration"]:
        parts = [(f"from iteration {key}", {"samples": n}) for key, n in facts["samples_by_iteration"].items()]
        figures.append(make_bars("The newest dataset", parts, ("samples",), format_number))
    return ReportSection("learning", "Data and training", tuple(figures))


def _phases(facts: ReportFacts) -> ReportSection:
    points = (row for row in facts["points"] if row["series"] == "test" and row["band"] is None)
    rates = {row["iteration"]: row["success_rate"] for row in points}
    rows = [
        (
            phase.phase,
            *(format_value(count, ",") for count in (phase.new_tasks, phase.turned_down, phase.episodes)),
            f"{phase.successes} of {phase.scored} scored",
            phase.version,
            format_percent(rates.get(phase.version)),
        )
        for phase in facts["phases"]
    ]
    columns = ("phase", "new tasks", "turned down", "episodes", "solved", "policy version")
    table = build_table("Phases", (*columns, "success of that policy, test"), rows)
    note = (
        "Each phase tries new tasks, made of those that failed before, and trains on it. Solved is what the policy of "
        "the phase before solved of them, as far as they were scored."
    )
    return ReportSection("phases", "Phases", when(rows, (table,)), note)
