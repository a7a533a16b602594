"""A study of several runs: groups of seeds, their mean, and the rows as CSV."""

import csv
import io
from contextlib import ExitStack
from statistics import stdev

import pytest

from tests.report.runs import did
from webgym_cli.compare import views
from webgym_cli.compare.study import build_study, render_csv
from webgym_cli.config.load import load
from webgym_cli.records.statistics import mean_interval
from webgym_cli.store.buffer import append
from webgym_cli.store.index.query import open_index
from webgym_cli.store.run import RunDir, create_or_open

# Name, seed, number of chains, and how many of four test episodes are solved (None: there are none).
RUNS = (("a", 1, 2, 1), ("b", 1, 4, 4), ("c", 2, 2, 2), ("d", 3, 2, 3), ("e", 2, 4, None))


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    root = tmp_path_factory.mktemp("study")
    with ExitStack() as stack:
        opened = []
        for name, seed, chains, solved in RUNS:
            run = RunDir(root / name)
            own = [f"seed={seed}", f"log_config.run_name={name}", f"serve.port={9000 + seed}", f'train.gpus=["{seed}"]']
            create_or_open(run, load(overrides=[*own, f"agent.num_chains={chains}"]))
            for number in range(0 if solved is None else 4):
                append(run, did(number, "t", solved=number < solved))
            opened.append((run, stack.enter_context(open_index(run))))
        return build_study(opened)


def test_runs_that_differ_in_their_seed_are_one_group(study):
    first, second = study["groups"]
    assert (first["seeds"], second["seeds"]) == ([1, 2, 3], [1, 2])
    assert (first["settings"], second["settings"]) == ({"agent.num_chains": 2}, {"agent.num_chains": 4})
    assert [row["run"].rpartition("/")[2] for row in study["runs"]] == ["a", "c", "d", "b", "e"]
    assert (first["mean"], first["standard_deviation"], first["splits"]) == (0.5, 0.25, ["test"])
    half = 4.303 * 0.25 / 3**0.5
    assert first["interval"] == pytest.approx([0.5 - half, 0.5 + half], abs=1e-4)


def test_a_run_without_episodes_does_not_count(study):
    second = study["groups"][1]
    assert (second["runs"], second["mean"], second["interval"]) == (2, 1.0, None)


def test_rows_are_csv_with_the_settings_that_differ(study):
    rows = list(csv.DictReader(io.StringIO(render_csv(study))))
    assert [(row["group"], row["success_rate"], row["agent.num_chains"]) for row in rows] == [
        *(("0", rate, "2") for rate in ("0.25", "0.5", "0.75")),
        *(("1", rate, "4") for rate in ("1.0", "")),
    ]
    assert [len(of.rows) for of in views.build_study_tables(study)] == [5, 2, 1]


@pytest.mark.parametrize("count", [2, 21, 40])
def test_the_interval_of_a_mean_is_students(count):
    values = [float(n % 2) for n in range(count)]
    quantile = {2: 12.706, 21: 2.086, 40: 2.086}[count]  # beyond the table a little wide
    low, high = mean_interval(values)
    assert (high - low) / 2 == pytest.approx(quantile * stdev(values) / count**0.5)


def test_the_points_of_a_run_are_read_once(tmp_path, monkeypatch):
    run, read = RunDir(tmp_path / "a"), []
    create_or_open(run, load())
    monkeypatch.setattr(views, "read_points", lambda index: read.append(index) or [])
    page = views.render_study([(run, "an index")], {}).decode()
    assert ("1 runs" in page, 'id="success"' in page, read) == (True, False, ["an index"])
