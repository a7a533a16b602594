import json
import math

import pytest

from tests.records.made import CRASHED, trajectory
from webgym_cli.errors import StoreError, UsageError
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.task import Split, Task
from webgym_cli.records.trajectory import Outcome
from webgym_cli.rollout.plan import SEEDS, draw, plan_rollout, read_plan
from webgym_cli.rollout.tasks import load_tasks
from webgym_cli.store.buffer import append

TASKS = [Task(id=f"t{number}", difficulty=number + 1) for number in range(7)]
CANCELLED = Outcome(failure=FailureKind.CANCELLED)


def attempt(number, outcome, attempts=0):
    name = f"train-0000-{number:05d}"
    return trajectory(number, outcome=outcome, attempt=attempts, id=f"{name}.{attempts}", episode=name)


def test_the_seed_decides_the_plan(world):
    first = draw(TASKS, world.settings, Split.TRAIN, 0, 50)
    assert first == draw(TASKS, world.settings, Split.TRAIN, 0, 50)
    assert first != draw(TASKS, world.load("seed=1"), Split.TRAIN, 0, 50)
    assert first != draw(TASKS, world.settings, Split.TRAIN, 1, 50)


@pytest.mark.parametrize("split", Split)
@pytest.mark.parametrize("count", [0, 1, 6, 7, 8, 29])
def test_a_longer_plan_begins_with_the_shorter(world, split, count):
    assert draw(TASKS, world.settings, split, 0, 30)[:count] == draw(TASKS, world.settings, split, 0, count)


def test_every_task_comes_once_before_any_comes_again(world):
    drawn = [episode.task.id for episode in draw(TASKS, world.settings, Split.TRAIN, 0, 21)]
    rounds = [drawn[start : start + 7] for start in (0, 7, 14)]
    assert [sorted(part) for part in rounds] == [sorted(task.id for task in TASKS)] * 3
    assert rounds[0] != rounds[1]


def test_no_test_page_is_ever_trained_on(world):
    train = {episode.seed for number in range(3) for episode in draw(TASKS, world.settings, Split.TRAIN, number, 200)}
    test = {episode.seed for episode in draw(TASKS, world.settings, Split.TEST, 0, 200)}
    assert max(train) < SEEDS <= min(test)
    assert len(train) == 600


def test_every_evaluation_runs_the_same_episodes(world):
    plans = [draw(TASKS, world.settings, Split.TEST, number, 20) for number in range(3)]
    same = [[(episode.task, episode.seed, episode.max_steps) for episode in plan] for plan in plans]
    assert same[0] == same[1] == same[2]
    assert plans[1][0].id == "test-0001-00000"


def test_the_band_sets_the_step_limit(world):
    settings = world.load('rollout.train_max_steps={"easy": 1}', "rollout.test_max_steps.hard=9")
    limits = {episode.task.difficulty: episode.max_steps for episode in draw(TASKS, settings, Split.TRAIN, 0, 7)}
    assert limits == {1: 1, 2: 1, 3: 1, 4: 20, 5: 20, 6: 20, 7: 30}
    limits = {episode.task.difficulty: episode.max_steps for episode in draw(TASKS, settings, Split.TEST, 0, 7)}
    assert limits == {1: 30, 2: 30, 3: 30, 4: 50, 5: 50, 6: 50, 7: 9}


def test_owed_is_planned_less_done(world):
    world.plan(6)
    for number in (1, 4):
        append(world.run, attempt(number, Outcome(reward=0.0)))
    plan = world.plan(6)
    assert [owed.episode.id[-1] for owed in plan.owed] == ["0", "2", "3", "5"]
    assert (plan.done, plan.given_up) == (2, 0)
    assert plan.to_json()["owed"] == 4


def test_failed_attempts_count_and_cancelled_ones_do_not(world):
    for number, outcomes in enumerate([[CRASHED], [CANCELLED], [CRASHED, CANCELLED, CRASHED], [CRASHED] * 3]):
        for attempts, outcome in enumerate(outcomes):
            append(world.run, attempt(number, outcome, attempts))
    plan = world.plan(4)
    assert [(owed.episode.id[-1], owed.attempt, owed.failures) for owed in plan.owed] == [
        ("0", 1, 1),
        ("1", 1, 0),
        ("2", 3, 2),
    ]
    assert (plan.done, plan.given_up) == (0, 1)


def test_more_attempts_take_up_what_was_given_up(world):
    for attempts in range(3):
        append(world.run, attempt(0, CRASHED, attempts))
    assert world.plan(1).given_up == 1
    world.load("rollout.max_attempts=4")
    assert [(owed.attempt, owed.failures) for owed in world.plan(1).owed] == [(3, 3)]


def test_a_damaged_line_is_named_and_owed_again(world):
    append(world.run, attempt(0, Outcome(reward=1.0)))
    append(world.run, attempt(1, Outcome(reward=1.0)))
    part = world.run.part(Split.TRAIN, 0)
    lines = part.read_text().splitlines()
    part.write_text(f"{lines[0][:-20]}\n{lines[1]}\n")
    plan = world.plan(2)
    assert [owed.episode.id for owed in plan.owed] == ["train-0000-00000"]
    assert [line.split(": ")[0] for line in plan.damaged] == [f"{part}:1"]


def test_the_plan_is_kept_and_extended(world):
    few, many = world.plan(3), world.plan(8)
    assert many.episodes[:3] == few.episodes
    assert read_plan(world.run, Split.TRAIN, 0) == many.episodes
    assert world.plan(3).episodes == many.episodes


def test_a_plan_writes_nothing_by_itself(world):
    plan_rollout(world.run, world.settings, Split.TRAIN, 0, 3)
    assert not world.run.root.exists()


def test_a_kept_plan_needs_no_task_file_until_it_grows(world):
    world.plan(3)
    world.file.unlink()
    assert len(world.plan(3).episodes) == 3
    with pytest.raises(UsageError):
        world.plan(4)


def test_a_changed_task_file_is_refused_when_the_plan_grows(world):
    world.plan(3)
    world.file.write_text(json.dumps({"id": "other", "environment": "web"}) + "\n")
    with pytest.raises(StoreError, match="don't follow from the tasks") as caught:
        world.plan(4)
    assert caught.value.hint


def test_a_plan_of_another_version_is_named(world):
    path = world.run.plan(Split.TRAIN, 0)
    path.parent.mkdir(parents=True)
    path.write_text('{"id": "x"}\n')
    with pytest.raises(StoreError, match=str(path)):
        world.plan(1)


# --- tasks


def test_a_task_file_keeps_what_we_do_not_know(tmp_path):
    file = tmp_path / "t.jsonl"
    file.write_text(
        '{"id": "a", "environment": "web", "site": "x", "extra": {"y": 1}}\n\n'
        '{"id": "click-test", "start_url": "click-test.html", "difficulty": 5}\n'
    )
    assert load_tasks(str(file)) == [
        Task(id="a", environment="web", extra={"site": "x", "y": 1}),
        Task(id="click-test", start_url="click-test.html", difficulty=5),
    ]


def test_a_line_separator_within_a_text_is_text(tmp_path):
    file = tmp_path / "t.jsonl"
    file.write_text(
        '{"id": "a", "environment": "web", "instruction": "x\u2028y\x85z"}\r\n{"id": "b", "environment": "web"}\n'
    )
    assert [task.instruction for task in load_tasks(str(file))] == ["x\u2028y\x85z", ""]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not JSON"),
        ("5", "a task must be a JSON object"),
        ("[]", "a task must be a JSON object"),
        ("{}", "id: Field required"),
        ('{"id": ""}', "id: "),
        ('{"id": 5}', "id: "),
        ('{"id": "a", "difficulty": 0}', "difficulty: "),
        ('{"id": "a", "environment": "mars"}', "environment: "),
        ('{"id": "a", "extra": 5}', "extra: "),
        ('{"id": "a", "rubric": "x"}', "rubric: "),
        ("[" * 100_000, "not JSON"),
    ],
    ids=lambda value: value[:30],
)
def test_a_bad_task_names_file_and_line(tmp_path, line, reason):
    file = tmp_path / "t.jsonl"
    file.write_text(f'{{"id": "a", "environment": "web"}}\n\n{line}\n')
    with pytest.raises(UsageError) as caught:
        load_tasks(str(file))
    assert str(caught.value).startswith(f"{file}:3: {reason}")
    assert caught.value.hint == f"mend line 3 of {file}"


def test_a_task_file_that_is_empty_or_missing_or_binary_is_told(tmp_path):
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name in ("empty", "missing", "binary"):
        with pytest.raises(UsageError, match=name) as caught:
            load_tasks(str(tmp_path / name))
        assert caught.value.hint


def test_miniwob_pages_are_tasks():
    assert load_tasks("miniwob:click-test, click-dialog") == [
        Task(id="click-test", start_url="click-test.html"),
        Task(id="click-dialog", start_url="click-dialog.html"),
    ]
    assert len(load_tasks("miniwob:all")) > 50


@pytest.mark.parametrize("source", ["miniwob:", "miniwob:nosuch", "miniwob:click-test,nosuch"])
def test_unknown_pages_are_refused(source):
    with pytest.raises(UsageError):
        load_tasks(source)


def test_seeds_fit_into_their_range(world):
    assert all(0 <= episode.seed < 2 * SEEDS for episode in draw(TASKS, world.settings, Split.TEST, 0, 50))
    assert math.log2(SEEDS) == 30
