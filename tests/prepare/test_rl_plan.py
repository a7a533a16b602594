"""What a batch is made of: its groups, its masked trajectories, and what is refused."""

import json
from contextlib import contextmanager

import pytest

from tests.prepare.rl_made import build_model, episode, served, settings, store, talk, write_plan
from tests.records.made import CRASHED, UNSOLVED
from webgym_cli.agent.tokens import ModelTokens
from webgym_cli.errors import MissingStageError, SettingsError, StoreError, UsageError, WebGymError
from webgym_cli.prepare.rl.options import GroupBy, RlOptions
from webgym_cli.prepare.rl.plan import plan_batch
from webgym_cli.prepare.rl.reasons import Masked
from webgym_cli.prepare.rl.sampling import sampling_of
from webgym_cli.records.checkpoint import Checkpoint
from webgym_cli.records.trajectory import Generation, Outcome
from webgym_cli.store.files import write_json
from webgym_cli.store.index.query import open_index
from webgym_cli.store.metrics import record
from webgym_cli.store.run import RunDir

CHAINS = "agent.num_chains=2"
WAITS = Outcome(stop="answered")


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    return ModelTokens(str(build_model(tmp_path_factory.mktemp("model"))))


@pytest.fixture
def run(tmp_path):
    return RunDir(tmp_path / "run")


@contextmanager
def planned(run, *overrides, **options):
    with open_index(run) as index:
        yield plan_batch(run, settings("model", *overrides), index, RlOptions(**options))


def batch(run, *overrides, **options):
    """Return the members by number, as (id's number, group, reward, masked)."""
    with planned(run, *overrides, **options) as plan:
        found = list(plan.members())
    assert [member.number for member in found] == list(range(len(found)))
    return [(member.place.id.removeprefix("train-0000-"), member.group, member.reward) for member in found]


# --- groups


def test_the_chains_of_a_draw_are_a_group_in_the_order_of_the_plan(run, tokens):
    """Two draws of two chains each; the second question is drawn again: that is another group."""
    order = [(0, "a", 0), (1, "a", 1), (2, "b", 2), (3, "b", 3), (4, "a", 4), (5, "a", 5)]
    write_plan(run, *(episode(number, task, position=place, seed=number) for number, task, place in order))
    store(run, *(served(talk(number), tokens) for number in (5, 0, 3)))
    store(run, *(served(talk(number, outcome=UNSOLVED), tokens) for number in (4, 1)), rank=1)
    assert batch(run, CHAINS) == [
        ("00000", 0, 1.0), ("00001", 0, 0.0), ("00003", 1, 1.0), ("00004", 2, 0.0), ("00005", 2, 1.0),
    ]  # fmt: skip
    with planned(run, CHAINS) as plan:
        assert plan.group_by is GroupBy.CHAIN
        assert (plan.counts.trained, plan.counts.groups, plan.counts.groups_of_one) == (5, 3, 1)


def test_without_chains_the_episodes_of_a_task_are_a_group(run, tokens):
    write_plan(run, episode(0, "a", seed=1), episode(1, "b", seed=1), episode(2, "a", seed=2), episode(3, "a", seed=1))
    store(run, *(served(talk(number), tokens) for number in range(4)))
    by_task = [("00000", 0, 1.0), ("00002", 0, 1.0), ("00003", 0, 1.0), ("00001", 1, 1.0)]
    assert batch(run) == batch(run, CHAINS, group_by=GroupBy.TASK) == by_task
    by_start = [("00000", 0, 1.0), ("00003", 0, 1.0), ("00001", 1, 1.0), ("00002", 2, 1.0)]
    assert batch(run, group_by=GroupBy.START) == by_start


def test_tasks_of_two_bands_may_have_the_same_position(run, tokens):
    write_plan(run, episode(0, "a", position=0), episode(1, "b", position=0), episode(2, "a", position=1))
    store(run, *(served(talk(number), tokens) for number in range(3)))
    assert batch(run, CHAINS) == [("00000", 0, 1.0), ("00002", 0, 1.0), ("00001", 1, 1.0)]


def test_groups_do_not_reach_over_iterations(run, tokens):
    for iteration in (0, 1):
        write_plan(run, *(episode(number, "a", iteration=iteration) for number in range(2)))
        policy = f"model_{iteration}"
        store(run, *(served(talk(number, iteration=iteration, policy=policy), tokens) for number in range(2)))
    run_at(run, 1)
    with planned(run) as plan:
        assert plan.read == (1,)
    with planned(run, last_n_iterations=2) as plan:
        found = [(member.group, member.policy) for member in plan.members()]
        assert plan.counts.policies == {"model_0": 2, "model_1": 2}
    assert found == [(0, "model_0"), (0, "model_0"), (1, "model_1"), (1, "model_1")]


def run_at(run, version):
    """Make a checkpoint that so many trainings lie behind."""
    name = f"model_{version}"
    made = Checkpoint(
        name=name,
        version=version,
        iteration=version - 1,
        parent="base",
        data_digest="",
        resumable=False,
        steps=1,
        created_at="2026-01-02T03:04:05+00:00",
    )
    write_json(run.checkpoints / name / "checkpoint.json", made.model_dump(mode="json"))


def test_an_episode_that_no_plan_has_is_refused(run, tokens):
    write_plan(run, episode(0))
    store(run, served(talk(0), tokens), served(talk(1), tokens))
    with pytest.raises(StoreError, match=r"train\.iteration_0000\.jsonl: no episode train-0000-00001") as raised:
        batch(run)
    assert raised.value.hint


def test_a_plan_of_another_version_is_named(run, tokens):
    write_plan(run, episode(0))
    store(run, served(talk(0), tokens))
    path = next((run.root / "tasks").iterdir())
    path.write_text('{"id": "x"}\n')
    with pytest.raises(StoreError, match="not a plan of this version"):
        batch(run)


# --- masks


def test_what_failed_or_waits_has_no_reward_and_stays_in_its_group(run, tokens):
    write_plan(run, *(episode(number, "a") for number in range(4)))
    store(run, served(talk(0), tokens), talk(1, outcome=CRASHED), served(talk(2, outcome=WAITS), tokens))
    store(run, talk(3, outcome=UNSOLVED).model_copy(update={"steps": ()}))
    assert batch(run) == [("00000", 0, 1.0), ("00001", 0, None), ("00002", 0, None), ("00003", 0, None)]
    with planned(run) as plan:
        assert [member.masked for member in plan.members()] == [
            None, Masked.FAILURE, Masked.REWARD_UNKNOWN, Masked.EMPTY,
        ]  # fmt: skip
        assert plan.counts.masked == {"empty": 1, "failure": 1, "reward_unknown": 1}
        assert plan.counts.failures == {"browser_crashed": 1}
        assert plan.to_json()["trained"] == plan.counts.groups_of_one == 1


def test_an_episode_counts_once_by_its_last_attempt(run, tokens):
    write_plan(run, episode(0), episode(1))
    again = served(talk(0), tokens).model_copy(update={"id": "train-0000-00000.1", "attempt": 1})
    store(run, talk(0, outcome=CRASHED), again, served(talk(1), tokens))
    assert batch(run) == [("00000.1", 0, 1.0), ("00001", 1, 1.0)]


def test_two_trajectories_of_one_id_are_masked(run, tokens):
    write_plan(run, episode(0), episode(1))
    store(run, served(talk(0), tokens), served(talk(1), tokens))
    store(run, served(talk(0, outcome=UNSOLVED), tokens), rank=1)
    assert batch(run) == [("00000", 0, None), ("00001", 1, 1.0)]
    with planned(run) as plan:
        assert plan.counts.masked == {"ambiguous_id": 1}


def test_damaged_lines_are_named(run, tokens):
    write_plan(run, episode(0), episode(1))
    store(run, served(talk(0), tokens))
    with run.part("train", 0).open("a") as file:
        file.write('{"schema": 1}\n')
    with planned(run) as plan:
        assert len(plan.damaged) == 1 and "part-0.jsonl: the line at byte" in plan.damaged[0]


def test_nothing_to_learn_from_is_told_with_the_next_command(run, tokens):
    with pytest.raises(MissingStageError, match="no training trajectories of iteration 0") as raised:
        batch(run)
    assert raised.value.hint.startswith("webgym rollout")
    write_plan(run, episode(0), episode(1))
    store(run, talk(0, outcome=CRASHED), served(talk(1, outcome=WAITS), tokens))
    with pytest.raises(WebGymError, match=r"\(1 x failure, 1 x reward_unknown\)") as raised:
        batch(run)
    assert raised.value.hint.startswith("webgym judge")


# --- what the server told


def test_episodes_without_token_ids_are_refused_at_once(run, tokens):
    write_plan(run, *(episode(number) for number in range(3)))
    store(run, served(talk(0), tokens), talk(1, policy="oracle"), talk(2))
    with pytest.raises(SettingsError, match=r"train-0000-00001 \(and 1 more\) has no token ids \(policy oracle\)"):
        batch(run)


def test_a_failure_needs_no_token_ids(run, tokens):
    write_plan(run, episode(0), episode(1))
    store(run, served(talk(0), tokens), talk(1, outcome=CRASHED))
    assert batch(run)[1] == ("00001", 1, None)


def test_greedy_episodes_are_a_baseline_and_nothing_to_train(run, tokens):
    write_plan(run, *(episode(number, "a") for number in range(3)))
    untold = talk(2, outcome=UNSOLVED)
    assert untold.steps[0].generation == Generation()
    store(run, served(talk(0), tokens), served(talk(1), tokens), untold)
    with planned(run, greedy=frozenset({"train-0000-00002"})) as plan:
        assert (plan.counts.trained, plan.counts.greedy) == (2, 1)
        assert [(member.greedy, member.reward) for member in plan.members()] == [
            (False, 1.0), (False, 1.0), (True, 0.0),
        ]  # fmt: skip
    with pytest.raises(UsageError, match="no greedy trajectory 'train-0000-00009' in the batch"):
        batch(run, greedy=frozenset({"train-0000-00002", "train-0000-00009"}))


# --- what was sampled from

TOP_K = "policy_config.top_k=2"
ELSEWHERE = "rollout.policy=http://127.0.0.1:1/v1"


@pytest.fixture
def ours(run):
    """A run in which our own server was started."""
    record(run, {"event": "serve", "seconds": 1.0, "url": "http://127.0.0.1:8999/v1", "model": "base"})
    return run


def test_our_own_server_tells_the_probabilities_that_it_sampled_with(ours):
    sampling = sampling_of(ours, settings("model", TOP_K, "policy_config.temperature=0.7"), RlOptions())
    assert sampling.model_dump() == {"temperature": 0.7, "top_k": 2, "top_p": 1.0, "min_p": 0.0}
    assert sampling_of(ours, settings("model", "policy_config.top_k=0"), RlOptions()).top_k == -1


@pytest.mark.parametrize(
    "override", [TOP_K, "policy_config.temperature=0.7", "policy_config.top_p=0.9", "policy_config.min_p=0.1"]
)
def test_raw_log_probabilities_of_another_distribution_are_refused(ours, override):
    changed = override.partition("=")[0].partition(".")[2]
    raw = settings("model", override, ELSEWHERE)
    with pytest.raises(SettingsError, match=changed) as raised:
        sampling_of(ours, raw, RlOptions())
    assert f"-s policy_config.{changed}=" in raised.value.hint
    told = sampling_of(ours, raw, RlOptions(processed_logprobs=True))
    assert told == sampling_of(ours, settings("model", override), RlOptions())
    assert sampling_of(ours, settings("model", ELSEWHERE), RlOptions()).untouched


def test_a_server_that_was_named_on_the_command_line_is_not_taken_for_ours(run):
    """`--policy URL` leaves the settings as they are; a server of our own would have been started."""
    with pytest.raises(SettingsError, match="top_k=2"):
        sampling_of(run, settings("model", TOP_K), RlOptions())
    assert sampling_of(run, settings(), RlOptions()).untouched


@pytest.mark.parametrize("arguments", [["--logprobs-mode", "raw_logprobs"], ["--logprobs_mode=raw_logprobs"]])
def test_arguments_of_ones_own_can_make_our_server_s_raw(ours, arguments):
    extra = f"serve.extra_args={json.dumps(arguments)}"
    with pytest.raises(SettingsError, match="before temperature"):
        sampling_of(ours, settings("model", TOP_K, extra), RlOptions())
    assert sampling_of(ours, settings("model", extra), RlOptions()).untouched


def test_logits_are_no_log_probabilities(ours):
    with pytest.raises(SettingsError, match=r"serve\.extra_args: --logprobs-mode raw_logits"):
        sampling_of(ours, settings("model", 'serve.extra_args=["--logprobs-mode", "raw_logits"]'), RlOptions())


def test_nothing_is_sampled_at_temperature_0(ours):
    with pytest.raises(SettingsError, match=r"policy_config\.temperature") as raised:
        sampling_of(ours, settings("model", "policy_config.temperature=0"), RlOptions())
    assert "policy_config.temperature=1" in raised.value.hint


@pytest.mark.parametrize("wrong", [{"last_n_iterations": 0}, {"max_row_tokens": 1}])
def test_options_that_can_not_be_are_refused(wrong):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        RlOptions(**wrong)
