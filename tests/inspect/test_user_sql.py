"""A person's own queries: answered, or refused in DuckDB's words; nothing is written."""

import shutil
import time

import pytest

from tests.inspect.buffers import attempt, fill_run
from webgym_cli.errors import StoreError, UsageError
from webgym_cli.inspect.overview import VIEWS, run_user_sql, to_plain_value
from webgym_cli.store.index.query import open_index
from webgym_cli.store.run import RunDir


@pytest.fixture
def run(tmp_path):
    return fill_run(tmp_path / "run", attempt(0, "a", solved=True), attempt(1, "b", solved=False))


def rows(run, sql):
    with open_index(run) as index:
        return [{name: to_plain_value(value) for name, value in row.items()} for row in run_user_sql(run, index, sql)]


def test_any_select_is_answered(run):
    by_site = "SELECT site, count(*) AS n FROM trajectories GROUP BY ALL ORDER BY site"
    assert rows(run, by_site) == [{"site": "a.test", "n": 1}, {"site": "b.test", "n": 1}]
    assert rows(run, "FROM stored SELECT max(started_at) AS newest") == [{"newest": "2026-01-02T03:04:05"}]


def test_times_are_compared_in_utc_whatever_the_zone_of_the_machine_is(run, monkeypatch):
    """East of Greenwich no episode was of the last hour, and west of it those of the last night were."""
    hour = "started_at BETWEEN TIMESTAMPTZ '2026-01-02 12:00+09' AND TIMESTAMPTZ '2026-01-02 13:00+09'"
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        counts = rows(run, f"SELECT count(*) AS n FROM trajectories WHERE {hour}")
    time.tzset()
    assert counts == [{"n": 2}]


@pytest.mark.parametrize("name", ["ru?", "r[u]n", "r*", "it's %s"])
def test_the_name_of_a_run_is_no_pattern(run, name, tmp_path):
    """DuckDB read the fragments of the runs beside it that the name matches."""
    with open_index(run):
        copy = RunDir(shutil.copytree(run.root, tmp_path / name))
    assert rows(copy, "FROM stored SELECT DISTINCT run, count(*) AS n GROUP BY ALL") == [
        {"run": str(copy.root), "n": 2}
    ]


@pytest.mark.parametrize("view", VIEWS)
def test_each_table_can_be_asked_and_described(run, view):
    names = [row["column_name"] for row in rows(run, f"DESCRIBE {view}")]
    assert all(list(row) == names for row in rows(run, f"FROM {view}"))


@pytest.mark.parametrize(
    "sql",
    ["", "DROP VIEW steps", "COPY stored TO 'x.csv'", "SELECT 1; SELECT 2", "SET threads = 1", "ATTACH 'x.db'",
     "INSERT INTO stored SELECT * FROM stored"],
)  # fmt: skip
def test_what_is_no_single_select_is_refused(run, sql, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="one SELECT"):
        rows(run, sql)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


OUTSIDE = [
    "SELECT * FROM read_csv('{secret}')",
    "SELECT * FROM read_text('{secret}')",
    "SELECT * FROM read_blob('/proc/self/environ')",
    "SELECT * FROM read_json('{secret}')",
    "SELECT * FROM read_parquet('{secret}')",
    "SELECT * FROM parquet_metadata('{secret}')",
    "SELECT * FROM sniff_csv('{secret}')",
    "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM '{secret}'",
    "SELECT * FROM query('SELECT * FROM read_text(''{secret}'')')",
    "SELECT * FROM read_text('{run}/index/../config.json')",
    "SELECT * FROM 'http://127.0.0.1:1/x.parquet'",
    "SELECT * FROM which_secret('x', 'http')",
    "SELECT * FROM run",
    "FROM stored WHERE id IN (SELECT content FROM read_text('{secret}'))",
]


@pytest.mark.parametrize("sql", OUTSIDE)
def test_no_file_of_the_machine_is_read(run, sql, tmp_path):
    (tmp_path / "secret.csv").write_text("KEY\n")
    with pytest.raises(UsageError) as caught:
        rows(run, sql.format(secret=tmp_path / "secret.csv", run=run.root))
    assert "KEY" not in str(caught.value)


@pytest.mark.parametrize(
    "expression",
    [
        "id IN (SELECT content FROM read_text('/etc/passwd'))",
        "length((SELECT content FROM read_blob('/proc/self/environ'))) > 0",
        "true) UNION SELECT content FROM read_text('/etc/passwd') WHERE (true",
        "true); COPY stored TO 'x.csv'; SELECT (1",
    ],
)
def test_a_condition_reads_and_writes_no_file_of_the_machine(run, expression, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with open_index(run) as index, pytest.raises((UsageError, StoreError)):
        list(index.places(index.check_where(expression)))
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("sql", ["SET enable_external_access = true", "LOAD httpfs", "RESET lock_configuration"])
def test_the_lock_holds(run, sql):
    with open_index(run) as index, pytest.raises(StoreError):
        list(index.rows(sql))


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELEC 1", 'syntax error at or near "SELEC"'),
        ("SELECT sit FROM stored", 'Candidate bindings: "site"'),
        ("SELECT * FROM step", "Did you mean"),
        ("SELECT task::INT FROM stored", "Could not convert string 'a'"),
    ],
)
def test_mistakes_are_told_in_one_line(run, sql, words):
    with pytest.raises(UsageError) as caught:
        rows(run, sql)
    assert words in str(caught.value) and "\n" not in str(caught.value)
    assert "trajectories, stored, steps, judgements, damage" in caught.value.hint


def test_a_damaged_index_is_not_the_askers_fault(run):
    with open_index(run) as index:
        for file in run.index.rglob("*.parquet"):
            file.write_bytes(b"no parquet at all")
        with pytest.raises(StoreError) as caught:
            list(run_user_sql(run, index, "SELECT * FROM steps"))
    assert "--reindex" in caught.value.hint


def test_values_are_json(run):
    sql = "SELECT {'a': [1, 2.5::DECIMAL(3, 1)]} AS s, DATE '2026-01-02' AS d, 'nan'::DOUBLE AS n, MAP {1: NULL} m"
    assert rows(run, sql) == [{"s": {"a": [1, 2.5]}, "d": "2026-01-02", "n": None, "m": {"1": None}}]
