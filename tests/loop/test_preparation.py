"""What an iteration's training is made of, by the algorithm; written once, unless it is asked for again."""

import pytest

from tests.prepare.rl_made import build_model, episode, served, settings, store, talk, write_plan
from tests.records.made import UNSOLVED
from webgym_cli.agent.tokens import ModelTokens
from webgym_cli.errors import MissingStageError
from webgym_cli.loop.preparation import plan_preparation, preparation_in_words, prepare
from webgym_cli.prepare.plan import PreparePlan
from webgym_cli.prepare.rl.plan import RlPlan
from webgym_cli.store.index.query import open_index
from webgym_cli.store.learning import algorithm
from webgym_cli.store.run import RunDir

CHAINS, GRPO, SHOWN = "agent.num_chains=2", "train.algorithm=grpo", "loop.demonstration_iterations=1"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return build_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def run(tmp_path, model):
    """A group of two episodes: one solved its task."""
    run, tokens = RunDir(tmp_path / "run"), ModelTokens(str(model))
    write_plan(run, *(episode(number, "q") for number in range(2)))
    store(run, served(talk(0), tokens), served(talk(1, outcome=UNSOLVED), tokens))
    return run


def test_demonstrations_are_imitated_whatever_comes_after(run, model):
    assert algorithm(run, settings(model)) == "sft"
    assert algorithm(run, settings(model, GRPO)) == "grpo"
    assert algorithm(run, settings(model, GRPO, SHOWN)) == "sft"


def test_the_algorithm_decides_what_is_planned(run, model):
    with open_index(run) as index:
        assert isinstance(plan_preparation(run, settings(model, CHAINS, GRPO), index), RlPlan)
        assert isinstance(plan_preparation(run, settings(model, CHAINS), index), PreparePlan)


async def test_a_batch_is_written_once_unless_something_about_it_changed(run, model):
    with_ = settings(model, CHAINS, GRPO)
    events = []
    first, fresh = await prepare(run, with_, events.append, again=False)
    assert (fresh, first.trained, first.rows) == (True, 2, 2)
    assert preparation_in_words(first, run) == (
        f"2 trajectories in 2 rows, {first.trained_tokens} trained tokens in {run.rl_data}"
    )
    assert [event["event"] for event in events][-1] == "rl_data"
    assert await prepare(run, with_, events.append, again=False) == (first, False)
    assert (await prepare(run, with_, events.append, again=True))[1]
    with_ = settings(model, CHAINS, GRPO, "rl.data.merge_turns=false")
    apart, fresh = await prepare(run, with_, events.append, again=False)
    assert (fresh, apart.rows) == (True, 4)
    assert apart.plan_digest != first.plan_digest


async def test_without_episodes_the_next_command_is_named(tmp_path, model):
    with pytest.raises(MissingStageError) as caught:
        await prepare(RunDir(tmp_path / "empty"), settings(model, GRPO), lambda event: None, again=False)
    assert caught.value.hint == f"webgym rollout {tmp_path / 'empty'}"
