"""Asynchronous loops as processes: what they train on, what a kill leaves, what ends them, what they refuse."""

import random
import signal
import time
from functools import partial

import pytest

from tests.extending.dial_policy import serve_policy
from tests.forked import refused
from tests.loop.async_runs import AsyncRun, check_ledger, members
from webgym_cli.config.load import load
from webgym_cli.errors import SettingsError, UsageError
from webgym_cli.loop.loop_plan import Phase, plan_loop
from webgym_cli.store.run import RunDir

ASYNC = "loop.mode=async"
# A command is in a stage once its output contains this; empty: once training episodes are stored.
STAGES = ('"split": "test"', "", '"bar": "prepare"', '"event": "train_start"')
BATCHES, DATASETS = "train.algorithm=copying_batch", "train.algorithm=copying_dataset"


@pytest.fixture(scope="module")
def policy(tiny_model_dir):
    with serve_policy(tiny_model_dir) as url:
        yield url


@pytest.fixture
def new_run(tmp_path, policy, tiny_model_dir):
    """Make a run in a folder of this name."""
    return lambda name="run": AsyncRun(tmp_path / name, policy, tiny_model_dir)


def looped(run, *assignments, **options):
    """Run a loop to its end, which must be a good one."""
    code, _, error = run.finish(*assignments, **options)
    assert code == 0, error


def test_with_a_bound_of_0_the_batches_are_those_of_rollouts_and_trainings_in_turns(new_run):
    digests = {}
    for mode in ("sync", "async"):
        run = new_run(mode)
        # One at a time: the policy solves every second episode that asks it.
        looped(run, BATCHES, f"loop.mode={mode}", "loop.max_staleness=0", "rollout.concurrency=1", "loop.iterations=2")
        batches = [members(batch) for batch in run.read_ledger().values()]
        assert batches == [[f"train-000{version}-0000{at}" for at in range(8)] for version in range(2)]
        digests[mode] = [event["digest"] for event in run.read_events("prepare")]
    assert len(digests["sync"]) == 2
    assert digests["sync"] == digests["async"]


@pytest.mark.parametrize("algorithm", [BATCHES, DATASETS])
def test_killed_at_any_moment_it_trains_on_each_episode_once(new_run, algorithm):
    run, when = new_run(), random.Random(algorithm)
    loop = (algorithm, ASYNC, "loop.iterations=5")
    # Five trainings take longer than both waits: a loop that has ended can't be killed.
    slow = {"DIAL_PAUSE": "0.1", "TRAIN_SECONDS": "1.2"}
    for _ in range(2):
        command = run.start(*loop, **slow)
        command.until(command.out.read_text)
        time.sleep(when.uniform(0, 4))
        command.send(signal.SIGKILL)
        begun = {trajectory["episode"] for trajectory in run.read_stored()}
        assert len(begun) <= (len(run.read_versions()) + 1 + 1) * 8, "a restart began more than the bound allows"
    looped(run, *loop)
    facts = check_ledger(run, bound=1)
    assert (facts["versions"], facts["stored"]) == (5, 40)
    # Failed episodes are not imitated. How many there are depends on the kills: every second question is answered well.
    solved = sum(trajectory["outcome"]["reward"] == 1.0 for trajectory in run.read_stored())
    assert facts["trained"] == (40 if algorithm == BATCHES else solved)
    assert sorted(event["iteration"] for event in run.read_events("batch")) == list(range(5))


def test_groups_that_are_cut_otherwise_from_now_on_train_no_episode_twice(new_run):
    run = new_run()
    for iterations, group_by in ((1, "task"), (2, "chain")):
        loop = (BATCHES, ASYNC, "tasks.train=dial:1", f"loop.iterations={iterations}", f"rl.data.group_by={group_by}")
        looped(run, *loop)
    assert check_ledger(run, bound=1)["versions"] == 2


def test_a_trainer_that_fails_ends_the_loop_with_its_error_and_the_batch_is_made_again(new_run):
    run = new_run()
    code, _, error = run.finish(BATCHES, ASYNC, "loop.iterations=1", TRAINER_FAILS="1")
    assert code == 4 and "the trainer broke" in error
    (before,) = run.read_ledger().values()
    looped(run, command="resume")
    (after,) = run.read_ledger().values()
    assert after == before
    check_ledger(run, bound=0)


def test_a_policy_that_is_gone_ends_the_loop(new_run):
    run = new_run()
    run.policy = "http://127.0.0.1:9/v1"
    code, _, error = run.finish(BATCHES, ASYNC, "loop.iterations=1", "rollout.policy_wait=0")
    assert code != 0 and "policy_unavailable" in error


def test_episodes_that_never_end_hold_no_batch_up_longer_than_their_deadlines(new_run):
    run = new_run()
    limits = ("rollout.episode_timeout=1", "rollout.max_attempts=1", "loop.iterations=2")
    looped(run, BATCHES, ASYNC, *limits, DIAL_STUCK="3")
    facts = check_ledger(run, bound=1)
    lost = [group for batch in run.read_ledger().values() for group in batch["dropped"]]
    assert facts["versions"] == 2 and lost
    assert {group["reason"] for group in lost} == {"failure"}
    assert facts["trained"] + sum(len(group["trajectories"]) for group in lost) == 16


def test_what_takes_turns_is_refused_on_a_run_that_trains_asynchronously(new_run):
    run = new_run()
    looped(run, BATCHES, ASYNC, "loop.iterations=1")
    for command in ("rollout", "prepare", "loop"):
        words = run.words(command, BATCHES, "loop.mode=sync", "loop.iterations=2")
        message, hint = refused(*words, cwd=run.folder)
        assert ("trains asynchronously" in message, "loop.mode=async" in message + hint) == (True, True)
    looped(run, BATCHES, ASYNC, "loop.iterations=2", "loop.eval_every=1", "rollout.test_episodes=2")  # it goes on
    assert {event["policy"] for event in run.read_events("evaluation")} == {f"policy at {run.policy}"}
    assert check_ledger(run, bound=1)["versions"] == 2


@pytest.mark.parametrize(
    ("assignments", "options", "reply"),
    [
        ((), {"keep_going": True}, "--keep-going"),
        ((), {"phase": Phase.UPDATE}, "--phase update"),
        (("rollout.policy=oracle",), {}, "expert"),
        (("train.executor=ray", "train.nodes=2"), {}, "one node"),
        (("rollout.executor=ray", "rollout.policy=http://127.0.0.1:1/v1"), {}, "rollout.policy=vllm"),
        (("rollout.completion_threshold=0.9",), {}, "completion_threshold"),
        (("rl.data.last_n_iterations=2",), {}, "last_n_iterations"),
        (("rl.actor.recompute_old_log_probs=false",), {}, "recompute"),
        (("train.algorithm=webrl",), {}, "in turns"),
        (("train.algorithm=sft", "loop.stale=drop"), {}, "policy gradients"),
    ],
)
def test_what_an_asynchronous_loop_can_t_do_is_said_before_anything_is_written(tmp_path, assignments, options, reply):
    run, usual = RunDir(tmp_path / "run"), ("rl.actor.recompute_old_log_probs=true", ASYNC)
    assert plan_loop(run, load(["sums"], [*usual])).mode == "async"
    with pytest.raises((SettingsError, UsageError)) as caught:
        plan_loop(run, load(["sums"], [*usual, *assignments]), **options)
    assert reply in f"{caught.value} {caught.value.hint}" and not run.root.exists()


def test_terminated_in_each_stage_and_run_again_a_loop_in_turns_is_the_uninterrupted_one(tmp_path, tiny_model_dir):
    with serve_policy(tiny_model_dir, by_task=True) as url:
        whole, run = (AsyncRun(tmp_path / name, url, tiny_model_dir) for name in ("whole", "terminated"))
        loop = (BATCHES, "loop.iterations=2", "rollout.test_episodes=4", "loop.eval_every=1")
        looped(whole, *loop)
        for stage in STAGES:
            command = run.start(*loop, DIAL_PAUSE="0.2", TRAIN_SECONDS="1")
            command.until(partial(is_in, stage, run, command))
            assert command.send(signal.SIGTERM) == 143, command.err.read_text()[-3000:]
        looped(run, *loop)
    assert list_content(run) == list_content(whole)
    assert sum(one["outcome"]["failure"] == "cancelled" for one in run.read_stored()) > 0
    for version, ids in run.read_trained().items():  # an episode that was cut off has another attempt
        assert {name.partition(".")[0] for name in ids} == whole.read_trained()[version]
    for name, keys in {"evaluation": ("episodes", "successes"), "prepare": ("rows", "tokens")}.items():
        pairs = zip(run.read_events(name), whole.read_events(name), strict=True)
        assert all(one[key] == other[key] for one, other in pairs for key in keys)
    assert run.read_events("prepare")[1]["digest"] == whole.read_events("prepare")[1]["digest"]


def is_in(stage, run, command):
    return stage in command.out.read_text() and (stage or run.read_stored())


def list_content(run):
    """Return what is trained of each episode: its prompts, sampled tokens and reward."""
    content = {}
    for one in run.read_stored():
        if one["outcome"]["failure"] is None:
            steps = [(step["prompt_digest"], step["generation"]["token_ids"]) for step in one["steps"]]
            content[one["episode"]] = (steps, one["outcome"]["reward"])
    return content
