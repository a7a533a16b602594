"""Two runs side by side: pairs and shares, against numbers made by hand."""

from __future__ import annotations

import pytest

from tests.inspect.buffers import fill_run
from tests.records.builders import CRASHED, SOLVED, trajectory
from tests.report.runs import compared, did
from webgym_cli.compare.views import build_run_tables, build_sections, warn_of_different_tasks
from webgym_cli.config.load import load
from webgym_cli.records.series import name_served
from webgym_cli.records.statistics import difference, mcnemar
from webgym_cli.records.task import Split
from webgym_cli.store.run import RunDir, create_or_open


def episodes(solved, iteration=0, offset=0):
    return [did(offset + n, "a", solved=won, iteration=iteration) for n, won in enumerate(solved)]


def rows(value):
    return {(row["series"], row["first_iteration"], row["second_iteration"]): row for row in value["rows"]}


def cells(value, table):
    return build_run_tables(value)[table].table.rows


def test_the_same_episodes_are_paired(tmp_path):
    first = fill_run(tmp_path / "a", *episodes([True] * 3 + [False] * 9))
    second = fill_run(tmp_path / "b", *episodes([False] + [True] * 9 + [False] * 2))
    row = rows(compared(first, second))["test", 0, 0]
    assert (row["method"], row["pairs"], row["gained"], row["lost"]) == ("paired", 12, 7, 1)
    assert row["p_value"] == pytest.approx(mcnemar(7, 1), rel=1e-3) == pytest.approx(0.07031, rel=1e-3)
    assert (row["difference"], row["significant"]) == (0.5, False)
    assert (row["first"]["success_rate"], row["second"]["success_rate"]) == (0.25, 0.75)


def test_enough_gains_tell(tmp_path):
    result = compared(fill_run(tmp_path / "a", *episodes([False] * 8)), fill_run(tmp_path / "b", *episodes([True] * 8)))
    assert result["rows"][0]["p_value"] == pytest.approx(2 / 2**8, rel=1e-3)
    assert cells(result, "success")[0][-2:] == ("p 0.007812: +8 -0 of 8 pairs", "B is better")


def test_only_what_both_have_and_what_is_scored_is_paired(tmp_path):
    first = fill_run(tmp_path / "a", *episodes([True, None, False, True]))
    second = fill_run(tmp_path / "b", *episodes([False, True, True], offset=0), did(3, "b", solved=True))
    row = rows(compared(first, second))["test", 0, 0]
    assert (row["pairs"], row["gained"], row["lost"]) == (2, 1, 1)


def test_a_case_of_several_attempts_is_solved_by_half_of_them(tmp_path):
    again = did(0, "a", solved=False).model_copy(update={"id": "test-0000-00000.1", "attempt": 1})
    first = fill_run(tmp_path / "a", *episodes([True]), again)
    row = rows(compared(first, fill_run(tmp_path / "b", *episodes([False]))))["test", 0, 0]
    assert (row["pairs"], row["lost"]) == (1, 1)


def test_what_cannot_be_paired_has_an_interval(tmp_path):
    train = {"split": Split.TRAIN}
    first = fill_run(tmp_path / "a", *(did(n, "a", solved=n < 2, **train) for n in range(10)))
    second = fill_run(tmp_path / "b", *(did(n, "a", solved=n < 9, **train) for n in range(10)))
    row = rows(compared(first, second))["train", 0, 0]
    delta, low, high = difference((2, 10), (9, 10))
    assert row["method"] == "independent"
    assert (row["difference"], row["difference_interval"]) == (round(delta, 4), [round(low, 4), round(high, 4)])
    assert row["significant"]
    other = fill_run(tmp_path / "c", *episodes([True], offset=50))
    assert rows(compared(fill_run(tmp_path / "d", *episodes([True])), other))["test", 0, 0]["method"] == "independent"


def test_experts_are_not_mixed_with_policies(tmp_path):
    first = fill_run(tmp_path / "a", trajectory(0, outcome=SOLVED), did(1, "a", solved=False, split=Split.TRAIN))
    second = fill_run(tmp_path / "b", trajectory(0, outcome=SOLVED))
    result = rows(compared(first, second))
    assert list(result) == [("train", 0, 0), ("demonstrations", 0, 0)]
    assert (result["train", 0, 0]["second"], result["train", 0, 0]["method"]) == (None, None)


SERVERS = [name_served("policy", f"http://{host}:1/v1") for host in ("a", "b")]


def test_servers_are_compared_with_their_like_and_not_with_the_runs_policy(tmp_path):
    """In two runs of one server each, these are compared by their pairs, whatever their names are."""
    ours, one, two = ([did(n, "a", solved=won, **of) for n in range(8)] for won, of in (
        (False, {}), (True, {"policy": SERVERS[0]}), (False, {"policy": SERVERS[1]})
    ))  # fmt: skip
    first, second = fill_run(tmp_path / "a", *ours, *one), fill_run(tmp_path / "b", *two)
    result = rows(compared(first, second))
    both = f"test of {SERVERS[0]} / test of {SERVERS[1]}"
    assert list(result) == [("test", 0, 0), (both, 0, 0)]
    assert (result["test", 0, 0]["method"], result[both, 0, 0]["method"]) == (None, "paired")
    assert (result[both, 0, 0]["difference"], result[both, 0, 0]["significant"]) == (-1.0, True)
    third = fill_run(tmp_path / "c", *(did(20 + n, "a", solved=n > 3, policy=SERVERS[n % 2]) for n in range(8)))
    alone = rows(compared(first, third))
    assert {row["method"] for row in alone.values()} == {None, "independent"}
    assert [name for name, *_ in alone] == ["test", *(f"test of {name}" for name in SERVERS)]


@pytest.mark.parametrize("split", [Split.TEST, Split.TRAIN])
def test_runs_without_a_common_task_get_no_verdict(tmp_path, split):
    def run(name, task, won):
        return fill_run(tmp_path / name, *(did(n, task, solved=won, split=split) for n in range(20)))

    result = compared(run("a", "a", won=False), run("b", "b", won=True))
    (row,) = result["rows"]
    assert (row["common_tasks"], row["significant"]) == (0, True)
    assert cells(result, "success")[0][-1] == "different tasks"
    assert "no task in common" in warn_of_different_tasks(result)
    note = next(section.note for section in build_sections(result) if section.id == "success")
    assert note.startswith(warn_of_different_tasks(result))
    same = compared(run("c", "a", won=False), run("d", "a", won=True))
    assert (same["rows"][0]["common_tasks"], warn_of_different_tasks(same)) == (1, "")
    assert cells(same, "success")[0][-1] == "B is better"


def test_the_newest_are_compared_where_they_differ(tmp_path):
    first = fill_run(tmp_path / "a", *episodes([True]), *episodes([True], iteration=1))
    second = fill_run(tmp_path / "b", *episodes([False]), *episodes([True], iteration=3))
    result = rows(compared(first, second))
    assert list(result) == [("test", 0, 0), ("test", 1, 1), ("test", 3, 3), ("test", 1, 3)]
    assert (result["test", 1, 3]["method"], result["test", 1, 1]["method"]) == ("paired", None)


def test_failures_are_shares_of_all_episodes(tmp_path):
    first = fill_run(
        tmp_path / "a", *(did(n, "a", solved=True, outcome=CRASHED) for n in range(9)), *episodes([True], offset=9)
    )
    second = fill_run(tmp_path / "b", *episodes([True] * 10))
    result = compared(first, second)
    assert result["failures"]["browser_crashed"]["difference"] == -0.9
    assert cells(result, "failures")[0][:4] == ("browser_crashed", "9", "0", "-90 pp")
    assert cells(result, "failures")[0][-1] == "differs"
    assert cells(compared(first, fill_run(tmp_path / "c")), "failures")[0][-2:] == ("-", "-")


def test_settings_that_differ_are_told(tmp_path):
    first = fill_run(tmp_path / "a")
    second = RunDir(tmp_path / "b")
    create_or_open(second, load(overrides=["seed=7", 'train.extra={"x": 1}']))
    result = compared(first, second)
    assert result["settings"] == {
        "seed": {"first": 0, "second": 7}, "train.extra": {"first": {}, "second": {"x": 1}}
    }  # fmt: skip
    assert (result["rows"], result["failures"]) == ([], {})


def test_a_run_is_as_good_as_itself(tmp_path):
    run = fill_run(tmp_path / "a", *episodes([True, False]))
    result = compared(run, run)
    assert (result["rows"][0]["p_value"], result["rows"][0]["significant"], result["settings"]) == (1, False, {})


def test_the_environment_of_today_is_no_setting_of_a_run(tmp_path, monkeypatch):
    first, second = fill_run(tmp_path / "a"), RunDir(tmp_path / "b")
    create_or_open(second, load(overrides=["seed=7"]))
    monkeypatch.setenv("WEBGYM_SEED", "9")
    assert compared(first, second)["settings"] == {"seed": {"first": 0, "second": 7}}
