"""A study of several runs: a row each, and runs that differ only in their seed as one group.

Also the comparison of evaluation records, paired by task. Records of other tasks, judges or decodings are refused.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import AliasPath, BaseModel, Field

from webgym_cli.compare import paired
from webgym_cli.config.load import flat_values
from webgym_cli.config.renamed import find_section
from webgym_cli.config.sources import flatten
from webgym_cli.errors import StoreError, UsageError
from webgym_cli.evaluate.record import SCHEMA, VALID
from webgym_cli.evaluate.results import EpisodeEnd
from webgym_cli.records.statistics import deviation, holm, mean, mean_interval, ratio
from webgym_cli.report.facts import find_newest_test, read_points
from webgym_cli.store.checkpoints import version
from webgym_cli.store.index.query import Index
from webgym_cli.store.run import RunDir, refuse_invalid, saved_settings
from webgym_cli.util.files import read_json
from webgym_cli.util.json_values import as_text
from webgym_cli.util.optional import when

ComparedRun = tuple[RunDir, Index]
# Settings, and sections, in which repeats of one experiment may differ: seeds, names, and where on a machine they run.
_OF_REPEATS = (
    *("seed", "tasks.test_seed", "algorithm_config.seed"),
    *("log_config", "serve.port", "serve.gpus", "train.gpus"),
)
# Columns of a run's row, besides its settings.
COLUMNS = (
    *("run", "group", "seed", "policy_version", "split", "iteration"),
    *("scored", "scored_cases", "success_rate", "mean_steps"),
)
# Conditions whose difference alone changes the numbers; another policy, its prompt and versions are what is compared.
# The number of repeats decides whether "at least half of them" is easier than one.
_DECISIVE = (
    *("tasks.digest", "tasks.seed", "tasks.episodes", "tasks.repeats"),
    *("limits", "browser", "sites", "decoding", "scoring", "judge"),
)
# Beginnings of conditions that older records lack; other ones that are left out have the default.
_ADDED = ("tasks.edition", "prompt.digest")
# Those that came with `prompt.digest`: a record with the digest and without one of them has no such check or function.
_ADDED_WITH_DIGEST = ("scoring.checks.", "scoring.reward_digest", "versions.playwright")
_LEVEL = 0.05
# The two denominators of a record.
RATES = ("overall", "valid_only")


def build_study(
    runs: Sequence[ComparedRun], points: Sequence[Sequence[dict[str, Any]]] | None = None
) -> dict[str, Any]:
    """Return a row for each run and each group, as one JSON object. Raises `StoreError`.

    A run's success is that of its newest test episodes, or of its newest training episodes without such. `points`:
    what `read_points` returned for each run; None: they are read.
    """
    settings = [saved_settings(run) for run, _ in runs]
    values = [flat_values(of) for of in settings]
    different = [key for key in dict.fromkeys(chain.from_iterable(values)) if _differs(key, values)]
    groups: dict[str, list[dict[str, Any]]] = {}
    points = points or [read_points(index) for _, index in runs]
    for (run, _), of, flat, of_run in zip(runs, settings, values, points, strict=True):
        own = {key: flat.get(key) for key in different}
        newest = find_newest_test(of_run)
        group = groups.setdefault(json.dumps(own), [])
        group.append(
            {
                "run": str(run.root),
                "group": list(groups).index(json.dumps(own)),
                "seed": of.seed,
                "policy_version": version(run),
                "split": newest and newest["series"],
                "iteration": newest and newest["iteration"],
                **{name: newest and newest[name] for name in ("scored", "scored_cases", "success_rate", "mean_steps")},
                "settings": own,
            }
        )
    return {
        "runs": list(chain.from_iterable(groups.values())),
        "groups": [_summarize(number, group) for number, group in enumerate(groups.values())],
    }


def render_csv(study: dict[str, Any]) -> str:
    """Return the rows as CSV, with a column for each setting that differs."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([*COLUMNS, *study["runs"][0]["settings"]])
    for row in study["runs"]:
        writer.writerow([*(row[name] for name in COLUMNS), *map(as_text, row["settings"].values())])
    return text.getvalue()


def _differs(key: str, values: Sequence[dict[str, Any]]) -> bool:
    return not find_section(key, _OF_REPEATS) and any(of.get(key) != values[0].get(key) for of in values)


def _summarize(number: int, group: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a group's mean success over its runs, with the interval of Student's t for a few of them."""
    rates = [row["success_rate"] for row in group if row["success_rate"] is not None]
    several = len(rates) > 1
    return {
        "group": number,
        "runs": len(group),
        "seeds": [row["seed"] for row in group],
        "splits": sorted({row["split"] for row in group if row["split"]}),
        "mean": mean(rates),
        "standard_deviation": deviation(rates),
        "interval": [round(end, 4) for end in mean_interval(rates)] if several else None,
        "settings": group[0]["settings"],
    }


class _ComparedTask(BaseModel):
    key: str
    seed: int
    task: str
    site: str
    results: list[str] = Field(min_length=1)


class _ComparedRecord(BaseModel):
    """What a comparison reads of a record, which people edit and copy."""

    policy: str = Field(validation_alias=AliasPath("conditions", "policy", "name"))
    episodes: int
    valid: int
    blocked: int
    failed: int
    overall: float | None = Field(ge=0, le=1, validation_alias=AliasPath("overall", "rate"))
    valid_only: float | None = Field(ge=0, le=1, validation_alias=AliasPath("valid_only", "rate"))
    tasks: list[_ComparedTask]


def find_record(path: Path) -> Path | None:
    """Return the record that a path names: its file, or the only one of an evaluation's folder; None for another path.

    Raises `UsageError` for a folder without a record, or with several.
    """
    if path.is_file():
        return path
    if not RunDir(path).conditions.is_file():
        return None
    records = sorted(path.glob("evaluation-*.json"))
    if len(records) != 1:
        names = ", ".join(file.name for file in records) or "none yet"
        hint = f"webgym compare {records[0]} ..." if records else f"webgym resume {path}"
        raise UsageError(f"{path}: an evaluation with several records, or none: {names}", hint=hint)
    return records[0]


def read_record(path: Path) -> dict[str, Any]:
    """Read a record. Raises `StoreError` for another file."""
    record = read_json(path)
    hint = "webgym eval RUN -b NAME writes one"
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        raise StoreError(f"{path}: no record of an evaluation", hint=hint)
    with refuse_invalid(f"{path}: no record of an evaluation", hint):
        tasks = _ComparedRecord.model_validate(record).tasks
    if len({(task.key, task.seed) for task in tasks}) < len(tasks):
        raise StoreError(f"{path}: no record of an evaluation: a task and seed occur twice", hint=hint)
    return record


def list_differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """Return the conditions that differ, each with its two values. One that an older record lacks is unknown there."""
    one, two = flatten(first), flatten(second)
    unknown = _list_unknown(one, two)
    keys = [key for key in dict.fromkeys([*one, *two]) if key not in unknown]
    return [f"{key}: {one.get(key)!r}, not {two.get(key)!r}" for key in keys if one.get(key) != two.get(key)]


def _list_unknown(one: Mapping[str, Any], two: Mapping[str, Any]) -> list[str]:
    unknown: list[str] = []
    for lacking, other in ((one, two), (two, one)):
        added = (*_ADDED, *when("prompt.digest" not in lacking, _ADDED_WITH_DIGEST))
        unknown += [key for key in other.keys() - lacking.keys() if key.startswith(added)]
    return unknown


def compare_records(paths: Sequence[Path], *, across: bool) -> dict[str, Any]:
    """Compare each record with the first one. `across`: also under other conditions.

    Raises `UsageError` that names what differs, unless `across`; and for records without a common task.
    """
    first, *others = ((path, read_record(path)) for path in paths)
    compared = [_compare(first, other, across=across) for other in others]
    for rate in RATES:  # each further comparison is another chance to find a difference by accident
        adjusted = holm([one[rate]["p_value"] for one in compared])
        for one, p_value in zip(compared, adjusted, strict=True):
            one[rate] |= {"p_holm": float(f"{p_value:.4g}"), "significant": p_value < _LEVEL}
    return {"first": _describe(*first), "others": compared}


def _compare(first: tuple[Path, dict[str, Any]], other: tuple[Path, dict[str, Any]], *, across: bool) -> dict[str, Any]:
    different = list_differences(first[1]["conditions"], other[1]["conditions"])
    decisive = [line for line in different if any(f"{line}.".startswith((f"{key}.", f"{key}:")) for key in _DECISIVE)]
    if decisive and not across:
        raise UsageError(
            f"{first[0]} and {other[0]} are not comparable: {'; '.join(decisive)}",
            hint="evaluate both alike, or add --across to compare them in spite of that",
        )
    tests = {rate: _test(_pair(first[1], other[1], valid_only=rate == "valid_only")) for rate in RATES}
    if not tests["overall"]["pairs"]:
        raise UsageError(f"{first[0]} and {other[0]} have no task and seed in common: no pair can be compared")
    unknown = sorted(_list_unknown(*(flatten(record["conditions"]) for _, record in (first, other))))
    different += [f"{key}: unknown in an older record" for key in unknown]
    return {**_describe(*other), **tests, "different": different}


def _describe(path: Path, record: Mapping[str, Any]) -> dict[str, Any]:
    rates = {rate: record[rate] for rate in RATES}
    counts = {name: record[name] for name in ("episodes", "valid", "blocked", "failed")}
    return {"record": str(path), "policy": record["conditions"]["policy"]["name"], **counts, "rates": rates}


def _pair(first: Mapping[str, Any], other: Mapping[str, Any], *, valid_only: bool) -> list[paired.Pair]:
    cases = (_read_cases(record, valid_only=valid_only) for record in (first, other))
    return [(one, two) for one, two in paired.join_cases(*cases) if one and two and None not in (one.rate, two.rate)]


def _read_cases(record: Mapping[str, Any], *, valid_only: bool) -> Iterator[paired.PairedCase]:
    """Yield the tasks of a record; one is solved if at least half of its repeats are."""
    for task in record["tasks"]:
        results = [result for result in task["results"] if not valid_only or result in VALID]
        solved = results.count(EpisodeEnd.SUCCESS)
        yield paired.PairedCase(
            task_key=task["key"],
            seed=task["seed"],
            task=task["task"],
            site=task["site"],
            id=task["task"],
            rate=solved / len(results) if results else None,
            steps=None,
        )


def _test(pairs: Sequence[paired.Pair]) -> dict[str, Any]:
    counts = paired.count_changes(pairs)
    changed = {
        change.value: [before.task for before, after in pairs if paired.find_change((before, after)) is change]
        for change in (paired.Change.GAINED, paired.Change.LOST)
    }
    difference = sum((after.rate or 0) - (before.rate or 0) for before, after in pairs)
    return {
        "pairs": len(pairs),
        "counts": counts,
        "difference": ratio(difference, len(pairs)),
        "p_value": paired.compute_p_value(counts),
        "tasks": changed,
    }
