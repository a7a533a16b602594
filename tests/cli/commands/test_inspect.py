"""`inspect-buffer`, `show` and `compare RUN` as people and scripts meet them."""

import json
import shutil

import pytest

from tests import app
from tests.inspect.buffers import attempt, fill_run
from tests.records.builders import trajectory
from tests.records.test_judgement import ANSWERED, WEB, judgement
from webgym_cli.cli.commands.episode_text import episode_text
from webgym_cli.cli.commands.inspect_tables import cell, sparkline
from webgym_cli.errors import StoreError, UsageError
from webgym_cli.inspect.page import EpisodeView
from webgym_cli.records.judgement import Verdict
from webgym_cli.records.task import Split
from webgym_cli.util.files import write_atomic


@pytest.fixture
def run(tmp_path):
    """Two test iterations of the same three episodes; the second solves one more."""
    tasks = ("a", "b", "b")
    solved = ((True, False, False), (True, True, False))
    return fill_run(
        tmp_path / "run",
        *(
            attempt(number, task, solved[iteration][number], iteration=iteration)
            for iteration in range(2)
            for number, task in enumerate(tasks)
        ),
    )


@pytest.fixture
def invoke(run):
    """Calls a command on the run; gives what stands on stdout and on stderr. Raises the command's own errors."""
    return lambda command, *arguments, **options: app.call(command, run.root, *arguments, **options)


def test_a_sparkline_has_a_block_a_rate_and_cells_are_one_line_and_harmless():
    assert sparkline([0, 0.12, 0.13, 0.5, 0.99, 1, None]) == "▁▁▂▅██·"
    given, shown = (None, 1.23456789, {"a": [1]}, True, "x\x1b[2J\ny\u202e"), [None, "1.23457", '{"a": [1]}', "true"]
    assert [cell(value) for value in given] == [*shown, "x·[2J·y·"]


def test_the_tables_have_a_trend_and_pass_at_k_and_long_ones_are_cut_and_say_so(invoke):
    out, err = invoke("inspect-buffer")
    lines = [line.split("\t") for line in out.splitlines()]
    assert ["b", "4", "4", "0.250", "0.046-0.699", "2.0", "0", "▁▅"] in lines
    assert ["test 1", "2", "0.750", None] not in lines
    assert ["test 1", "3", "3", "0.667", "0.208-0.939", "2.0", "0"] in lines
    assert err == ""
    out, err = invoke("inspect-buffer", "--top", 1)
    assert [line for line in out.splitlines() if line.startswith("a\t")] == []
    assert "by task: 1 more; --top 0 shows all\n" in err
    assert "more" not in invoke("inspect-buffer", "--top", 0)[1]


def test_json_has_all_groups_unless_some_are_asked_for(invoke):
    whole, some = (json.loads(invoke("inspect-buffer", "--json", *more)[0]) for more in ((), ("--top", 1)))
    assert (list(whole["by_task"]), list(some["by_task"])) == (["b", "a"], ["b"])
    assert whole["pass_at_k"]["test 1"]["k"]["1"] == {"rate": 0.6667, "tasks": 3}
    assert whole["prepare"] is None


def test_a_condition_in_sql_goes_with_the_other_options(invoke):
    ids = invoke("inspect-buffer", "--where", "success and site = 'b.test'", "--iteration", 1, "-q")[0]
    assert ids.split() == ["test-0001-00001"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--where", "sit = 'x'"), 'Candidate bindings: "site"'),
        (("--where", "task::INT > 1"), "--where: Conversion Error"),
        (("--where", "task::INT > 1", "-q"), "--where: Conversion Error"),
        (("--where", "true; DROP VIEW steps"), "syntax error"),
        (("--sql", "DROP VIEW steps"), "one SELECT"),
        (("--sql", "SELECT 1", "--split", "test"), "--sql and a choice of trajectories exclude each other"),
        (("--verify", "--where", "true"), "--verify and a choice of trajectories exclude each other"),
        (("--sql", "SELECT 1", "--top", "3"), "--sql and --top exclude"),
        (("--sql", "SELECT 1", "-q"), "--sql and --quiet exclude"),
        (("--verify", "-q"), "--verify and --quiet exclude"),
    ],
    ids=str,
)
def test_wrong_sql_is_wrong_usage(invoke, arguments, words):
    with pytest.raises(UsageError, match=words) as caught:
        invoke("inspect-buffer", *arguments)
    assert "\n" not in str(caught.value)


def test_a_query_is_a_table_or_json_lines(invoke):
    sql = "SELECT task, count(*) AS n, avg(reward) AS r FROM trajectories GROUP BY ALL ORDER BY task"
    assert invoke("inspect-buffer", "--sql", sql)[0] == "a\t2\t1\nb\t4\t0.25\n"
    lines = invoke("inspect-buffer", "--sql", sql, "--json")[0].splitlines()
    assert [json.loads(line) for line in lines] == [{"task": "a", "n": 2, "r": 1.0}, {"task": "b", "n": 4, "r": 0.25}]
    assert invoke("inspect-buffer", "--sql", "FROM damage") == ("", "no rows\n")
    times = "SELECT epoch(TIMESTAMP '2026-01-02 03:04:05.25') AS at, 0.1::DOUBLE + 0.2 AS rounded"
    assert invoke("inspect-buffer", "--sql", times)[0] == "1767323045.25\t0.3\n"
    both = "SELECT first.task, second.task, 1 AS task_1 FROM stored first JOIN stored second USING (id) LIMIT 1"
    line = invoke("inspect-buffer", "--sql", both, "--json")[0]
    assert list(json.loads(line)) == ["task", "task_1", "task_1_1"]


def test_several_runs_are_queried_together(invoke, run, tmp_path):
    other = fill_run(tmp_path / "other", attempt(0, "a", solved=True))
    sql = "SELECT parse_filename(run) AS run, count(*) AS n FROM trajectories GROUP BY ALL ORDER BY run"
    assert invoke("inspect-buffer", other.root, "--sql", sql)[0] == "other\t1\nrun\t6\n"
    for arguments in ((), ("--where", "true"), ("--sql", sql, "--reindex")):
        with pytest.raises(UsageError, match="several runs"):
            invoke("inspect-buffer", other.root, *arguments)


def test_reindex_builds_the_index_anew_and_says_the_same(invoke, run):
    before = invoke("inspect-buffer", "--json")[0]
    made_before = {file.name for file in run.index.rglob("*.parquet")}
    for file in run.index.rglob("*.parquet"):
        file.write_bytes(b"x" * file.stat().st_size)
    after, err = invoke("inspect-buffer", "--json", "--reindex")
    aged = {"age_hours": None}  # by the clock
    assert json.loads(after) | aged == json.loads(before) | aged
    assert {file.name for file in run.index.rglob("*.parquet")} == made_before
    assert all(file.read_bytes().startswith(b"PAR1") for file in run.index.rglob("*.parquet"))
    assert err == ""


def test_show_tells_an_episode_and_its_verdicts_and_what_was_written_elsewhere_moves_no_cursor():
    filled = trajectory(3, outcome=ANSWERED, task=WEB, steps=2)
    verdict = Verdict(question="It is red.", passed=False, reason="It is\nblue.", votes=(True, False, False))
    text = episode_text(EpisodeView(filled, (judgement(trajectory=filled.id, facts=(verdict,), success=False),))).plain
    lines = [line.strip() for line in text.splitlines()]
    assert "asked     Click the button." in lines and "fact      It is red." in lines
    assert "not passed (1 of 3 votes for it)" in lines and "blue." in lines
    assert [line for line in lines if line.startswith("step ")] == ["step 0", "step 1"]
    assert lines.count("action    click (10, 20)") == 2
    strange = episode_text(EpisodeView(trajectory(0, instruction="\x1b[2Jgone\r\u202e", id="a\x1b"))).plain
    assert not {letter for letter in strange if letter < " " or letter == "\u202e"} - {"\n"}


def test_show_takes_ids_from_stdin_and_writes_json_and_a_page(invoke, run, tmp_path):
    out, _ = invoke("show", "-", "--json", input="test-0001-00002\ntest-0000-00000\n")
    assert [json.loads(line)["id"] for line in out.splitlines()] == ["test-0001-00002", "test-0000-00000"]
    page = tmp_path / "x" / "page.html"
    assert invoke("show", "test-0000-00000", "--html", page)[0] == f"{page}\n"
    assert page.read_bytes().startswith(b"<!doctype html>")


@pytest.mark.parametrize("there", [True, False])
def test_open_writes_below_the_run_and_says_where(invoke, run, monkeypatch, there):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or there)
    out, err = invoke("show", "test-0000-00000", "--open")
    path = run.root / "pages" / "test-0000-00000.html"
    assert (out, opened) == (f"{path}\n", [path.as_uri()])
    assert path.is_file()
    assert ("no browser" in err) is not there


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "no trajectory is named"),
        (("test-0000-0000",), "did you mean test-0000-00000"),
        (("test-0000-00000", "test-0000-00001", "--html", "x.html"), "--html takes one"),
        (("test-0000-00000", "--json", "--html", "x.html"), "--json and --html"),
        (("test-0000-00000", "--json", "--open"), "--open exclude"),
    ],
)
def test_show_refuses_what_it_cannot_show(invoke, arguments, words):
    with pytest.raises(UsageError, match=words):
        invoke("show", *arguments)


def test_a_page_that_cannot_be_written_is_named_and_a_hostile_id_leads_nowhere_else(invoke, run, tmp_path):
    write_atomic(tmp_path / "file", "")
    with pytest.raises(StoreError, match="can't be written"):
        invoke("show", "test-0000-00000", "--html", tmp_path / "file" / "page.html")
    assert run.page("../../x").parent == run.root / "pages"


def test_two_versions_are_compared_and_without_tasks_only_counted(invoke):
    out, _ = invoke("compare", 0, 1, "--tasks")
    lines = [line.split("\t") for line in out.splitlines()]
    assert ["1", "0", "1", "1", "0", "1.0"] in lines  # gained, lost, kept, failed, unscored, p
    assert ["b", "2", "1", "0", "0", "1"] in lines
    assert ["b", "1", "test-0000-00001", "test-0001-00001"] in lines
    record = json.loads(invoke("compare", 0, 1, "--json")[0])
    assert (record["counts"]["gained"], record["unit"]) == (1, "episode")
    assert json.loads(invoke("compare", "--json")[0]) == record  # the first version and the newest
    assert "test-0001-00001" not in invoke("compare", 0, 1)[0]


def test_versions_of_two_runs_are_compared_and_the_earlier_name_prints_the_same_and_names_the_new_one(invoke, tmp_path):
    out, err = invoke("diff", 0, 1)
    assert out == invoke("compare", 0, 1, "--tasks")[0]
    assert "webgym compare" in err
    other = fill_run(tmp_path / "other", attempt(0, "a", solved=False, iteration=5))
    record = json.loads(invoke("compare", 1, other.root, 5, "--json")[0])
    assert json.loads(invoke("diff", 1, 5, "--with", other.root, "--json")[0])["counts"] == record["counts"]
    assert (record["pairs"], record["counts"]["lost"], record["first"]["only_here"]) == (1, 1, 2)
    assert "diff" not in app.invoke("--help").output.split()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        *((words, "two versions") for words in ((0,), (0, 1, 2), (0, "RUN"), ("RUN", 0), (0, "RUN", 1, 2))),
        ((0, "RUN", 1, "RUN", 2), "two versions"),
        (("--across",), "^--across has no effect"),
        (("b", "c", "--tasks"), "^--tasks has no effect"),
        (("b", "c", "--split", "test"), "^--split has no effect"),
        (("b", "--csv", "-", "--tasks"), "^--tasks has no effect"),
    ],
    ids=str,
)
def test_other_numbers_of_versions_and_options_without_effect_are_refused(
    invoke, run, words, reason, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for copy in ("b", "c"):
        shutil.copytree(run.root, copy)
    with pytest.raises(UsageError, match=reason):
        invoke("compare", *(run.root if word == "RUN" else word for word in words))


def test_versions_that_are_not_there_are_wrong_usage(invoke):
    with pytest.raises(UsageError, match="no train trajectories of iteration 0; there is test 0, test 1"):
        invoke("compare", 0, 1, "--split", Split.TRAIN.value)
    with pytest.raises(UsageError, match="no train trajectories"):
        invoke("compare", "--split", Split.TRAIN.value)


def test_a_run_with_one_version_has_none_to_compare_it_with(invoke, tmp_path):
    other = fill_run(tmp_path / "other", attempt(0, "a", solved=True, iteration=3))
    with pytest.raises(UsageError, match="only version 3 has test trajectories"):
        app.call("compare", other.root)
    assert json.loads(invoke("compare", other.root, "--json")[0])["newest"]["pairs"] == 1
