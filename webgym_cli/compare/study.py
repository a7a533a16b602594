"""A study of several runs: a row each, and runs that differ only in their seed as one group."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from itertools import chain
from typing import Any

from webgym_cli.config.load import flat_values
from webgym_cli.config.renamed import find_section
from webgym_cli.records.statistics import deviation, mean, mean_interval
from webgym_cli.report.facts import describe_run, find_newest_test
from webgym_cli.report.success import read_points
from webgym_cli.store.index.query import Index
from webgym_cli.store.run import RunDir, saved_settings
from webgym_cli.util.json_values import as_text

# A run and its index.
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
        identity, newest = describe_run(run, of), find_newest_test(of_run)
        group = groups.setdefault(json.dumps(own), [])
        group.append(
            {
                "run": identity["run"],
                "group": list(groups).index(json.dumps(own)),
                "seed": of.seed,
                "policy_version": identity["policy_version"],
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
