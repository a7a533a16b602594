"""Groups without gradient: what is left out of a batch, and how many episodes come in their place."""

import asyncio
from unittest import mock

import pytest

from tests.prepare.rl_builders import episode, line_of, served, settings, store, talk, write_plan
from tests.records.builders import CRASHED, UNSOLVED
from webgym_cli.environments.registry import check_tasks
from webgym_cli.errors import SettingsError, UsageError
from webgym_cli.prepare.rl import execute as stage
from webgym_cli.prepare.rl.attempts import count_missing_episodes
from webgym_cli.prepare.rl.data import BATCH, TRANSITIONS
from webgym_cli.prepare.rl.plan import plan_batch
from webgym_cli.records.task import Split
from webgym_cli.records.trajectory import Observation, Outcome
from webgym_cli.scoring.check import SHAPINGS
from webgym_cli.store.buffer import scan
from webgym_cli.store.index.query import open_index

CHAINS = "agent.num_chains=2"
PARTIAL = Outcome(reward=0.25, stop="answered")
WAITS = Outcome(stop="answered")


def fill(run, tokens, *outcomes):
    """Store groups of two; an outcome of None is a success."""
    write_plan(run, *(episode(number, f"q{number // 2}", position=number) for number in range(len(outcomes))))
    for number, outcome in enumerate(outcomes):
        store(run, served(talk(number, **({"outcome": outcome} if outcome else {})), tokens))


def missing(run, wanted, *overrides):
    with open_index(run) as index:
        return count_missing_episodes(run, settings("model", CHAINS, *overrides), index, 0, wanted)


def test_a_group_of_equal_rewards_is_left_out_and_named(run, model, tokens):
    """Rewards 1 0 | 1 1 | 0 failed | 0.25 0.25: the third has one reward left, which estimators take as it is."""
    fill(run, tokens, None, UNSOLVED, None, None, UNSOLVED, CRASHED, PARTIAL, PARTIAL)
    with_ = settings(model, CHAINS, "train.algorithm=grpo")
    with open_index(run) as index:
        plan = plan_batch(run, with_, index, group_relative=True)
        assert plan.counts.masked == {"failure": 1, "no_variance": 4}
        stage.execute(plan, run, with_, lambda event: None)
    lines = line_of(run.rl_data / "trajectories.jsonl")
    assert "".join(line["id"][-1] for line in lines) == "01234567"
    assert [line["reward"] for line in lines] == [1.0, 0.0, None, None, 0.0, None, None, None]
    masked = [None, None, "no_variance", "no_variance", None, "failure", "no_variance", "no_variance"]
    assert [line["masked"] for line in lines] == masked
    assert [row["number"] for row in line_of(run.rl_data / "rows.jsonl")] == [0, 1, 4]


@pytest.mark.parametrize(
    ("setting", "group_relative", "left_out"),
    [("null", True, 2), ("null", False, 0), ("true", False, 2), ("false", True, 0)],
)
def test_a_setting_overrules_the_estimator(run, tokens, setting, group_relative, left_out):
    fill(run, tokens, None, None, None, UNSOLVED)
    how = settings("model", CHAINS, f"rl.data.filter_groups.enable={setting}")
    with open_index(run) as index:
        plan = plan_batch(run, how, index, group_relative=group_relative)
        assert plan.counts.masked.get("no_variance", 0) == left_out
    webrl = settings("model", "train.algorithm=webrl", f"rl.data.filter_groups.enable={setting}")
    assert TRANSITIONS.filters_groups(run, webrl) is (setting == "true"), "what is left out is rolled out again"


@pytest.mark.parametrize(("gamma", "weight", "left_out"), [("1", "1", 2), ("0.95", "1", 0), ("0.95", "0", 2)])
def test_equal_rewards_have_a_gradient_where_discounted_steps_are_compared(run, tokens, gamma, weight, left_out):
    fill(run, tokens, None, None, None, UNSOLVED)
    given = (f"rl.algorithm.gamma={gamma}", f"rl.algorithm.step_advantage_w={weight}")
    how = settings("model", CHAINS, "train.algorithm=gigpo", *given)
    with open_index(run) as index:
        assert BATCH.plan(run, how, index).counts.masked.get("no_variance", 0) == left_out
    assert BATCH.filters_groups(run, how) is bool(left_out)


def test_as_many_groups_come_as_are_expected_to_give_the_missing_ones(run, tokens):
    """Two of four groups have gradient: two are missing, of which every second would have it."""
    fill(run, tokens, None, UNSOLVED, None, None, None, UNSOLVED, UNSOLVED, UNSOLVED)
    assert missing(run, 8) == 8
    assert missing(run, 4) == 0
    assert missing(run, 6) == 4
    assert missing(run, 8, "rl.data.filter_groups.max_num_gen_batches=1") == 0
    assert missing(run, 6, "rl.data.filter_groups.max_num_gen_batches=2") == 4
    assert missing(run, 8, "rl.data.group_by=task") == 0, "how many groups there are follows from the tasks"


@pytest.mark.parametrize("outcomes", [(WAITS, None, CRASHED, CRASHED), (None,) * 4])
def test_a_group_that_waits_for_its_judge_is_not_replaced_and_one_that_failed_or_has_no_gradient_is(
    run, tokens, outcomes
):
    fill(run, tokens, *outcomes)
    assert missing(run, 4) == missing(run, 4, "rl.data.filter_groups.max_num_gen_batches=2") == 4


def test_rows_of_single_steps_name_their_observation(run, model, tokens):
    """Both episodes begin with the same question before them; their second steps saw the same result."""
    fill(run, tokens, None, UNSOLVED)
    with_ = settings(model, CHAINS)
    with open_index(run) as index:
        stage.execute(plan_batch(run, with_, index, anchors=True), run, with_, lambda event: None)
    rows = line_of(run.rl_data / "rows.jsonl")
    assert [row["steps"] for row in rows] == [[0], [1], [0], [1]]
    first, second, *others = [row["anchor"] for row in rows]
    assert others == [first, second] and first != second and len(first) == 64


def test_a_picture_or_an_address_is_another_anchor():
    seen = Observation(url="http://a/")
    pictures = [talk(0, "x", "y", pictures=(width,)).steps[1].observation for width in (32, 64)]
    rows = [stage.digest_observation(one) for one in (seen, Observation(url="http://b/"), *pictures)]
    assert len(set(rows)) == 4
    assert stage.digest_observation(Observation(url="http://a/", title="3 new messages")) == rows[0]


SHAPES = """
from webgym_cli.scoring import shaping


@shaping("shorter")
async def prefer_short(reward, id, context):
    return {"reward": reward - len(context.trajectory.steps) / 8 - (id == "q1") / 4, "first": id == "q1", "words": "x"}


@shaping("broken")
def fail(reward, id):
    return {}[id]


@shaping("endless")
def return_nan():
    return float("nan")


@shaping("wants")
def want(reward, bonus):
    return reward + bonus
"""


@pytest.fixture
def shapes(tmp_path):
    (tmp_path / "shapes.py").write_text(SHAPES)
    with mock.patch.dict(SHAPINGS.registered, clear=True):
        yield [f'plugins=["{tmp_path}/shapes.py"]', "rl.data.shaping=shorter"]


def test_shaped_rewards_are_in_the_batch_and_decide_about_gradient(run, model, tokens, shapes):
    fill(run, tokens, None, None, UNSOLVED, UNSOLVED, CRASHED, None)
    assert missing(run, 6) == 6, "of the stored rewards no group has gradient but the one with a single reward"
    assert missing(run, 6, *shapes) == 4, "one group is missing, and two of three have gradient"
    with_ = settings(model, CHAINS, "train.algorithm=grpo", *shapes)

    events: list[dict] = []

    async def plan_and_write():  # as the loop does: within an event loop
        with open_index(run) as index:
            plan = plan_batch(run, with_, index, group_relative=True)
            digest = plan.digest()
            assert plan.to_json()["shaping"] == "shorter"
            stage.execute(plan, run, with_, events.append)
            return digest != plan_batch(run, settings(model, CHAINS), index, group_relative=True).digest()

    assert asyncio.run(plan_and_write())
    assert events[-1]["reward_extra"] == {"first": 0.2}, "the mean over five episodes; words are left out"
    lines = line_of(run.rl_data / "trajectories.jsonl")
    assert [line["reward"] for line in lines] == [0.75, 0.5, None, None, None, 0.75]
    assert [line["masked"] for line in lines][2:5] == ["no_variance", "no_variance", "failure"]
    assert [line["success"] for line in lines][:2] == [True, True], "success is the stored reward's"
    assert next(scan(run, Split.TRAIN, 0)).outcome.reward == 1.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["rl.data.shaping=broken"], r"train-0000-00000: the shaping broken failed: KeyError.*\(shapes.py:12\)"),
        (["rl.data.shaping=endless"], "nan is no reward"),
        (["rl.data.shaping=unknown"], "there is no shaping 'unknown'"),
    ],
)
def test_a_shaping_that_fails_ends_the_preparation_with_its_line(run, tokens, shapes, changes, message):
    fill(run, tokens, None, None)
    with open_index(run) as index, pytest.raises(UsageError, match=message):
        plan_batch(run, settings("model", *shapes, *changes), index)
    if message.startswith("there is no"):
        with pytest.raises(UsageError, match=message):
            check_tasks(settings("model", *shapes, *changes), [talk(0).task])


def test_a_shaping_that_its_tasks_do_not_fit_is_refused_before_a_rollout(shapes):
    with pytest.raises(UsageError, match="wants needs bonus"):
        check_tasks(settings("model", *shapes, "rl.data.shaping=wants"), [talk(0).task])


def test_webrl_and_asynchronous_filters_refuse_shaping(run, tokens, shapes):
    fill(run, tokens, None, None)
    with open_index(run) as index, pytest.raises(SettingsError, match=r"rl\.data\.shaping"):
        plan_batch(run, settings("model", *shapes), index, transitions=True)
    with pytest.raises(SettingsError, match=r"rl\.data\.shaping"):
        BATCH.check_async(settings("model", *shapes))
