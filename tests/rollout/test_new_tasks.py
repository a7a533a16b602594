"""An iteration with tasks that were made for it draws these alone, and no other iteration draws them."""

import pytest

from tests.rollout.conftest import task_fields
from webgym_cli.errors import StoreError
from webgym_cli.records.task import Split
from webgym_cli.rollout.plan import plan_rollout, write_plan
from webgym_cli.store.buffer import read_plan
from webgym_cli.util.files import write_lines

RATIO = ("tasks.sampler=ratio", 'tasks.difficulty_ratio={"easy": 1}')


@pytest.fixture
def new(world):
    """Write the new tasks n0 to n4 of iteration 1, all of them hard."""
    path = world.run.new_tasks(1)
    write_lines(path, ({"id": f"n{at}", "difficulty": 7, **task_fields(at + 50)} for at in range(5)))
    return path


def names(world, settings, iteration, episodes=None, split=Split.TRAIN):
    plan = plan_rollout(world.run, settings, split, iteration, episodes)
    write_plan(world.run, plan)
    return [episode.task.id for episode in plan.episodes]


@pytest.mark.parametrize("how", [(), RATIO, ("tasks.no_repeats=true",)], ids=["uniform", "ratio", "no repeats"])
def test_each_of_them_once_whatever_the_sampler_does_with_the_others(world, new, how):
    settings = world.load(*how)
    before = names(world, settings, 0, 4)
    assert sorted(names(world, settings, 1, 5)) == [f"n{at}" for at in range(5)]
    assert not any(name.startswith("n") for name in [*before, *names(world, settings, 2, 4)])


def test_where_nobody_says_how_many_each_is_tried_once_in_its_group_of_chains(world, new):
    assert len(names(world, world.load("rollout.episodes=9", "rollout.test_episodes=2"), 1)) == 5
    tests = names(world, world.settings, 1, split=Split.TEST)
    assert len(tests) == 2 and not any(name.startswith("n") for name in tests)
    assert len(names(world, world.settings, 2)) == 9
    world.run.plan(Split.TRAIN, 1).unlink()
    drawn = names(world, world.load("agent.num_chains=2", "agent.greedy_chain=true"), 1)
    assert drawn == [name for name in drawn[::3] for _ in range(3)]
    assert len(drawn) == 15 and len(set(drawn)) == 5


def test_what_was_tried_of_them_is_not_taken_for_tries_of_the_others(world, new):
    """Without repeats an iteration goes on after the original tasks of those before it, and after nothing else."""
    settings = world.load("tasks.no_repeats=true")
    first = names(world, settings, 0, 2)
    names(world, settings, 1, 5)
    assert {*first, *names(world, settings, 2, 2)} == {"t0", "t1", "t2", "t3"}
    assert [episode.position for episode in read_plan(world.run, Split.TRAIN, 2)] == [2, 3]


def test_a_plan_of_tasks_that_are_gone_is_not_gone_on_with(world, new):
    names(world, world.settings, 1, 3)
    new.unlink()
    with pytest.raises(StoreError, match="don't follow from the tasks"):
        plan_rollout(world.run, world.settings, Split.TRAIN, 1, 5)
