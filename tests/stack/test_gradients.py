"""Policy gradients from end to end: real episodes, our own trainer, the trained policy on the real server."""

import shutil

import pytest

from tests.records.builders import new_run
from tests.stack.conftest import demo_settings
from webgym_cli.loop import preparation, rollouts, training
from webgym_cli.loop.context import StageContext
from webgym_cli.loop.loop import Loop
from webgym_cli.loop.loop_plan import plan_loop
from webgym_cli.records.task import Split
from webgym_cli.serve.weights import Digests
from webgym_cli.store.buffer import scan
from webgym_cli.store.checkpoints import checkpoints, current, folder, policy_path
from webgym_cli.store.metrics import read_batches, read_events
from webgym_cli.store.run import RunDir, new_attempt

pytestmark = pytest.mark.stack

TRUNCATED = [f"policy_config.{one}" for one in ("temperature=0.8", "top_k=40", "top_p=0.95", "min_p=0.01")]
SMALL = ["rollout.episodes=20", "rollout.test_episodes=6", "agent.num_chains=4", "rl.actor.optim.lr=0.0001"]
SMALL += ["rl.actor.ppo_mini_batch_size=8", "rl.model.enable_gradient_checkpointing=false"]
SMALL += ["algorithm_config.num_train_epochs=1"]


@pytest.fixture(scope="module")
async def trained(sft_run, tmp_path_factory):
    """A run that trained two LoRA versions while rollouts went on, then all weights by REMAX on fresh steps, drawn from
    a truncated distribution: (run, settings of the last training, events). test_learning.py has loops in turns.
    """
    learning = ("train.algorithm=grpo", "loop.demonstration_iterations=0", "rl.data.filter_groups.enable=false")
    order = ("rl.model.lora_rank=4", "loop.mode=async", "loop.iterations=2", "loop.eval_every=2")
    weights = policy_path(*sft_run).resolve()
    settings = demo_settings(weights, *SMALL, *learning, *order)
    fresh = ("rl.model.lora_rank=0", "loop.max_staleness=0", "train.algorithm=remax", "agent.greedy_chain=true")
    whole = demo_settings(weights, *SMALL, *learning, *order, *fresh, *TRUNCATED)
    run = new_run(tmp_path_factory.mktemp("gradients") / "run", settings)
    events = []
    async with StageContext(run, settings, new_attempt(run), events.append) as context:
        await Loop(plan_loop(run, settings), context).execute()
        context.settings = whole
        await Loop(plan_loop(run, whole, iterations=3), context).execute()
    return run, whole, events


def test_the_trainer_s_log_probs_are_those_of_the_server(trained):
    """The very ids, the very distribution (temperature, top_k, top_p, min_p): what differs is arithmetic."""
    *_, checkpoint = checkpoints(trained[0])
    assert (checkpoint.algorithm, checkpoint.steps) == ("remax", 2)
    assert checkpoint.metrics["rollout_corr/log_prob_difference"] < 1e-3
    assert abs(checkpoint.metrics["rollout_corr/kl"]) < 1e-3
    assert checkpoint.metrics["rollout_corr/capped"] == 0.0
    assert checkpoint.metrics["response_length/mean"] > 1


async def test_imitation_goes_on_from_the_improved_policy(trained, tmp_path):
    """LLaMA-Factory reads the checkpoint that our own trainer wrote."""
    run = RunDir(shutil.copytree(trained[0].root, tmp_path / "run", symlinks=True))
    (run.root / "batches.jsonl").unlink()  # from here on it takes turns
    before = current(run)
    imitation = demo_settings(policy_path(run, trained[1]).resolve(), "algorithm_config.num_train_epochs=1")
    async with StageContext(run, imitation, run.logs / "attempt_0001", lambda event: None) as context:
        await rollouts.rollout(context, Split.TRAIN, "oracle", 4)
        await preparation.prepare(context)
        await training.train(context)
    checkpoint = current(run)
    assert (checkpoint.algorithm, checkpoint.parent, checkpoint.version) == ("sft", before.name, before.version + 1)


async def test_each_step_of_an_asynchronous_loop_is_of_one_version_that_is_not_too_old(trained):
    run, *_ = trained
    batches, digests = read_batches(run), Digests()
    known = {one.version: await digests.of(str(folder(run, one).resolve())) for one in checkpoints(run)}
    stored = {trajectory.id: trajectory for number in range(3) for trajectory in scan(run, Split.TRAIN, number)}
    ages = set()
    for parent, batch in batches.items():
        for name in (name for group in batch.groups for name in group.trajectories):
            for step in stored[name].steps:
                version = step.generation.policy_version
                ages.add(parent - version.number)
                assert version.digest == known.get(version.number, version.digest)
    assert sorted(batches) == [0, 1, 2] and ages <= {0, 1}


def test_new_weights_were_loaded_between_requests_and_nothing_answers_from_old_caches(trained):
    """The pictures and the first part of the prompts are the same for all versions: a stale cache would show."""
    run, _, output = trained
    assert [event["how"] for event in output if event["event"] == "swap"] == ["adapter", "adapter", "in_place"]
    first, _, last = (checkpoint.metrics for checkpoint in checkpoints(run))
    for metrics in (first, last):  # before any swap; of an adapter, by the weights that it is merged into
        assert metrics["staleness/max"] == 0.0
        assert abs(metrics["rollout_corr/staleness_0/kl"]) < 1e-3
        assert metrics["rollout_corr/log_prob_difference"] < 1e-3


def test_an_evaluation_beside_the_training_is_of_one_version(trained):
    run, *_ = trained
    assert [event["iteration"] for event in read_events(run, "evaluation")] == [0, 2, 3]
    for number in (0, 2, 3):
        steps = [step for trajectory in scan(run, Split.TEST, number) for step in trajectory.steps]
        assert {step.generation.policy_version.number for step in steps} == {number}


def test_each_training_goes_on_with_the_adapter_before_it_on_the_same_model(trained):
    run, _, output = trained
    first, second, whole = checkpoints(run)
    assert first.adapter == second.adapter and whole.adapter is None
    assert first.adapter.base == first.parent != second.parent
    assert [event["mode"] for event in output if event["event"] == "train_start"] == ["fresh", "carried", "fresh"]
