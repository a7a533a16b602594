"""What the index counts for a report, against numbers made by hand."""

from tests.inspect.buffers import fill_run
from tests.records.builders import CRASHED, SOLVED, trajectory
from tests.records.test_judgement import ANSWERED, SCORED, WEB, judgement
from tests.report.runs import did, facts
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.series import name_served
from webgym_cli.records.statistics import wilson
from webgym_cli.records.task import Split, Task
from webgym_cli.records.trajectory import Outcome
from webgym_cli.report.facts import find_newest_test
from webgym_cli.report.views import build_sections
from webgym_cli.rollout.summary import summarize_rewards
from webgym_cli.store.buffer import append_judgement

HARD = Task(id="hard", start_url="http://hard.test/", difficulty=9)


def whole(rows):
    return {(row["series"], row["iteration"]): row for row in rows["points"] if row["band"] is None}


def test_a_server_is_not_the_runs_policy(tmp_path):
    """An untrained model must not show as good as the server that was tried in its run."""
    served = name_served("policy", "http://host:1/v1")
    own = [did(n, "a", solved=False) for n in range(4)]
    other = [did(n, "a", solved=True, policy=served).model_copy(update={"id": f"x{n}"}) for n in range(4)]
    later = [did(n, "a", solved=n > 1, iteration=1) for n in range(4)]
    trained = [did(n, "a", solved=True, policy=served, iteration=3, split=Split.TRAIN) for n in range(4)]
    result = facts(fill_run(tmp_path / "run", *own, *other, *later, *trained))
    rates = {key: point["success_rate"] for key, point in whole(result).items()}
    assert list(rates) == [("test", 0), ("test", 1), (f"test of {served}", 0), (f"train of {served}", 3)]
    assert list(rates.values()) == [0.0, 0.5, 1.0, 1.0]
    chances = {key: of["k"]["1"]["rate"] for key, of in result["pass_at_k"].items()}
    theirs = {f"test of {served} 0": 1.0, f"train of {served} 3": 1.0}
    assert chances == {"test 0": 0.0, "test 1": 0.5, **theirs}
    figures = [figure for section in build_sections(result) for figure in section.figures]
    assert {"pass@k, test", f"pass@k, test of {served}"} <= {figure.title for figure in figures}
    assert find_newest_test(result["points"])["success_rate"] == 0.5
    assert {point["key"] for point in result["means"]} == {key for key, _ in rates}
    (figure,) = [one for one in figures if one.title == "Success by split"]
    assert figure.legend == ("test", f"test of {served}", f"train of {served}")
    # an evaluation of a server has no other series; a teacher's training episodes are no result
    alone = facts(fill_run(tmp_path / "alone", *other, *trained))["points"]
    assert find_newest_test(alone)["series"] == f"test of {served}"
    assert find_newest_test(facts(fill_run(tmp_path / "teacher", *trained))["points"]) is None


# Results by task, of three repeats: solved, unsolved, failed.
REPEATS = {"a": "SSS", "b": "SU-", "c": "--S", "d": "UUU", "e": "---", "f": "S-U"}


def test_repeats_of_a_test_task_count_once_as_in_an_evaluation_s_record(tmp_path):
    def play(split):
        for task, results in REPEATS.items():
            for repeat, result in enumerate(results):
                changes = {"id": f"{split}-{task}{repeat}", "split": split}
                changes |= {"outcome": CRASHED} if result == "-" else {}
                yield did(1, task, solved=result == "S").model_copy(update=changes)

    result = facts(fill_run(tmp_path / "run", *play(Split.TEST), *play(Split.TRAIN)))
    test, train = (whole(result)[split, 0] for split in ("test", "train"))
    # (1 + 1/2 + 1 + 0 + 1/2) / 5, of five trials
    assert (test["success_rate"], test["interval"]) == (0.6, [round(bound, 4) for bound in wilson(3, 5)])
    for split, point in ((Split.TEST, test), (Split.TRAIN, train)):  # what `status` and the trackers show is the same
        summary = summarize_rewards(list(play(split)))
        names = ("success_rate", "interval", "solved_cases", "scored_cases")
        assert [summary[name] for name in names] == [point[name] for name in names]
    assert (test["scored"], test["successes"]) == (train["scored"], train["successes"]) == (11, 6)
    assert (test["solved_cases"], test["scored_cases"]) == (3.0, 5)
    assert (train["solved_cases"], train["scored_cases"]) == (6.0, 11)
    figure = build_sections(result)[0].figures[0]
    assert [row[-1] for row in figure.rows] == ["3 of 5 solved", "6 of 11 solved"]
    assert (train["success_rate"], train["interval"]) == (0.5455, [round(bound, 4) for bound in wilson(6, 11)])
    assert result["pass_at_k"]["test 0"]["k"] == {"1": {"rate": 0.6, "tasks": 5}, "2": {"rate": 0.75, "tasks": 4}}


def test_a_rate_of_repeats_is_rounded_once(tmp_path):
    solved = {(task, repeat) for task in range(6) for repeat in range(3) if task < 2 or not repeat}
    played = (
        did(1, str(task), solved=(task, repeat) in solved).model_copy(update={"id": f"{task}-{repeat}"})
        for task in range(6)
        for repeat in range(3)
    )
    assert whole(facts(fill_run(tmp_path / "run", *played)))["test", 0]["success_rate"] == 0.5556  # 3 1/3 of 6


def test_points_are_of_series_iteration_and_band(tmp_path):
    run = fill_run(
        tmp_path / "run",
        did(0, "a", solved=True, steps=1),
        did(1, "a", solved=False, steps=4),
        did(2, "a", solved=None, steps=4),
        did(3, "hard", solved=True, task=HARD, steps=3),
        did(4, "a", solved=False, outcome=CRASHED, steps=9),
        did(0, "a", solved=False, iteration=1),
        did(5, "a", solved=True, iteration=1, split=Split.TRAIN),
        trajectory(0, outcome=SOLVED),  # by the expert
    )
    result = facts(run)
    first = whole(result)["test", 0]
    assert (first["trajectories"], first["scored"], first["successes"], first["failures"]) == (5, 3, 2, 1)
    low, high = wilson(2, 3)
    assert (first["success_rate"], first["interval"]) == (0.6667, [round(low, 4), round(high, 4)])
    assert (first["mean_steps"], first["mean_steps_solved"]) == (3.0, 2.0)  # the crash's nine steps say nothing
    assert list(whole(result)) == [("test", 0), ("test", 1), ("train", 1), ("demonstrations", 0)]
    # a series has one colour in all charts only if all list them in this order
    assert list(dict.fromkeys(point["key"] for point in result["means"])) == ["test", "train", "demonstrations"]
    bands = {row["band"]: (row["successes"], row["scored"]) for row in result["points"] if row["iteration"] == 0}
    assert [row["band"] for row in result["points"][:3]] == [None, "easy", "hard"]
    assert bands["hard"] == (1, 1)
    assert "1" not in result["pass_at_k"].get("train 0", {}).get("k", {})  # an expert's success is no policy's chance


def test_nothing_scored_has_no_rate(tmp_path):
    result = whole(facts(fill_run(tmp_path / "run", did(0, "a", solved=None))))["test", 0]
    assert (result["scored"], result["success_rate"], result["interval"]) == (0, None, None)


def test_failures_are_counted_by_kind(tmp_path):
    timeout = Outcome(failure=FailureKind.PAGE_TIMEOUT)
    episodes = [did(n, "a", solved=False, outcome=CRASHED if n else timeout) for n in range(3)]
    failures = facts(fill_run(tmp_path / "run", *episodes, did(200, "a", solved=True)))["failures"]
    assert failures["by_kind"] == {"browser_crashed": 2, "page_timeout": 1}
    assert failures["stops"] == {"terminated": {"count": 1, "successes": 1}}


def test_verdicts_are_held_against_the_environment_and_a_later_failure_of_the_judge_changes_none(tmp_path):
    """Of three judged episodes the environment has an opinion of the second."""
    episodes = [trajectory(n, outcome=SCORED if n == 1 else ANSWERED, task=WEB) for n in range(3)]
    run = fill_run(tmp_path / "run", *episodes)
    for episode, success in zip(episodes, (True, True, False), strict=True):
        append_judgement(run, Split.TRAIN, 0, judgement(trajectory=episode.id, success=success))
    (row,) = facts(run)["verdicts"]
    assert (row["split"], row["iteration"], row["judged"]) == ("train", 0, 3)
    assert (row["both"], row["same"], row["same_rate"]) == (1, 0, 0.0)
    later = {"failure": FailureKind.JUDGE_FAILED, "judged_at": "2026-01-03T00:00:00.000+00:00"}
    append_judgement(run, Split.TRAIN, 0, judgement(trajectory="train-0000-00002", **later))
    (row,) = facts(run)["verdicts"]
    assert row["judged"] == 3
