"""Two iterations side by side, by hand."""

from contextlib import ExitStack

import pytest

from tests.inspect.buffers import attempt, fill_run
from tests.records.builders import CRASHED
from webgym_cli.compare.paired import ComparedVersion, compare_versions
from webgym_cli.records.task import Split
from webgym_cli.store.index.query import open_index


def compared(first, second, split=Split.TEST, iterations=(0, 1)):
    with ExitStack() as stack:
        sides = [
            ComparedVersion(run, stack.enter_context(open_index(run)), iteration)
            for run, iteration in zip((first, second), iterations, strict=True)
        ]
        return compare_versions(*sides, split)


def test_episodes_of_the_same_task_and_seed_are_paired(tmp_path):
    before = [("a", True), ("a", False), ("b", False), ("b", False), ("c", True), ("c", None), ("d", True)]
    after = [("a", True), ("a", True), ("b", True), ("b", False), ("c", False), ("c", True)]
    run = fill_run(
        tmp_path / "run",
        *(attempt(number, *of) for number, of in enumerate(before)),
        *(attempt(number, *of, iteration=1, steps=4) for number, of in enumerate(after)),
    )
    rows = compared(run, run)
    assert (rows["unit"], rows["pairs"], rows["unscored"]) == ("episode", 5, 1)
    assert rows["counts"] == {"gained": 2, "lost": 1, "kept": 1, "failed": 1}
    assert rows["p_value"] == 1.0  # 2 * (1 + 3) / 8
    assert (rows["first"]["success_rate"], rows["second"]["success_rate"]) == (0.4, 0.6)
    assert (rows["first"]["mean_steps"], rows["second"]["mean_steps"]) == (2, 4)
    assert (rows["first"]["only_here"], rows["second"]["only_here"]) == (1, 0)
    assert [(pair["task"], pair["seed"], pair["first"], pair["second"]) for pair in rows["gained"]] == [
        ("a", 1, "test-0000-00001", "test-0001-00001"),
        ("b", 2, "test-0000-00002", "test-0001-00002"),
    ]
    assert list(rows["by_task"]) == ["a", "b", "c"]  # all changed by one
    assert rows["by_task"]["c"] == {"pairs": 1, "gained": 0, "lost": 1, "kept": 0, "failed": 0}


def test_without_shared_seeds_tasks_are_paired(tmp_path):
    run = fill_run(
        tmp_path / "run",
        *(attempt(n, "a", solved=n == 0) for n in range(3)),  # 1 of 3: not solved
        attempt(3, "b", solved=True),
        *(attempt(10 + n, "a", solved=n == 0, iteration=1) for n in range(2)),  # 1 of 2: solved
        attempt(13, "b", solved=True, iteration=1),
    )
    rows = compared(run, run)
    assert (rows["unit"], rows["pairs"]) == ("task", 2)
    assert rows["counts"] == {"gained": 1, "lost": 0, "kept": 1, "failed": 0}
    assert rows["first"]["success_rate"] == pytest.approx(2 / 3, abs=1e-4)  # the mean of 1/3 and 1
    # of attempts that began at the same time, the last by id stands for the task
    newest = {"first": "test-0000-00002", "second": "test-0001-00011"}
    assert rows["gained"] == [{"task": "a", "site": "a.test", **newest}]


@pytest.mark.parametrize("policy", ["policy at http://host:1/v1", "oracle"])
def test_failed_attempts_other_servers_and_experts_change_neither_steps_nor_rates(tmp_path, policy):
    served, own = {"policy": policy}, {"policy": "base"}
    crashed = attempt(0, "t", solved=None, outcome=CRASHED, steps=9, **own)
    again = attempt(0, "t", solved=True, steps=3, **own).model_copy(update={"id": "test-0000-00000.1", "attempt": 1})
    other = attempt(0, "t", solved=False, steps=7, **served).model_copy(update={"id": "x"})
    run = fill_run(tmp_path / "a", crashed, again, other)
    first = compared(run, fill_run(tmp_path / "b", attempt(0, "t", solved=False, steps=2)), iterations=(0, 0))["first"]
    assert (first["success_rate"], first["mean_steps"]) == (1.0, 3.0)
    only = fill_run(tmp_path / "c", attempt(0, "t", solved=True, steps=7, **served))
    assert compared(run, only, iterations=(0, 0))["second"]["mean_steps"] == 7.0
