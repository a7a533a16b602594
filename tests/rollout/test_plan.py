import json
import random
from collections import Counter

import pytest

from tests.records.builders import CRASHED, trajectory
from tests.rollout.conftest import task_fields
from webgym_cli.errors import StoreError, UsageError
from webgym_cli.records.failure import FailureKind, Stop
from webgym_cli.records.task import DifficultyBand, Episode, Split, Task
from webgym_cli.records.trajectory import Outcome
from webgym_cli.rollout.draw import EpisodeSampler
from webgym_cli.rollout.plan import plan_rollout, write_plan
from webgym_cli.store.buffer import append, read_plan
from webgym_cli.tasks.draw import SEEDS
from webgym_cli.tasks.source import index_tasks, open_tasks

CANCELLED = Outcome(failure=FailureKind.CANCELLED)
BLOCKED = Outcome(failure=FailureKind.SITE_BLOCKED)
FAILED = Outcome(failure=FailureKind.PAGE_TIMEOUT)
UNUSABLE = Outcome(failure=FailureKind.START_PAGE_FAILED)
UNJUDGEABLE = Outcome(failure=FailureKind.JUDGE_FAILED)
ANSWERED = Outcome(stop=Stop.ANSWERED, answer="42")
RATIO = ('tasks.difficulty_ratio={"easy": 2, "medium": 5, "hard": 3}', "tasks.sampler=ratio")


@pytest.fixture
def tasks(tmp_path):
    """Seven tasks, t0 to t6, of difficulties 1 to 7."""
    file = tmp_path / "seven.jsonl"
    file.write_text("".join(line(number, number + 1) for number in range(7)))
    return open_tasks(str(file))


def line(number, difficulty):
    return json.dumps({"id": f"t{number}", "difficulty": difficulty, **task_fields(number)}) + "\n"


def draw(tasks, settings, split, iteration, count):
    return EpisodeSampler.of(tasks, settings, split, iteration).further(count)


def attempt(number, outcome, attempts=0):
    name = f"train-0000-{number:05d}"
    return trajectory(number, outcome=outcome, attempt=attempts, id=f"{name}.{attempts}", episode=name)


def bands(plan, start=0):
    return Counter(str(episode.task.band) for episode in plan.episodes[start:])


@pytest.mark.parametrize(("split", "part"), [(Split.TRAIN, "train/3"), (Split.TEST, "test")])
def test_a_uniform_draw_is_each_task_once_in_random_order_and_a_seed_after_each(world, tasks, split, part):
    """Written out anew: the demo and older runs depend on just these numbers."""
    generator, expected = random.Random(f"5/{part}"), []
    while len(expected) < 21:
        for number in generator.sample(list(range(7)), 7):
            expected.append((f"t{number}", generator.randrange(2**30) + (2**30 if split is Split.TEST else 0)))
    drawn = draw(tasks, world.load("seed=5"), split, 3, 21)
    assert [(episode.task.id, episode.seed) for episode in drawn] == expected
    assert [episode.position for episode in drawn] == list(range(21))


def test_the_draw_of_the_shipped_demo_is_known(world):
    settings = world.load("seed=7", "tasks.train=miniwob:click-test,click-test-2,click-dialog")
    drawn = draw(open_tasks(settings.tasks.train), settings, Split.TRAIN, 0, 4)
    shown = [(episode.task.id, episode.seed) for episode in drawn]
    assert shown[:2] == [("click-dialog", 287053927), ("click-test", 896029971)]
    assert shown[2:] == [("click-test-2", 482735066), ("click-test-2", 276451577)]


@pytest.mark.parametrize("split", Split)
@pytest.mark.parametrize("count", [0, 1, 6, 7, 8, 29])
def test_a_longer_plan_begins_with_the_shorter(world, tasks, split, count):
    assert draw(tasks, world.settings, split, 0, 30)[:count] == draw(tasks, world.settings, split, 0, count)


def test_no_test_page_is_ever_trained_on(world, tasks):
    train = {episode.seed for number in range(3) for episode in draw(tasks, world.settings, Split.TRAIN, number, 200)}
    test = {episode.seed for episode in draw(tasks, world.settings, Split.TEST, 0, 200)}
    assert max(train) < SEEDS <= min(test)
    assert len(train) == 600


def test_every_evaluation_runs_the_same_episodes(world, tasks):
    plans = [draw(tasks, world.settings, Split.TEST, number, 20) for number in range(3)]
    same = [[(episode.task, episode.seed, episode.max_steps) for episode in plan] for plan in plans]
    assert same[0] == same[1] == same[2]
    assert plans[1][0].id == "test-0001-00000"


def test_the_band_sets_the_step_limit(world, tasks):
    settings = world.load('rollout.train_max_steps={"easy": 1}', "rollout.test_max_steps.hard=9")
    limits = {episode.task.difficulty: episode.max_steps for episode in draw(tasks, settings, Split.TRAIN, 0, 7)}
    assert limits == {1: 1, 2: 1, 3: 1, 4: 20, 5: 20, 6: 20, 7: 30}
    limits = {episode.task.difficulty: episode.max_steps for episode in draw(tasks, settings, Split.TEST, 0, 7)}
    assert limits == {1: 30, 2: 30, 3: 30, 4: 50, 5: 50, 6: 50, 7: 9}
    own = index_tasks("", [Task(id="a", instruction="x", difficulty=7, extra={"max_steps": 12})])
    assert [episode.max_steps for episode in draw(own, settings, Split.TEST, 0, 1)] == [12]


def test_owed_is_planned_less_done(world):
    world.plan(6)
    for number in (1, 4):
        append(world.run, attempt(number, Outcome(reward=0.0)))
    plan = world.plan(6)
    assert [owed.episode.id[-1] for owed in plan.owed] == ["0", "2", "3", "5"]
    assert (plan.done, plan.given_up) == (2, 0)
    assert plan.to_json()["owed"] == 4


def test_failed_attempts_count_and_cancelled_ones_do_not(world):
    kinds = [[FAILED], [CANCELLED], [FAILED, CANCELLED, FAILED], [FAILED] * 3, [CRASHED] * 5]
    kinds += [[BLOCKED], [CRASHED, BLOCKED]]  # a site that shut the browser out is not tried again
    for number, outcomes in enumerate(kinds):
        for attempts, outcome in enumerate(outcomes):
            append(world.run, attempt(number, outcome, attempts))
    plan = world.plan(7)
    owed = [(owed.episode.id[-1], owed.attempt, owed.failures) for owed in plan.owed]
    assert owed == [("0", 1, 1), ("1", 1, 0), ("2", 3, 2), ("4", 5, 0)]
    assert (plan.done, plan.given_up) == (0, 3)


@pytest.mark.parametrize(
    ("outcomes", "first", "more"),
    [([FAILED] * 3, 3, [(3, 3)]), ([FAILED, UNUSABLE], 2, []), ([BLOCKED], 1, []), ([FAILED] * 5, 5, [(5, 5)])],
    ids=str,
)
def test_what_is_given_up_is_tried_again_when_it_is_asked_for_or_more_attempts_are(world, outcomes, first, more):
    for attempts, outcome in enumerate(outcomes):
        append(world.run, attempt(0, outcome, attempts))
    append(world.run, attempt(1, FAILED))
    plan = world.plan(3)
    assert (len(plan.owed), plan.given_up) == (2, 1)
    assert "--again given-up" in plan.notes[-1] and plan.to_json()["notes"] == list(plan.notes)
    again = plan_rollout(world.run, world.settings, Split.TRAIN, 0, 3, again=True)
    assert [(owed.attempt, owed.failures) for owed in again.owed] == [(first, 0), (1, 1), (0, 0)]
    assert (again.given_up, again.notes) == (0, ())
    world.load(f"rollout.max_attempts={first + 1}")
    assert [(owed.attempt, owed.failures) for owed in world.plan(3).owed] == [*more, (1, 1), (0, 0)]


def test_a_damaged_line_is_named_and_owed_again(world):
    append(world.run, attempt(0, Outcome(reward=1.0)))
    append(world.run, attempt(1, Outcome(reward=1.0)))
    part = world.run.part(Split.TRAIN, 0)
    lines = part.read_text().splitlines()
    part.write_text(f"{lines[0][:-20]}\n{lines[1]}\n")
    plan = world.plan(2)
    assert [owed.episode.id for owed in plan.owed] == ["train-0000-00000"]
    assert [line.split(": ")[0] for line in plan.damaged] == [f"{part}:1"]


def test_the_plan_is_kept_and_extended_and_needs_no_task_file_until_it_grows(world):
    plan_rollout(world.run, world.settings, Split.TRAIN, 0, 3)
    assert not world.run.plan(Split.TRAIN, 0).exists()
    few, many = world.plan(3), world.plan(8)
    assert many.episodes[:3] == few.episodes
    assert read_plan(world.run, Split.TRAIN, 0) == many.episodes
    world.file.unlink()
    assert world.plan(3).episodes == many.episodes
    with pytest.raises(UsageError):
        world.plan(9)


@pytest.mark.parametrize("change", ["tasks", "step limit"])
def test_what_changed_is_refused_when_the_plan_grows(world, change):
    world.plan(3)
    if change == "tasks":
        world.file.write_text(line(9, 1))
    else:
        world.load("rollout.train_max_steps.easy=11")
    assert len(world.plan(3).episodes) == 3
    with pytest.raises(StoreError, match="don't follow from the tasks") as caught:
        world.plan(4)
    assert caught.value.hint
    assert bool(world.plan(1, iteration=1).notes) is (change == "tasks"), "another step limit is no other task"


def add_tasks(world):
    with world.file.open("a") as file:
        file.write(line(8, 1) + line(9, 1))


def tasks_of(plan):
    return Counter(episode.task.id for episode in plan.episodes)


@pytest.mark.parametrize("split", Split)
def test_tasks_may_be_added_between_iterations(world, split):
    for iteration in (0, 1):
        plan = world.plan(4, split, iteration)
        assert (len(tasks_of(plan)), plan.notes) == (4, ())
    add_tasks(world)
    plan = world.plan(6, split, 2)
    assert tasks_of(plan).keys() == {"t0", "t1", "t2", "t3", "t8", "t9"}
    (note,) = plan.notes
    assert "after iteration 1 was planned; it has 6 now" in note
    assert ("evaluations" in note) == (split is Split.TEST)
    assert world.plan(6, split, 2).notes == world.plan(6, split, 3).notes == (), "the note is made once"
    with pytest.raises(StoreError, match="don't follow"):
        world.plan(5, split, 1)


def test_without_repeats_added_tasks_start_a_new_pass(world):
    world.load("tasks.no_repeats=true")
    seen = tasks_of(world.plan(1)) + tasks_of(world.plan(2, iteration=1))
    assert max(seen.values()) == 1
    add_tasks(world)
    plans = [world.plan(2, iteration=iteration) for iteration in (2, 3, 4)]
    assert [len(plan.notes) for plan in plans] == [1, 0, 0]
    assert sum(map(tasks_of, plans), Counter()) == Counter(["t0", "t1", "t2", "t3", "t8", "t9"])


def test_a_plan_of_another_version_is_named(world):
    path = world.run.plan(Split.TRAIN, 0)
    path.parent.mkdir(parents=True)
    path.write_text('{"id": "x"}\n')
    with pytest.raises(StoreError, match=str(path)):
        world.plan(1)


@pytest.mark.parametrize("change", [{"seed": 1}, {"position": 5}, {"position": 0}, {"id": "x"}], ids=str)
def test_an_episode_that_its_stream_does_not_have_is_refused(world, change):
    path = world.run.plan(Split.TRAIN, 0)
    world.plan(3)
    episodes = [Episode.model_validate_json(text) for text in path.read_text().splitlines()]
    episodes[1] = episodes[1].model_copy(update=change)
    path.write_text("".join(episode.model_dump_json() + "\n" for episode in episodes))
    with pytest.raises(StoreError, match="don't follow"):
        world.plan(4)


def test_what_waits_for_the_judge_is_rolled_out(world):
    append(world.run, attempt(0, UNJUDGEABLE))
    append(world.run, attempt(1, ANSWERED))
    append(world.run, attempt(2, Outcome(reward=0.0)))
    append(world.run, attempt(3, CRASHED))
    append(world.run, attempt(3, ANSWERED, 1))
    plan = world.plan(5)
    assert [owed.episode.id[-1] for owed in plan.owed] == ["4"]
    assert plan.unjudged == ("train-0000-00000.0", "train-0000-00001.0", "train-0000-00003.1")
    assert (plan.done, plan.given_up, plan.to_json()["unjudged"]) == (4, 0, 3)


def test_blocked_sites_are_not_drawn_and_leave_gaps_which_a_longer_plan_keeps(world):
    free = world.plan(8)
    world.run.plan(Split.TRAIN, 0).unlink()
    plan = plan_rollout(world.run, world.settings, Split.TRAIN, 0, 6, blocked=["site1.com"])
    expected = [episode for episode in free.episodes if episode.task.id != "t1"]
    same = [(episode.task, episode.seed, episode.position) for episode in plan.episodes]
    assert same == [(episode.task, episode.seed, episode.position) for episode in expected]
    write_plan(world.run, plan)
    assert plan.episodes[-1].position > 5
    assert (plan.blocked, len(plan.owed)) == (0, 6)
    longer = world.plan(9)
    assert longer.episodes[:6] == plan.episodes
    last = plan.episodes[-1].position
    assert [episode.position for episode in longer.episodes[6:]] == [last + 1, last + 2, last + 3]


def test_a_test_seed_keeps_the_evaluation_the_same_over_seeds(world, tasks):
    def drawn(split, *given):
        return draw(tasks, world.load(*given), split, 0, 9)

    fixed = "tasks.test_seed=5"
    one, two, five = (drawn(Split.TEST, seed, fixed) for seed in ("seed=1", "seed=2", "seed=5"))
    assert one == two == five == drawn(Split.TEST, "seed=5")
    zero = drawn(Split.TEST, "seed=1", "tasks.test_seed=0")
    assert zero == drawn(Split.TEST, "seed=0") != drawn(Split.TEST, "seed=1")
    assert drawn(Split.TRAIN, "seed=1", fixed) == drawn(Split.TRAIN, "seed=1") != drawn(Split.TRAIN, "seed=2", fixed)


@pytest.mark.parametrize("split", Split)
def test_planned_episodes_on_blocked_sites_wait(world, split):
    world.plan(8, split=split)
    plan = plan_rollout(world.run, world.settings, split, 0, 8, blocked=["site2.com"])
    assert (plan.blocked, len(plan.owed), plan.done, plan.given_up) == (2, 6, 0, 0)
    assert "t2" not in {owed.episode.task.id for owed in plan.owed}
    assert plan.to_json()["blocked"] == 2
    assert world.plan(8, split=split).blocked == 0


def test_an_evaluation_stays_the_same_whatever_is_blocked_and_where_no_task_is_left_it_is_told(world):
    free = plan_rollout(world.run, world.settings, Split.TEST, 0, 8)
    plan = plan_rollout(world.run, world.settings, Split.TEST, 0, 8, blocked=["site2.com"])
    assert (plan.episodes, plan.blocked, len(plan.owed)) == (free.episodes, 2, 6)
    with pytest.raises(UsageError, match="no task is left") as caught:
        plan_rollout(world.run, world.settings, Split.TRAIN, 0, 1, blocked=[f"site{number}.com" for number in range(4)])
    assert caught.value.hint


def mixed(world, *overrides, hard=5):
    """Twenty easy tasks, ten medium and some hard ones."""
    difficulties = [1] * 20 + [5] * 10 + [9] * hard
    world.file.write_text("".join(line(number, level) for number, level in enumerate(difficulties)))
    return world.load(*overrides)


def test_the_ratio_decides_how_many_of_each_band(world):
    mixed(world, *RATIO)
    plan = world.plan(10)
    assert bands(plan) == {"easy": 2, "medium": 5, "hard": 3}
    assert len({episode.task.id for episode in plan.episodes}) == 10
    for band in DifficultyBand:
        positions = sorted(episode.position for episode in plan.episodes if episode.task.band is band)
        assert positions == list(range(len(positions)))
    order = [str(episode.task.band) for episode in plan.episodes]
    assert order != sorted(order, key=["easy", "medium", "hard"].index)


def test_a_plan_by_ratio_is_repeatable_and_differs_by_iteration(world):
    mixed(world, *RATIO)
    first = world.plan(10)
    world.run.plan(Split.TRAIN, 0).unlink()
    assert world.plan(10).episodes == first.episodes
    other = world.plan(10, iteration=1).episodes
    assert [episode.task for episode in other] != [episode.task for episode in first.episodes]


def test_a_plan_by_ratio_grows_to_the_shares_of_the_whole(world):
    mixed(world, *RATIO)
    for count, shares in [
        (1, {"medium": 1}),
        (2, {"medium": 1, "hard": 1}),
        (3, {"easy": 1, "medium": 1, "hard": 1}),
        (13, {"easy": 3, "medium": 6, "hard": 4}),
        (30, {"easy": 6, "medium": 15, "hard": 9}),
    ]:
        before = read_plan(world.run, Split.TRAIN, 0)
        plan = world.plan(count)
        assert plan.episodes[: len(before)] == before
        assert bands(plan) == shares
    medium = sorted(episode.position for episode in plan.episodes if episode.task.band is DifficultyBand.MEDIUM)
    assert medium == list(range(15))


def test_a_band_without_tasks_gets_nothing_and_is_named(world):
    mixed(world, *RATIO, hard=0)
    plan = world.plan(7)
    assert bands(plan) == {"easy": 2, "medium": 5}
    (note,) = plan.notes
    assert "band hard" in note
    assert plan.to_json()["notes"] == [note]
    assert world.plan(7).notes == ()


def test_a_band_whose_sites_are_all_blocked_gets_nothing_and_a_ratio_without_any_task_is_told(world):
    mixed(world, *RATIO)
    hard = [f"site{number}.com" for number in range(30, 35)]
    plan = plan_rollout(world.run, world.settings, Split.TRAIN, 0, 7, blocked=hard)
    assert bands(plan) == {"easy": 2, "medium": 5}
    mixed(world, 'tasks.difficulty_ratio={"hard": 1}', "tasks.sampler=ratio", hard=0)
    with pytest.raises(UsageError, match="hard"):
        world.plan(3)


def test_evaluations_are_drawn_uniformly(world):
    mixed(world)
    uniform = plan_rollout(world.run, world.settings, Split.TEST, 0, 9).episodes
    mixed(world, *RATIO, "tasks.no_repeats=true")
    assert plan_rollout(world.run, world.settings, Split.TEST, 0, 9).episodes == uniform


@pytest.mark.parametrize("sampler", [(), RATIO], ids=["uniform", "ratio"])
def test_no_task_comes_again_in_a_later_iteration_before_all_have_come(world, sampler):
    mixed(world, "tasks.no_repeats=true", *sampler)
    drawn = [world.plan(10, iteration=number).episodes for number in range(4)]
    sizes = dict(zip(DifficultyBand, (20, 10, 5), strict=True))
    for bands in [[band] for band in sizes] if sampler else [[*sizes]]:
        of_band = [episode for plan in drawn for episode in plan if episode.task.band in bands]
        mine = sorted(of_band, key=lambda episode: episode.position)
        first = [episode.task.id for episode in mine[: sum(sizes[band] for band in bands)]]
        assert len(set(first)) == len(first)
        assert [episode.position for episode in mine] == [*range(len(mine))]
    assert len({episode.seed for plan in drawn for episode in plan}) == 40


def test_an_iteration_that_grows_goes_on_after_itself_and_the_earlier_ones(world):
    mixed(world, "tasks.no_repeats=true")
    world.plan(10, iteration=0)
    world.plan(5, iteration=1)
    grown = world.plan(8, iteration=1)
    assert [episode.position for episode in grown.episodes] == list(range(10, 18))
    assert [episode.id for episode in grown.episodes[-2:]] == ["train-0001-00006", "train-0001-00007"]


def test_tasks_that_ask_the_same_count_once(world):
    copy, other = ({"id": name, **task_fields(number)} for name, number in (("copy", 0), ("t1", 2)))
    world.file.write_text(line(0, 1) + json.dumps(copy) + "\n" + line(1, 1) + json.dumps(other) + "\n")
    plan = world.plan(3)
    assert Counter(episode.task.id for episode in plan.episodes) == {"t0": 1, "t1": 2}
    assert "1 duplicate task left out" in plan.notes[0]
    assert "1 task with the id of an earlier one" in plan.notes[1]


def test_an_evaluation_repeats_each_task_and_seed_and_can_be_extended(world, tasks):
    text = f"tasks.train={tasks.source}"
    settings = world.load(text, "rollout.test_repeats=3", "rollout.test_episodes=5")
    once = draw(tasks, settings, Split.TEST, 2, 7)
    plan = plan_rollout(world.run, settings, Split.TEST, 2)
    cases = [(episode.task.id, episode.seed) for episode in plan.episodes]
    assert cases == [(episode.task.id, episode.seed) for episode in once[:5]] * 3
    assert [episode.repeat for episode in plan.episodes] == [0] * 5 + [1] * 5 + [2] * 5
    assert len({episode.id for episode in plan.episodes}) == 15
    write_plan(world.run, plan)
    longer = plan_rollout(world.run, settings, Split.TEST, 2, 7)
    assert longer.episodes[:15] == plan.episodes
    added = [(episode.repeat, episode.task.id, episode.seed) for episode in longer.episodes[15:]]
    assert added == [(repeat, episode.task.id, episode.seed) for repeat in range(3) for episode in once[5:]]
    assert plan_rollout(world.run, world.load(text), Split.TEST, 2, 5).episodes == plan.episodes
    trained = plan_rollout(world.run, settings, Split.TRAIN, 0, 4)
    assert [episode.repeat for episode in trained.episodes] == [0] * 4


def solved(run, iteration, *rates, policy="model_a"):
    """Store an iteration of ten episodes a task, of which so many tenths succeeded."""
    for number, rate in enumerate(rates):
        for attempt_ in range(10 if rate is not None else 0):
            task = Task(id=f"t{number}", instruction="x", start_url="http://a/")
            given = {"iteration": iteration, "policy": policy, "task": task}
            outcome = Outcome(reward=float(attempt_ < rate), stop="answered")
            append(run, trajectory(10 * number + attempt_, outcome=outcome, **given))


def test_tasks_are_drawn_by_the_newest_success_of_the_policy(world, tasks):
    """In the newest iteration that has it: t0 and t1 hard, t2 normal, t3 easy; an expert's successes don't count."""
    solved(world.run, 0, 10, 10, 10, 10)
    solved(world.run, 1, 0, 1, 5, 9)
    solved(world.run, 2, None, None, None, None, None, 10, 10, policy="oracle")
    shares = '{"unseen": 0.25, "hard": 0.25, "normal": 0.25, "easy": 0.25}'
    settings = world.load(f"tasks.train={tasks.source}", "tasks.sampler=pass_rate", f"tasks.pool_shares={shares}")
    plan = plan_rollout(world.run, settings, Split.TRAIN, 3, 4)
    drawn = {episode.task.id for episode in plan.episodes}
    assert {"t2", "t3"} < drawn and len(drawn & {"t0", "t1"}) == 1 and len(drawn & {"t4", "t5", "t6"}) == 1
    write_plan(world.run, plan)
    solved(world.run, 2, 10, 10, 0, 0)  # judged anew: what was planned stays
    again = plan_rollout(world.run, settings, Split.TRAIN, 3, 6)
    assert again.episodes[:4] == plan.episodes and len(again.episodes) == 6
    assert len({episode.position for episode in again.episodes}) == 6
