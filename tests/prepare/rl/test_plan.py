"""What a batch is made of: its groups, its masked trajectories, and what is refused."""

from contextlib import contextmanager

import pytest

from tests.prepare.rl_builders import GREEDY, PLAIN, episode, served, settings, store, talk, write_plan
from tests.records.builders import CRASHED, UNSOLVED, checkpoint
from webgym_cli.errors import MissingStageError, SettingsError, StoreError, WebGymError
from webgym_cli.prepare.rl.drop_reasons import MaskReason
from webgym_cli.prepare.rl.plan import plan_batch
from webgym_cli.records.judgement import Judgement
from webgym_cli.records.sampling import Sampling
from webgym_cli.records.task import Split
from webgym_cli.records.trajectory import FinalState, Generation, Outcome
from webgym_cli.store.buffer import append_judgement
from webgym_cli.store.index.query import open_index
from webgym_cli.util.files import write_json

CHAINS = "agent.num_chains=2"
WAITS = Outcome(stop="answered")


@contextmanager
def planned(run, *overrides):
    with open_index(run) as index:
        yield plan_batch(run, settings("model", *overrides), index, transitions=False)


def batch(run, *overrides):
    """Return the members by number, as (id's number, group, reward, masked)."""
    with planned(run, *overrides) as plan:
        result = list(plan.members())
    assert [member.number for member in result] == list(range(len(result)))
    return [(member.place.id.removeprefix("train-0000-"), member.group, member.reward) for member in result]


def test_the_chains_of_a_draw_are_a_group_in_the_order_of_the_plan(run, tokens):
    """Two draws of two chains each; the second question is drawn again: that is another group."""
    order = [(0, "a", 0), (1, "a", 1), (2, "b", 2), (3, "b", 3), (4, "a", 4), (5, "a", 5)]
    write_plan(run, *(episode(number, task, position=place, seed=number) for number, task, place in order))
    store(run, *(served(talk(number), tokens) for number in (5, 0, 3)))
    store(run, *(served(talk(number, outcome=UNSOLVED), tokens) for number in (4, 1)), rank=1)
    wanted = [("00000", 0, 1.0), ("00001", 0, 0.0), ("00003", 1, 1.0), ("00004", 2, 0.0), ("00005", 2, 1.0)]
    assert batch(run, CHAINS) == wanted
    with planned(run, CHAINS) as plan:
        assert plan.group_by == "chain"
        assert (plan.counts.trained, plan.counts.groups, plan.counts.groups_of_one) == (5, 3, 1)


def test_without_chains_the_episodes_of_a_task_are_a_group(run, tokens):
    write_plan(run, episode(0, "a", seed=1), episode(1, "b", seed=1), episode(2, "a", seed=2), episode(3, "a", seed=1))
    store(run, *(served(talk(number), tokens) for number in range(4)))
    by_task = [("00000", 0, 1.0), ("00002", 0, 1.0), ("00003", 0, 1.0), ("00001", 1, 1.0)]
    assert batch(run) == batch(run, CHAINS, "rl.data.group_by=task") == by_task
    by_start = [("00000", 0, 1.0), ("00003", 0, 1.0), ("00001", 1, 1.0), ("00002", 2, 1.0)]
    assert batch(run, "rl.data.group_by=start") == by_start


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
    with planned(run, "rl.data.last_n_iterations=2") as plan:
        rows = [(member.group, member.policy) for member in plan.members()]
        assert plan.counts.policies == {"model_0": 2, "model_1": 2}
    assert rows == [(0, "model_0"), (0, "model_0"), (1, "model_1"), (1, "model_1")]


def test_an_experts_demonstrations_are_in_no_batch(run, tokens):
    """They have no log-probabilities: with them, the first batch of policy gradients after imitation was refused."""
    write_plan(run, *(episode(number, "a") for number in range(2)))
    store(run, *(talk(number, policy="oracle") for number in range(2)))
    write_plan(run, *(episode(number, "a", iteration=1) for number in range(2)))
    store(run, *(served(talk(number, iteration=1), tokens) for number in range(2)))
    run_at(run, 1)
    with planned(run, "rl.data.last_n_iterations=2", "loop.demonstration_iterations=1") as plan:
        assert (plan.read, plan.counts.trained) == ((1,), 2)


def run_at(run, version):
    """Make a checkpoint that so many trainings lie behind."""
    saved = checkpoint(version, name=f"model_{version}")
    write_json(run.checkpoints / saved.name / "checkpoint.json", saved.model_dump(mode="json"))


def test_an_episode_that_no_plan_has_and_a_plan_of_another_version_are_refused(run, tokens):
    write_plan(run, episode(0))
    store(run, served(talk(0), tokens), served(talk(1), tokens))
    with pytest.raises(StoreError, match=r"train\.iteration_0000\.jsonl: no episode train-0000-00001") as raised:
        batch(run)
    assert raised.value.hint
    next((run.root / "tasks").iterdir()).write_text('{"id": "x"}\n')
    with pytest.raises(StoreError, match="not a plan of this version") as raised:
        batch(run)
    assert "another run" in raised.value.hint


def test_imported_episodes_beside_those_of_a_rollout_are_in_no_batch(run, tokens):
    """The batch of an iteration that had an import before its rollout was refused: they are in no plan."""
    store(run, talk(7).model_copy(update={"id": f"train-0000-webrl-data-{7:016x}", "episode": "other"}))
    with pytest.raises(WebGymError, match="none but imported ones"):
        batch(run)
    write_plan(run, episode(0))
    store(run, served(talk(0), tokens))
    assert batch(run) == [("00000", 0, 1.0)]


def test_what_failed_or_waits_has_no_reward_and_stays_in_its_group(run, tokens):
    write_plan(run, *(episode(number, "a") for number in range(4)))
    store(run, served(talk(0), tokens), talk(1, outcome=CRASHED), served(talk(2, outcome=WAITS), tokens))
    store(run, talk(3, outcome=UNSOLVED).model_copy(update={"steps": ()}))
    assert batch(run) == [("00000", 0, 1.0), ("00001", 0, None), ("00002", 0, None), ("00003", 0, None)]
    with planned(run) as plan:
        reasons = [None, MaskReason.FAILURE, MaskReason.REWARD_UNKNOWN, MaskReason.EMPTY]
        assert [member.masked for member in plan.members()] == reasons
        assert plan.counts.masked == {"empty": 1, "failure": 1, "reward_unknown": 1}
        assert plan.counts.failures == {"browser_crashed": 1}
        assert plan.to_json()["trained"] == plan.counts.groups_of_one == 1


def test_an_episode_counts_once_by_its_last_attempt_and_damaged_lines_are_named(run, tokens):
    write_plan(run, episode(0), episode(1))
    again = served(talk(0), tokens).model_copy(update={"id": "train-0000-00000.1", "attempt": 1})
    store(run, talk(0, outcome=CRASHED), again, served(talk(1), tokens))
    assert batch(run) == [("00000.1", 0, 1.0), ("00001", 1, 1.0)]
    with run.part("train", 0).open("a") as file:
        file.write('{"schema": 1}\n')
    with planned(run) as plan:
        assert len(plan.damaged) == 1 and "part-0.jsonl: the line at byte" in plan.damaged[0]


def test_an_attempt_that_a_mended_check_scored_counts_whatever_ended_those_after_it(run, tokens):
    """The plan has its episode for done, and the batch masked it by the crash of a later attempt."""
    write_plan(run, episode(0))
    failed = Outcome(failure="environment_error", failure_detail="the check failed")
    again = talk(0, outcome=CRASHED).model_copy(update={"id": "train-0000-00000.1", "attempt": 1})
    store(run, served(talk(0, outcome=failed, final=FinalState()), tokens), again)
    facts = {"models": {}, "settings_digest": "d", "judged_at": again.started_at}
    verdict = Judgement(trajectory="train-0000-00000", source="check", reward=1.0, success=True, **facts)
    append_judgement(run, Split.TRAIN, 0, verdict)
    assert batch(run) == [("00000", 0, 1.0)]


def test_two_trajectories_of_one_id_are_masked(run, tokens):
    write_plan(run, episode(0), episode(1))
    store(run, served(talk(0), tokens), served(talk(1), tokens))
    store(run, served(talk(0, outcome=UNSOLVED), tokens), rank=1)
    assert batch(run) == [("00000", 0, None), ("00001", 1, 1.0)]
    with planned(run) as plan:
        assert plan.counts.masked == {"ambiguous_id": 1}


def test_nothing_to_learn_from_is_told_with_the_next_command(run, tokens):
    with pytest.raises(MissingStageError, match="no training trajectories of iteration 0") as raised:
        batch(run)
    assert raised.value.hint.startswith("webgym rollout")
    write_plan(run, episode(0), episode(1))
    store(run, talk(0, outcome=CRASHED), served(talk(1, outcome=WAITS), tokens))
    with pytest.raises(WebGymError, match=r"\(1 x failure, 1 x reward_unknown\)") as raised:
        batch(run)
    assert raised.value.hint.startswith("webgym judge")


def test_episodes_without_token_ids_are_refused_at_once(run, tokens):
    write_plan(run, *(episode(number) for number in range(3)))
    store(run, served(talk(0), tokens), talk(1, policy="oracle"), talk(2))
    with pytest.raises(SettingsError, match=r"train-0000-00001 .*1.* oracle"):
        batch(run)


GREEDY_CHAIN = "agent.greedy_chain=true"


def test_greedy_episodes_are_a_baseline_and_nothing_to_train(run, tokens):
    """Two draws of two chains and their greedy episode, whose server told no tokens."""
    order = [(number, "ab"[number // 3]) for number in range(6)]
    write_plan(run, *(episode(number, task, greedy=number % 3 == 2) for number, task in order))
    store(run, *(served(talk(number), tokens) for number in (0, 1, 3, 4)))
    untold = talk(2, outcome=UNSOLVED, sampling=GREEDY)
    assert untold.steps[0].generation == Generation()
    store(run, untold, talk(5, outcome=CRASHED, sampling=GREEDY))
    with planned(run, CHAINS, GREEDY_CHAIN) as plan:
        assert plan.group_by == "chain"
        assert (plan.counts.trained, plan.counts.greedy, plan.counts.masked) == (4, 1, {"failure": 1})
        rows = [(member.group, member.greedy, member.reward) for member in plan.members()]
        sampled = [[(group, False, 1.0)] * 2 for group in (0, 1)]
        assert rows == [*sampled[0], (0, True, 0.0), *sampled[1], (1, True, None)]


def test_one_chain_and_its_greedy_episode_are_a_group(run, tokens):
    """The same question drawn twice: each draw has its own baseline."""
    write_plan(run, *(episode(number, "a", greedy=number % 2 == 1) for number in range(4)))
    greedy = (talk(number, sampling=GREEDY) for number in (1, 3))
    store(run, *(served(talk(number), tokens) for number in (0, 2)), *greedy)
    assert [group for _, group, _ in batch(run, GREEDY_CHAIN)] == [0, 0, 1, 1]


def test_an_episode_that_was_to_be_greedy_and_was_not_is_no_baseline(run, tokens):
    write_plan(run, episode(0), episode(1, "q0", greedy=True))
    store(run, served(talk(0), tokens), served(talk(1), tokens))
    with planned(run, GREEDY_CHAIN) as plan:
        assert (plan.counts.trained, plan.counts.greedy) == (2, 0)


def sampling(**values):
    return Sampling.model_validate({"temperature": 1.0, **values})


def sampled_from(run, tokens, *samplings):
    """Store an episode of each, and return what the batch is sampled from."""
    write_plan(run, *(episode(number) for number in range(len(samplings))))
    store(run, *(served(talk(number, sampling=result), tokens) for number, result in enumerate(samplings)))
    with planned(run) as plan:
        assert plan.to_json()["sampling"] == plan.sampling.model_dump()
        return plan.sampling


LIMITED = [{"top_k": 2}, {"temperature": 0.7}, {"top_p": 0.9}, {"min_p": 0.1}]


@pytest.mark.parametrize("limits", LIMITED, ids=str)
def test_our_own_server_tells_the_probabilities_that_it_sampled_with(run, tokens, limits):
    result = sampling(**limits, logprobs="processed")
    assert sampled_from(run, tokens, result, result) == result


def test_the_settings_of_today_do_not_decide(run, tokens):
    result = sampling(temperature=0.7, logprobs="processed")
    write_plan(run, episode(0))
    store(run, served(talk(0, sampling=result), tokens))
    with planned(run, "policy_config.temperature=0", "policy_config.top_k=9", "rollout.policy=oracle") as plan:
        assert plan.sampling == result


@pytest.mark.parametrize("limits", LIMITED, ids=str)
@pytest.mark.parametrize("logprobs", ["raw", None])
def test_log_probabilities_of_another_distribution_are_refused(run, tokens, limits, logprobs):
    (changed,) = limits
    with pytest.raises(SettingsError, match=f"{changed}={limits[changed]}") as raised:
        sampled_from(run, tokens, sampling(**limits, logprobs=logprobs))
    assert ("serve.extra_args" if logprobs else "a server that is not ours") in str(raised.value)
    assert f"-s policy_config.{changed}=" in raised.value.hint


def test_of_an_untouched_distribution_all_log_probabilities_are_alike(run, tokens):
    result = sampling(logprobs="raw"), sampling(), sampling(logprobs="processed")
    assert sampled_from(run, tokens, *result) == sampling(logprobs="processed")


def test_several_distributions_are_refused_with_their_counts(run, tokens):
    cold = sampling(temperature=0.7, logprobs="processed")
    with pytest.raises(SettingsError, match=r"2 from temperature=1, top_k=-1, .*, 1 from temperature=0\.7") as raised:
        sampled_from(run, tokens, sampling(), cold, sampling(logprobs="processed"))
    assert "rl.data.last_n_iterations=1" in raised.value.hint


def test_what_is_not_trained_on_may_be_of_any_distribution(run, tokens):
    write_plan(run, *(episode(number) for number in range(3)))
    cold = sampling(temperature=0.7)
    store(run, talk(0, outcome=CRASHED, sampling=cold), served(talk(1, outcome=WAITS, sampling=cold), tokens))
    store(run, served(talk(2), tokens))
    with planned(run) as plan:
        assert plan.sampling == PLAIN


def test_trajectories_that_do_not_tell_are_refused(run, tokens):
    untold = [served(talk(number), tokens).model_copy(update={"sampling": None}) for number in (1, 2)]
    write_plan(run, *(episode(number) for number in range(3)))
    store(run, served(talk(0), tokens), *untold)
    named = r"train-0000-00001 \(and 1 more\) was sampled from is not known \(policy base\)"
    with pytest.raises(SettingsError, match=named) as raised:
        batch(run)
    assert "webgym prepare" in raised.value.hint


def test_nothing_is_sampled_at_temperature_0(run, tokens):
    """The plan did not ask for it: the settings did."""
    with pytest.raises(SettingsError, match=r"policy_config\.temperature: train-0000-00000 \(and 1 more\)") as raised:
        sampled_from(run, tokens, GREEDY, GREEDY)
    assert "policy_config.temperature=1" in raised.value.hint
