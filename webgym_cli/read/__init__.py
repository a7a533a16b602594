"""Runs and evaluations as Arrow tables, for notebooks: `read_steps("runs/a").to_pandas()`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from webgym_cli.compare.study import COLUMNS, build_study, find_record, read_record
from webgym_cli.config.sources import flatten
from webgym_cli.errors import MissingStageError, UsageError
from webgym_cli.records.stored_events import TrainingEvent
from webgym_cli.store import metrics
from webgym_cli.store.find_run import open_run
from webgym_cli.store.index.query import format_duckdb_error, open_index
from webgym_cli.store.run import RunDir
from webgym_cli.util.json_values import encode_json
from webgym_cli.util.optional import map_known

# A folder, as on the command line.
PathLike = str | Path


def read_query(sql: str, *runs: PathLike) -> pa.Table:
    """Return a query's rows over the tables of `webgym inspect-buffer --sql`. Raises `UsageError` for invalid SQL."""
    with open_index(*_open(runs)) as index:
        try:
            return index.table(sql)
        except duckdb.Error as error:
            raise UsageError(format_duckdb_error(error), hint="DESCRIBE trajectories names its columns") from error


def read_trajectories(*runs: PathLike) -> pa.Table:
    """Return a row for each episode."""
    return read_query("SELECT * FROM trajectories ORDER BY run, iteration, id", *runs)


def read_steps(*runs: PathLike) -> pa.Table:
    """Return a row for each step."""
    return read_query("SELECT * FROM steps ORDER BY run, iteration, trajectory, step", *runs)


def read_runs(*runs: PathLike) -> pa.Table:
    """Return a row for each run: its seed, its group, its newest success, and the settings that differ."""
    with ExitStack() as stack:
        study = build_study([(run, stack.enter_context(open_index(run))) for run in _open(runs)])
    return _to_table({**{name: row[name] for name in COLUMNS}, **row["settings"]} for row in study["runs"])


def read_trainings(*runs: PathLike) -> pa.Table:
    """Return a row for each training, with the metrics of webgym's own trainer."""
    return _to_table(
        {"run": str(run.root), **event.model_dump(exclude={"metrics"}), **event.metrics}
        for run in _open(runs)
        for event in metrics.read_records(run, TrainingEvent)
    )


def read_optimizer_steps(*runs: PathLike) -> pa.Table:
    """Return a row for each logged optimizer step, with what the trainer logged.

    `optimizer_step` counts on from training to training, `current_steps` begins anew with each.
    """
    return _to_table(
        {"run": str(run.root), **line} for run in _open(runs) for line in metrics.read_optimizer_steps(run)
    )


def read_evaluations(*paths: PathLike) -> pa.Table:
    """Return a row for each record of `webgym eval`, its folder or file: rates, counts, costs and conditions."""
    rows = []
    for path in paths:
        if (record := find_record(Path(path))) is None:
            raise MissingStageError(f"{path}: there is no evaluation", hint=f"webgym eval RUN -b NAME -o {path}")
        facts = {name: of for name, of in read_record(record).items() if name != "tasks"}
        rows.append({"record": str(record), **flatten(facts)})
    return _to_table(rows)


def _open(runs: Sequence[PathLike]) -> list[RunDir]:
    if not runs:  # of a pattern that matches nothing
        raise UsageError("no run is given", hint="the folders of runs: glob('runs/*')")
    return [open_run(Path(run))[0] for run in runs]


def _to_table(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return rows, which may lack some columns, as a table. A column of mixed types is JSON."""
    rows = list(rows)
    names = dict.fromkeys(chain.from_iterable(rows))
    return pa.table({name: _to_column([row.get(name) for row in rows]) for name in names})


def _to_column(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except pa.ArrowException:
        return pa.array([map_known(encode_json, value) for value in values])
