import hashlib
from collections import Counter
from functools import partial

import pytest
from hypothesis import given
from hypothesis import settings as example_settings
from hypothesis import strategies as st

from tests.prepare.buffer import drawn, fill, planned, settings, steps_of
from tests.records.builders import UNSOLVED, new_run, trajectory
from webgym_cli.errors import MissingStageError
from webgym_cli.prepare.sft.execute import shuffle_and_split
from webgym_cli.prepare.sft.filters import DropReason
from webgym_cli.prepare.sft.plan import plan_dataset, preview_dataset
from webgym_cli.prepare.sft.sharegpt import to_sharegpt
from webgym_cli.records.sample import IMAGE
from webgym_cli.records.task import Split
from webgym_cli.store.buffer import read as read_place
from webgym_cli.store.index.query import open_index

POSITION = ("algorithm_config.weighting=position", "algorithm_config.positive_samples_to_train=20")


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    """A run with 4 iterations of 15 solved trajectories, 4 steps each."""
    run = new_run(tmp_path_factory.mktemp("four") / "run")
    for iteration in range(4):
        fill(run, *(trajectory(number, iteration=iteration, steps=4) for number in range(15)))
    return run


def counted(samples):
    return [count for _, count in sorted(Counter(sample.iteration for sample in samples).items())]


def wanted(count, power=2.0, **more):
    """Return settings of the draw, by names in `algorithm_config`."""
    given = {"positive_samples_to_train": count, "recency_bias_power": power, **more}
    return settings(*(f"algorithm_config.{name}={value}" for name, value in given.items()))


def test_newer_iterations_give_more_and_what_one_lacks_the_others_give(four):
    plan, draw = drawn(four, wanted(100), [0, 1, 2, 3])
    # weights 1, 4, 9, 16 of 30: 3.33, 13.33, 30, 53.33 of 100
    assert counted(draw.samples) == [3, 13, 30, 54]
    assert plan.quotas == {0: 3, 1: 13, 2: 30, 3: 54}
    # 60 a iteration: the newest is exhausted, 60 more are shared as 1 : 4 : 9
    assert counted(drawn(four, wanted(120), [0, 1, 2, 3])[1].samples) == [4, 17, 39, 60]


@pytest.mark.parametrize("count", ["null", 240, 9999])
@pytest.mark.parametrize("weighting", ["iteration", "position"])
def test_all_are_taken_when_there_are_not_more(four, count, weighting):
    draw = drawn(four, wanted(count, weighting=weighting), [0, 1, 2, 3])[1]
    assert counted(draw.samples) == [60, 60, 60, 60]


def test_an_iteration_without_usable_steps_keeps_its_place(run):
    fill(run, *(trajectory(number, iteration=0) for number in range(30)))
    fill(run, trajectory(iteration=1, outcome=UNSOLVED))
    fill(run, *(trajectory(number, iteration=2) for number in range(30)))
    # the newest is the third that was read: 9 to 1, not 4 to 1
    assert counted(drawn(run, wanted(40), [0, 1, 2])[1].samples) == [4, 36]


def test_the_seed_decides_the_draw(four):
    def names(*overrides):
        chosen = settings("algorithm_config.positive_samples_to_train=30", *overrides)
        return steps_of(drawn(four, chosen, [0, 1, 2, 3])[1])

    assert names() == names()
    assert names() != names("seed=1")
    assert names("seed=1") == names("algorithm_config.seed=1")


def test_the_lowest_priorities_are_drawn(four):
    """The seed, the iteration that is trained, the trajectory and the step decide, and nothing else."""

    def key(step):
        return int.from_bytes(hashlib.md5(f"0/3/{step[0]}/{step[1]}".encode()).digest(), "little")

    first = []
    for iteration in range(4):
        steps = [(f"train-{iteration:04d}-{number:05d}", index) for number in range(15) for index in range(4)]
        first += sorted(steps, key=key)[:5]
    assert steps_of(drawn(four, wanted(20, 0.0), [0, 1, 2, 3])[1]) == first


@example_settings(max_examples=20, deadline=None)
@given(
    count=st.integers(1, 70),
    power=st.sampled_from([0.0, 1.0, 2.0]),
    bad=st.sets(st.integers(0, 119)),
    weighting=st.sampled_from(["iteration", "position"]),
)
def test_what_can_not_be_used_makes_room_for_the_next(four, count, power, bad, weighting):
    class Picky:
        number = -1

        def convert(self, rows, index):
            self.number += 1
            return DropReason.TOO_LONG if self.number in bad else Found((rows.iteration, rows.id, index))

    class Found(tuple):
        iteration = property(lambda self: self[0])

    plan, draw = drawn(four, wanted(count, power, weighting=weighting), [0, 3], Picky())
    used = sum(draw.dropped.values())
    assert len(draw.samples) == min(count, plan.eligible - used) == len(set(draw.samples))


def test_a_draw_by_position_prefers_what_started_last(run):
    """Within an iteration as well: its last steps have the greatest weights."""
    for number in range(20):
        fill(run, trajectory(number, steps=5, started_at=f"2026-01-02T03:{59 - number:02d}:00.000+00:00"))
    newest = {f"train-0000-{number:05d}" for number in range(4)}
    plan, draw = drawn(run, settings(*POSITION, "algorithm_config.recency_bias_power=100000"), [0])
    assert plan.quotas == {0: 20}
    assert {name for name, _ in steps_of(draw)} == newest  # 20 steps of the last 4 episodes
    assert steps_of(draw)[0] == ("train-0000-00000", 4)
    other = drawn(run, settings(*POSITION, "algorithm_config.recency_bias_power=0"), [0])[1]
    assert len({name for name, _ in steps_of(other)} - newest) > 4


def test_a_draw_by_position_tells_its_shares_before(four):
    plan, draw = drawn(four, settings(*POSITION), [0, 1, 2, 3])
    assert list(plan.quotas) == [0, 1, 2, 3]
    shares = Counter(sample.iteration for sample in draw.samples)
    assert {iteration: count for iteration, count in plan.quotas.items() if count} == shares


@pytest.mark.parametrize("weighting", ["iteration", "position"])
def test_the_order_of_writing_decides_nothing(tmp_path, weighting):
    trajectories = [trajectory(number, iteration=iteration, steps=4) for iteration in range(2) for number in range(12)]
    draws = (f"algorithm_config.weighting={weighting}", "algorithm_config.positive_samples_to_train=30")
    chosen = settings(*draws, "filters.max_steps_per_trajectory=3")
    calls = []
    for name, order, ranks in (("a", trajectories, 1), ("b", trajectories[::-1], 3)):
        run = new_run(tmp_path / name)
        for number, one in enumerate(order):
            fill(run, one, rank=number % ranks)
        plan, draw = drawn(run, chosen, [0, 1])
        calls.append((plan.digest(), steps_of(draw)))
    assert calls[0] == calls[1]


def test_the_digest_knows_what_decides_the_draw(run):
    fill(run, trajectory(0), trajectory(1, steps=3))

    def digest(*overrides):
        with planned(run, settings(*overrides), [0]) as plan:
            return plan.digest()

    before = digest()
    others = ["seed=1", "filters.max_steps_per_task=9", "algorithm_config.weighting=position"]
    assert len({before, *map(digest, others)}) == 4
    fill(run, trajectory(2, outcome=UNSOLVED))
    assert digest() == before  # nothing that can be drawn was added
    fill(run, trajectory(3))
    assert digest() != before


def test_a_trajectory_is_read_once(four, monkeypatch):
    read = Counter()

    def noted(run, place, **without):
        read[place.id] += 1
        return read_place(run, place, **without)

    monkeypatch.setattr("webgym_cli.store.buffer.read", noted)
    _, draw = drawn(four, wanted(100), [0, 1, 2, 3])
    assert set(read.values()) == {1}
    assert read.keys() == {name for name, _ in steps_of(draw)}


def test_what_is_too_long_loses_its_oldest_rounds_then_its_place(run):
    fill(run, trajectory(steps=4))
    whole = {sample.step: sample for sample in drawn(run, settings(), [0])[1].samples}
    assert [len(whole[index].images) for index in range(4)] == [1, 2, 3, 4]
    draw = drawn(run, settings(f"algorithm_config.cutoff_len={whole[1].tokens + 30}"), [0])[1]
    shorter = {sample.step: sample for sample in draw.samples}
    assert shorter[3].images == whole[3].images[-2:]
    assert all(sample.tokens <= whole[1].tokens + 30 for sample in draw.samples)
    assert "Earlier steps:" in shorter[3].messages[1].content
    nothing = drawn(run, settings("algorithm_config.cutoff_len=16"), [0])[1]
    assert (nothing.dropped["too_long"], nothing.samples) == (4, [])


def test_only_the_newest_iterations_of_the_current_policy_are_read(four, run):
    with open_index(four) as index:
        assert plan_dataset(four, settings(), index).read == (0,)  # nothing was trained yet: the policy is version 0
        preview = preview_dataset(four, settings("algorithm_config.last_n_iterations=2"), index)
        assert preview["iterations_read"] == [2, 3]
    with open_index(run) as index:
        assert preview_dataset(run, settings(), index) == {}
        with pytest.raises(MissingStageError, match="no training trajectories"):
            plan_dataset(run, settings(), index)


def test_test_episodes_never_reach_training(run):
    fill(run, trajectory(0), trajectory(1, split=Split.TEST))
    plan, draw = drawn(run, settings(), [0])
    assert (plan.counts.trajectories, plan.counts.steps, plan.eligible) == (1, 2, 2)
    assert {name for name, _ in steps_of(draw)} == {"train-0000-00000"}


def test_damaged_lines_are_named(run):
    fill(run, trajectory(0), trajectory(1))
    part = run.part(Split.TRAIN, 0)
    part.write_text("{}\n" + part.read_text())
    plan, _ = drawn(run, settings(), [0])
    (line,) = plan.damaged
    assert line.startswith(f"{part}: the line at byte 0 is damaged: ")
    assert plan.eligible == 4


@pytest.mark.parametrize(("ratio", "held_out"), [(0.0, 0), (0.01, 1), (0.2, 3), (0.5, 8), (0.99, 14)])
def test_a_trajectory_stays_on_one_side(four, ratio, held_out):
    samples = drawn(four, settings(), [0])[1].samples
    with_ = settings(f"algorithm_config.val_split_ratio={ratio}", "algorithm_config.do_eval=true")
    split = partial(shuffle_and_split, samples, with_, 0)
    train, validation = split()
    sides = [{sample.trajectory for sample in side} for side in (train, validation)]
    assert not sides[0] & sides[1]
    assert (len(sides[0]), len(sides[1])) == (15 - held_out, held_out)
    assert len(train) + len(validation) == 60
    assert split() == (train, validation)


def test_one_trajectory_is_not_held_out(run):
    fill(run, trajectory(0))
    with_ = settings("algorithm_config.val_split_ratio=0.05", "algorithm_config.do_eval=true")
    assert shuffle_and_split(drawn(run, with_, [0])[1].samples, with_, 0)[1] == []


def test_sharegpt_has_a_placeholder_for_each_image(four):
    for sample in drawn(four, wanted(50), [0, 1])[1].samples:
        record = to_sharegpt(sample, lambda sha: f"/x/{sha}")
        turns = record["conversations"]
        assert sum(turn["value"].count(IMAGE) for turn in turns) == len(record["images"]) == sample.step + 1
        assert [turn["from"] for turn in turns] == ["human", "gpt"] * (sample.step + 1)
        assert IMAGE not in record["system"]
