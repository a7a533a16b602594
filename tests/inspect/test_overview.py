"""What the overview counts, by hand."""

import pytest

from tests.inspect.buffers import attempt, fill_run, seen
from tests.records.builders import CRASHED, UNSOLVED, trajectory
from webgym_cli.cli.commands.inspect_tables import show_overview
from webgym_cli.cli.output import Output
from webgym_cli.inspect.overview import list_ids
from webgym_cli.records.failure import FailureKind, Stop
from webgym_cli.records.task import DifficultyBand, Split, Task
from webgym_cli.records.trajectory import Outcome
from webgym_cli.store.buffer import append
from webgym_cli.store.index.query import open_index
from webgym_cli.store.index.selection import TrajectoryQuery

HARD = Task(id="hard", environment="web", difficulty=7, start_url="https://news.example.co.uk/x")


@pytest.fixture
def run(tmp_path):
    return fill_run(
        tmp_path / "run",
        trajectory(0, steps=1),
        trajectory(1, steps=3, outcome=UNSOLVED),
        trajectory(2, outcome=CRASHED, steps=0),
        trajectory(3, outcome=Outcome(stop=Stop.ANSWERED), task=HARD),
        trajectory(4, iteration=1, task=HARD, policy="model", started_at="2026-01-03T03:04:05.000+00:00"),
        trajectory(0, split=Split.TEST, iteration=1, task=HARD),
    )


def counted(table):
    return {key: (group["trajectories"], group["scored"], group["successes"]) for key, group in table.items()}


def test_the_totals(run):
    shown = seen(run)
    assert (shown["run"], shown["policy_version"]) == (str(run.root), 0)
    assert (shown["trajectories"], shown["scored"], shown["successes"], shown["success_rate"]) == (6, 4, 3, 0.75)
    assert shown["interval"] == [0.3006, 0.9544]  # Wilson, 3 of 4
    assert shown["mean_steps"] == 2.0  # 1 + 3 + 2 + 2 + 2 = 10 of 5; one crashed
    assert shown["failures"] == {"browser_crashed": 1}
    assert shown["success_by_iteration"] == {"0": 0.5, "1": 1.0}
    assert (shown["oldest"], shown["newest"]) == ("2026-01-02T03:04:05.000+00:00", "2026-01-03T03:04:05.000+00:00")
    assert shown["age_hours"][0] - shown["age_hours"][1] == pytest.approx(24, abs=0.02)
    assert shown["damaged_lines"] == []


def test_the_tables(run):
    shown = seen(run)
    assert list(shown["by_iteration"]) == ["train 0", "train 1", "test 1"]
    assert counted(shown["by_iteration"])["train 0"] == (4, 2, 1)
    assert counted(shown["by_task"]) == {"click-test": (3, 2, 1), "hard": (3, 2, 2)}
    assert counted(shown["by_difficulty"]) == {"easy": (3, 2, 1), "hard": (3, 2, 2)}
    assert counted(shown["by_site"]) == {"miniwob": (3, 2, 1), "example.co.uk": (3, 2, 2)}
    assert counted(shown["by_environment"]) == {"miniwob": (3, 2, 1), "web": (3, 2, 2)}
    assert counted(shown["by_policy"]) == {"oracle": (5, 3, 2), "model": (1, 1, 1)}
    assert shown["by_task"]["hard"]["success_by_iteration"] == {"0": None, "1": 1.0}
    assert shown["by_task"]["click-test"]["failures"] == {"browser_crashed": 1}


@pytest.mark.parametrize("other", ["policy at http://host:1/v1", "oracle"])
def test_other_servers_and_experts_are_apart_and_failed_attempts_have_no_mean(tmp_path, other):
    run = fill_run(
        tmp_path / "run",
        attempt(0, "a", solved=False, steps=2, policy="base"),
        attempt(1, "a", solved=None, outcome=CRASHED, steps=10, policy="base"),
        attempt(2, "a", solved=True, steps=4, policy=other),
        attempt(3, "b", solved=None, outcome=CRASHED, steps=1, policy="base"),
    )
    overview = seen(run)
    assert overview["mean_steps"] == 3.0
    assert {key: of["mean_steps"] for key, of in overview["by_task"].items()} == {"a": 3.0, "b": None}
    theirs = f"test of {other} 0"
    assert {key: of["success_rate"] for key, of in overview["by_iteration"].items()} == {"test 0": 0.0, theirs: 1.0}
    assert {key: of["mean_reward"] for key, of in overview["means"].items()} == {"test 0": 0.0, theirs: 1.0}
    assert {key: of["k"]["1"]["rate"] for key, of in overview["pass_at_k"].items()} == {"test 0": 0.0, theirs: 1.0}


def test_an_early_stop_s_bias_is_one_sentence(tmp_path, capsys):
    cut = Outcome(failure=FailureKind.CANCELLED, failure_detail="the rollout ended early")
    cuts = [trajectory(1 + n, steps=7 + n, outcome=cut) for n in range(2)]
    run = fill_run(tmp_path / "run", trajectory(0, steps=2), *cuts)
    show_overview(Output(), seen(run) | {"prepare": None})
    sentence = " ".join(capsys.readouterr().err.split())
    assert "2 cancelled after 7.5 steps on average; those that finished took 2:" in sentence
    assert seen(fill_run(tmp_path / "whole", trajectory(0)))["cut_mean_steps"] is None


def test_only_the_largest_groups_and_the_newest_iterations(tmp_path):
    run = fill_run(tmp_path / "run", *(attempt(n, f"t{n % 3}", solved=True, iteration=n) for n in range(4)))
    shown = seen(run, top=2)
    assert list(shown["by_task"]) == ["t0", "t1"]  # t0 twice; t1 and t2 once
    assert list(shown["by_iteration"]) == ["test 2", "test 3"]
    assert (shown["groups"]["by_task"], shown["groups"]["by_iteration"]) == (3, 4)
    assert shown["trajectories"] == 4


def test_an_empty_buffer(tmp_path):
    shown = seen(fill_run(tmp_path / "run"))
    assert (shown["trajectories"], shown["success_rate"]) == (0, None)
    assert (shown["interval"], shown["mean_steps"]) == (None, None)
    assert (shown["by_task"], shown["pass_at_k"], shown["age_hours"], shown["damaged_lines"]) == ({}, {}, None, [])


def test_damaged_lines_are_named_where_they_are_asked_for(run):
    part = run.part(Split.TRAIN, 1)
    before = part.stat().st_size
    with part.open("a") as file:
        file.write('{"no": "trajectory"}\n')
    append(run, trajectory(9, iteration=1))
    (line,) = seen(run)["damaged_lines"]
    assert line.startswith(f"{part}: the line at byte {before} is damaged: ")
    assert seen(run, TrajectoryQuery(iteration=1))["trajectories"] == 3
    assert seen(run, TrajectoryQuery(iteration=0))["damaged_lines"] == []


@pytest.mark.parametrize(
    ("query", "chosen"),
    [
        (TrajectoryQuery(), ["train-0000-00000", "train-0000-00001", "train-0000-00002", "train-0000-00003",
                   "train-0001-00004", "test-0001-00000"]),
        (TrajectoryQuery(split=Split.TEST), ["test-0001-00000"]),
        (TrajectoryQuery(iteration=1), ["train-0001-00004", "test-0001-00000"]),
        (TrajectoryQuery(task="hard", split=Split.TRAIN), ["train-0000-00003", "train-0001-00004"]),
        (TrajectoryQuery(task="x' OR true --"), []),
        (TrajectoryQuery(reward=1.0, iteration=0), ["train-0000-00000"]),
        (TrajectoryQuery(reward=0.0), ["train-0000-00001"]),
        (TrajectoryQuery(failure="any"), ["train-0000-00002"]),
        (TrajectoryQuery(failure="browser_crashed"), ["train-0000-00002"]),
        (TrajectoryQuery(failure="page_timeout"), []),
        (TrajectoryQuery(site="example.co.uk", band=DifficultyBand.HARD, iteration=0), ["train-0000-00003"]),
        (TrajectoryQuery(band=DifficultyBand.MEDIUM), []),
        (TrajectoryQuery(split=Split.TRAIN, expression="steps > 2 OR site = 'x'"), ["train-0000-00001"]),
    ],
    ids=str,
)  # fmt: skip
def test_queries_choose(run, query, chosen):
    with open_index(run) as index:
        assert list(list_ids(index, query)) == chosen


def test_pass_at_k_over_tasks_by_hand(tmp_path):
    outcomes = {"a": (True, False, False, False), "b": (True, False), "c": (False, None)}
    attempts = [(task, solved) for task, list_ in outcomes.items() for solved in list_]
    train = (attempt(number, *of, split=Split.TRAIN) for number, of in enumerate(attempts))
    test = (attempt(number, *of) for number, of in enumerate(attempts))  # a seed each: seven cases with one attempt
    pass_at_k = seen(fill_run(tmp_path / "run", *train, *test))["pass_at_k"]
    # pass@1: (1/4 + 1/2 + 0) / 3. pass@2: a 1 - C(3,2)/C(4,2) = 1/2, b 1; c has one scored attempt.
    # pass@4: only a, less than half of the tasks.
    assert pass_at_k == {
        "train 0": {"tasks": 3, "k": {"1": {"rate": 0.25, "tasks": 3}, "2": {"rate": 0.75, "tasks": 2}}},
        "test 0": {"tasks": 7, "k": {"1": {"rate": 0.2857, "tasks": 7}}},
    }


def test_pass_at_k_tells_splits_iterations_and_tasks_of_one_id_apart(tmp_path):
    run = fill_run(
        tmp_path / "run",
        attempt(0, "a", solved=True),
        attempt(1, "a", solved=True, task_text="something else"),
        attempt(2, "a", solved=False, iteration=1),
        attempt(3, "a", solved=True, split=Split.TRAIN),
        attempt(4, "z", solved=None),
    )
    shown = {key: (group["tasks"], group["k"]["1"]["rate"]) for key, group in seen(run)["pass_at_k"].items()}
    assert list(shown.items()) == [("train 0", (1, 1.0)), ("test 0", (2, 1.0)), ("test 1", (1, 0.0))]
