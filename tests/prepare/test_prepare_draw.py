from collections import Counter

import pytest
from hypothesis import given
from hypothesis import settings as example_settings
from hypothesis import strategies as st

from tests.prepare.buffer import drawn, fill, settings
from tests.records.made import CRASHED, UNSOLVED, png, shot, step, trajectory
from webgym_cli.errors import MissingStageError
from webgym_cli.prepare.execute import split
from webgym_cli.prepare.filters import Drop
from webgym_cli.prepare.plan import plan_dataset
from webgym_cli.prepare.sampling import quotas, shuffled
from webgym_cli.prepare.sharegpt import to_sharegpt
from webgym_cli.records.failure import Stop
from webgym_cli.records.sample import IMAGE
from webgym_cli.records.task import Split
from webgym_cli.records.trajectory import Generation, Observation, Outcome, ParseErrorKind
from webgym_cli.store.run import RunDir
from webgym_cli.store.screenshots import ScreenshotStore


@pytest.fixture
def run(tmp_path):
    return RunDir(tmp_path / "run")


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    """A run with 4 iterations of 15 solved trajectories, 4 steps each."""
    made = RunDir(tmp_path_factory.mktemp("four") / "run")
    for iteration in range(4):
        fill(made, *(trajectory(number, iteration=iteration, steps=4) for number in range(15)))
    return made


def counted(samples):
    return [count for _, count in sorted(Counter(sample.iteration for sample in samples).items())]


def wanted(count, power=2.0):
    return settings(
        f"algorithm_config.positive_samples_to_train={count}", f"algorithm_config.recency_bias_power={power}"
    )


# --- the draw


def test_newer_iterations_give_more(four):
    plan, draw = drawn(four, wanted(100), [0, 1, 2, 3])
    # weights 1, 4, 9, 16 of 30: 3.33, 13.33, 30, 53.33 of 100
    assert counted(draw.samples) == [3, 13, 30, 54]
    assert plan.quotas == {0: 3, 1: 13, 2: 30, 3: 54}


def test_what_an_iteration_lacks_the_others_give(four):
    # 60 a iteration: the newest is exhausted, 60 more are shared as 1 : 4 : 9
    assert counted(drawn(four, wanted(120), [0, 1, 2, 3])[1].samples) == [4, 17, 39, 60]


def test_without_bias_all_give_the_same(four):
    assert counted(drawn(four, wanted(40, 0.0), [0, 1, 2, 3])[1].samples) == [10, 10, 10, 10]


@pytest.mark.parametrize("count", ["null", 240, 9999])
def test_all_are_taken_when_there_are_not_more(four, count):
    assert counted(drawn(four, wanted(count), [0, 1, 2, 3])[1].samples) == [60, 60, 60, 60]


def test_an_iteration_without_usable_steps_keeps_its_place(run):
    fill(run, *(trajectory(number, iteration=0) for number in range(30)))
    fill(run, trajectory(iteration=1, outcome=UNSOLVED))
    fill(run, *(trajectory(number, iteration=2) for number in range(30)))
    # the newest is the third that was read: 9 to 1, not 4 to 1
    assert counted(drawn(run, wanted(40), [0, 1, 2])[1].samples) == [4, 36]


def test_no_step_is_drawn_twice(four):
    samples = drawn(four, wanted(200), [0, 1, 2, 3])[1].samples
    assert len({(sample.trajectory, sample.step) for sample in samples}) == 200


def test_the_seed_decides_the_draw(four):
    def names(*overrides):
        chosen = settings("algorithm_config.positive_samples_to_train=30", *overrides)
        return [(sample.trajectory, sample.step) for sample in drawn(four, chosen, [0, 1, 2, 3])[1].samples]

    assert names() == names()
    assert names() != names("seed=1")
    assert names("seed=1") == names("algorithm_config.seed=1")


@example_settings(max_examples=30, deadline=None)
@given(count=st.integers(1, 70), power=st.sampled_from([0.0, 1.0, 2.0]), bad=st.sets(st.integers(0, 59)))
def test_what_can_not_be_used_makes_room_for_the_next(four, count, power, bad):
    class Picky:
        shortened = 0
        number = -1

        def convert(self, found, index):
            self.number += 1
            return Drop.TOO_LONG if self.number in bad else (found.iteration, found.id, index)

    class Named(tuple):
        iteration = property(lambda self: self[0])

    with_ = wanted(count, power)
    plan, draw = drawn(four, with_, [0, 3], Picky())
    used = sum(draw.dropped.values())
    assert len(draw.samples) == min(count, len(plan.candidates) - used)


@given(
    available=st.dictionaries(st.integers(0, 9), st.integers(0, 50), min_size=1, max_size=6),
    count=st.integers(1, 200),
    power=st.floats(0, 4),
)
def test_quotas_add_up(available, count, power):
    found = quotas(available, count, power)
    assert sum(found.values()) == min(count, sum(available.values()))
    assert all(0 <= found[iteration] <= available[iteration] for iteration in available)


def test_shuffling_is_seeded():
    assert shuffled(range(9), "a") == shuffled(range(9), "a") != shuffled(range(9), "b")
    assert sorted(shuffled(range(9), "a")) == list(range(9))


# --- why a trajectory or a step is left out


@pytest.mark.parametrize(
    ("made", "overrides", "reason"),
    [
        (trajectory(outcome=CRASHED), [], Drop.FAILURE),
        (trajectory(steps=0), [], Drop.EMPTY),
        (trajectory(steps=1), [], Drop.TOO_FEW_STEPS),
        (trajectory(outcome=Outcome(stop=Stop.ANSWERED)), [], Drop.REWARD_UNKNOWN),
        (trajectory(outcome=UNSOLVED), [], Drop.UNSUCCESSFUL),
    ],
    ids=lambda value: value.value if isinstance(value, Drop) else "",
)
def test_why_a_trajectory_is_left_out(run, made, overrides, reason):
    fill(run, made)
    plan, draw = drawn(run, settings(*overrides), [0])
    assert plan.dropped_trajectories == {reason.value: 1}
    assert draw.samples == []
    assert plan.failures == ({"browser_crashed": 1} if reason is Drop.FAILURE else {})


def picture(**size):
    return Observation(url="http://a/", screenshot=shot(1, **size))


@pytest.mark.parametrize(
    ("second", "overrides", "reason"),
    [
        (step(1, action=None, parse_error=ParseErrorKind.NO_TOOL_CALL), [], Drop.NO_ACTION),
        (step(1, page_changed=False), [], Drop.SAME_SCREENSHOT),
        (step(1, response="short"), ["algorithm_config.min_token_length=2"], Drop.RESPONSE_TOO_SHORT),
        (step(1, response="an <image> of it all"), [], Drop.RESPONSE_HAS_PLACEHOLDER),
        (step(1, response="an <|im_end|> of it all"), [], Drop.RESPONSE_HAS_PLACEHOLDER),
        (step(1, response="aa bbb", generation=Generation(token_ids=(2, 4))), [], Drop.RETOKENIZED),
        (step(1, response="aa bbb", generation=Generation(token_ids=(2, 3, 0, 0))), [], Drop.RETOKENIZED),
        (step(1, observation=picture(width=9, height=9)), [], Drop.IMAGE_SIZE),
        (step(1, observation=picture(width=1300, height=1024)), [], Drop.IMAGE_SIZE),
    ],
    ids=lambda value: value.value if isinstance(value, Drop) else "",
)
def test_why_a_step_is_left_out(run, second, overrides, reason):
    fill(run, trajectory(steps=0).model_copy(update={"steps": (step(0), second)}))
    plan, draw = drawn(run, settings(*overrides), [0])
    assert {**plan.dropped_steps, **draw.dropped} == {reason.value: 1}
    assert [sample.step for sample in draw.samples] == [0]


def test_each_reason_has_an_example_here():
    here = {"failure", "empty", "too_few_steps", "reward_unknown", "unsuccessful", "no_action", "same_screenshot"}
    here |= {"response_too_short", "response_has_placeholder", "retokenized", "image_size", "image_missing", "too_long"}
    assert {reason.value for reason in Drop} == here


@pytest.mark.parametrize("ids", [(2, 3), (2, 3, 99), None])
def test_the_sampled_ids_may_have_their_stop_token(run, ids):
    kept = step(1, response="aa bbb", generation=Generation(token_ids=ids))
    fill(run, trajectory(steps=0).model_copy(update={"steps": (step(0), kept)}))
    assert len(drawn(run, settings(), [0])[1].samples) == 2


@pytest.mark.parametrize("harm", ["missing", "altered"])
def test_a_sample_whose_image_is_gone_is_left_out(run, harm):
    fill(run, trajectory(steps=3))
    path = ScreenshotStore(run.screenshots).path(shot(1).sha256)
    path.unlink() if harm == "missing" else path.write_bytes(png(9))
    draw = drawn(run, settings(), [0])[1]
    # the second step shows it, the third has it in its history
    assert draw.dropped == {Drop.IMAGE_MISSING.value: 2}
    assert [sample.step for sample in draw.samples] == [0]


def test_what_is_too_long_loses_its_oldest_rounds_then_its_place(run):
    fill(run, trajectory(steps=4))
    whole = {sample.step: sample for sample in drawn(run, settings(), [0])[1].samples}
    assert [len(whole[index].images) for index in range(4)] == [1, 2, 3, 4]
    draw = drawn(run, settings(f"algorithm_config.cutoff_len={whole[1].tokens + 30}"), [0])[1]
    assert draw.shortened == 2
    shorter = {sample.step: sample for sample in draw.samples}
    assert shorter[3].images == whole[3].images[-2:]
    assert all(sample.tokens <= whole[1].tokens + 30 for sample in draw.samples)
    assert "Earlier steps:" in shorter[3].messages[1].content
    nothing = drawn(run, settings("algorithm_config.cutoff_len=16"), [0])[1]
    assert nothing.dropped == {Drop.TOO_LONG.value: 4}


# --- plan, split, ShareGPT


def test_only_the_newest_iterations_of_the_current_policy_are_read(four, run):
    assert plan_dataset(four, settings()).read == (0,)  # nothing was trained yet: the policy is version 0
    with pytest.raises(MissingStageError, match="no training trajectories"):
        plan_dataset(run, settings())


def test_test_episodes_never_reach_training(run):
    fill(run, trajectory(0), trajectory(1, split=Split.TEST))
    assert {candidate.trajectory for candidate in plan_dataset(run, settings()).candidates} == {"train-0000-00000"}


def test_damaged_lines_are_named(run):
    fill(run, trajectory(0), trajectory(1))
    part = run.part(Split.TRAIN, 0)
    part.write_text("{}\n" + part.read_text())
    plan = plan_dataset(run, settings())
    assert [line.split(": ")[0] for line in plan.damaged] == [f"{part}:1"]
    assert len(plan.candidates) == 4


@pytest.mark.parametrize(("ratio", "held_out"), [(0.0, 0), (0.01, 1), (0.2, 3), (0.5, 8), (0.99, 14)])
def test_a_trajectory_stays_on_one_side(four, ratio, held_out):
    samples = drawn(four, settings(), [0])[1].samples
    train, validation = split(samples, ratio, "seed")
    sides = [{sample.trajectory for sample in side} for side in (train, validation)]
    assert not sides[0] & sides[1]
    assert (len(sides[0]), len(sides[1])) == (15 - held_out, held_out)
    assert len(train) + len(validation) == 60
    assert split(samples, ratio, "seed") == (train, validation)


def test_one_trajectory_is_not_held_out(run):
    fill(run, trajectory(0))
    assert split(drawn(run, settings(), [0])[1].samples, 0.05, "seed")[1] == []


def test_sharegpt_has_a_placeholder_for_each_image(four):
    for sample in drawn(four, wanted(50), [0, 1])[1].samples:
        record = to_sharegpt(sample, lambda sha: f"/x/{sha}")
        turns = record["conversations"]
        assert sum(turn["value"].count(IMAGE) for turn in turns) == len(record["images"]) == sample.step + 1
        assert [turn["from"] for turn in turns] == ["human", "gpt"] * (sample.step + 1)
        assert IMAGE not in record["system"]


def test_sharegpt_refuses_what_does_not_match(four):
    sample = drawn(four, wanted(1), [0])[1].samples[0]
    with pytest.raises(ValueError, match="placeholders"):
        to_sharegpt(sample.model_copy(update={"images": ()}), str)
