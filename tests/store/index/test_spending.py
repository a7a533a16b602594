"""What a run has spent."""

import pytest

from tests.records.builders import CRASHED, SOLVED, UNSOLVED, trajectory
from tests.report.test_training_metrics import batch
from webgym_cli.config.cost import list_shares
from webgym_cli.config.load import load
from webgym_cli.errors import SettingsError
from webgym_cli.jobs.budget import Work
from webgym_cli.records.batch import BatchGroup
from webgym_cli.records.judgement import Judgement
from webgym_cli.records.task import Split
from webgym_cli.records.usage import TokenUsage
from webgym_cli.store.buffer import append, append_judgement
from webgym_cli.store.index.query import open_index
from webgym_cli.store.index.spending import open_budget, read_spending
from webgym_cli.store.metrics import append_batch, append_event
from webgym_cli.store.run import create_or_open

JUDGED = {"models": {}, "settings_digest": "0", "success": True, "judged_at": "2026-01-01T00:00:00Z"}


def test_each_policy_has_its_own_price_and_new_tasks_are_counted_by_request(run):
    prices = 'cost.prices={"m1": {"prompt": 1, "completion": 1}, "g": {"prompt": 3, "completion": 3}}'
    settings = load(overrides=[prices])
    create_or_open(run, settings)
    million = TokenUsage(prompt=10**6)
    for number, name in enumerate(("m1 at http://a/v1", "m2 at http://b/v1")):
        append(run, trajectory(number, policy=name, other_tokens=million if name.startswith("m1") else TokenUsage()))
    append_event(run, {"event": "generator_tokens", "model": "g", "calls": 1, "tokens": million.model_dump()})
    append_event(run, {"event": "generate", "model": "g", "kept": 1})
    with open_index(run) as index:
        spent = read_spending(run, settings, index)
        assert (spent["policy_cost"], spent["generator_cost"], spent["cost"]) == (1.0, 3.0, 4.0)
        append(run, trajectory(2, policy="m2 at http://b/v1", other_tokens=million))
        for place in ({"split": Split.TEST}, {"iteration": 1}):  # other episodes, whatever their ids
            append(run, trajectory(2, policy="m2 at http://b/v1", **place).model_copy(update={"episode": "e"}))
    with open_index(run) as index:
        spent = read_spending(run, settings, index)
        assert (spent["policy_cost"], spent["episodes"]) == (None, 5), "m2 has no price"


def test_seconds_tokens_and_cost_by_step_episode_success_and_trained_trajectory(run):
    settings = load(overrides=['cost.prices={"m1": {"prompt": 1, "completion": 10}}'])
    create_or_open(run, settings)
    ids = []
    for number, outcome in enumerate((SOLVED, SOLVED, UNSOLVED, UNSOLVED)):
        tokens = TokenUsage(prompt=10**6, completion=10**5)
        machine = {"cpu_seconds": 3.0, "gpu_seconds": 1.5}
        one = trajectory(number, outcome=outcome, policy="m1 at http://a/v1", other_tokens=tokens, steps=2, **machine)
        append(run, one)
        ids.append(one.id)
    # another attempt is no other episode, as in an evaluation's record, at another server neither
    for attempt, place in enumerate(("a", "b", "a"), 1):
        again = {"attempt": attempt, "id": f"again{attempt}", "policy": f"m1 at http://{place}/v1"}
        append(run, trajectory(0, outcome=CRASHED, steps=0, **again))
    calls = Judgement(trajectory=ids[0], calls=8, **JUDGED)
    append_judgement(run, Split.TRAIN, 0, calls)
    trained = {"iteration": 0, "version": 1, "name": "m", "parent": "p", "steps": 1, "created_at": "2026-01-01"}
    append_event(run, {"event": "train", **trained, "seconds": 60.0, "gpus": 8, "cpu_seconds": 4.0})
    for parent in (0, 1):  # the second one's training has not ended
        group = BatchGroup(id=ids[parent], trajectories=ids[parent : parent + 2])
        append_batch(run, batch(parent).model_copy(update={"groups": (group,)}))
    with open_index(run) as index:
        spent = read_spending(run, settings, index)
    prompts = spent["policy_tokens"]
    assert (prompts["prompt"], prompts["completion"]) == (4 * 10**6, 4 * 10**5)  # 4 + 4 in cost
    counts = ("steps", "episodes", "successes", "trained_trajectories")
    assert [spent[name] for name in counts] == [8, 4, 2, 2]
    shares = ("step", "episode", "success", "trained_trajectory")
    by_hand = {
        "cost": [8, 1, 2, 4, 4],
        "tokens": [4_400_000, 550_000, 1_100_000, 2_200_000, 2_200_000],
        "judge_calls": [8, 1, 2, 4, 4],
        "cpu_seconds": [16, 2, 4, 8, 8],  # 4 * 3 + 4
        "gpu_seconds": [486, 60.75, 121.5, 243, 243],  # 4 * 1.5 + 8 * 60
    }
    assert [list(row[1:]) for row in list_shares(spent)] == list(by_hand.values())
    assert [spent[f"cpu_seconds_per_{share}"] for share in shares] == by_hand["cpu_seconds"][1:]


def test_a_budget_counts_what_the_survey_spent(run):
    settings = load(overrides=["cost.max_judge_calls=9"])
    for one, calls in ((run, 2), (run.survey, 3)):
        create_or_open(one, settings)
        append(one, trajectory(0))
        judged = Judgement(trajectory=trajectory(0).id, calls=calls, **JUDGED)
        append_judgement(one, Split.TRAIN, 0, judged)
    budget = open_budget(run, settings)
    assert (budget.judge_calls, budget.largest_judgement) == (5, 3)


def test_a_limit_of_the_cost_without_prices_is_refused(run):
    with pytest.raises(SettingsError, match=r"cost\.max_cost"):
        open_budget(run, load(overrides=["cost.max_cost=1"]))


def test_each_model_of_a_judge_has_its_own_price_and_old_judgements_have_none(run):
    overrides = ['cost.prices={"big": {"prompt": 5, "completion": 10}, "small": {"prompt": 1, "completion": 2}}']
    settings = load(overrides=[*overrides, "cost.max_cost=100"])
    create_or_open(run, settings)
    append(run, trajectory(0))
    million = TokenUsage(prompt=10**6, completion=10**6)
    facts = JUDGED | {"trajectory": trajectory(0).id}
    small = facts | {"models": {"blocking": "small", "verdict": "big"}, "tokens": million + million, "calls": 2}
    two = Judgement(tokens_by_model={"big": million, "small": million}, **small)
    one = Judgement(**facts | {"models": {"blocking": "big", "verdict": "big"}, "tokens": million, "calls": 1})
    for judged in (two, one):
        append_judgement(run, Split.TRAIN, 0, judged)
    budget = open_budget(run, settings)
    assert (budget.spent, budget.judge_calls) == (33.0, 3)  # (5 + 10) + (1 + 2) + (5 + 10)
    for judged in (two, one):
        budget.charge(Work.JUDGEMENT, judged.requests, judged.calls)
    assert (budget.spent, budget.judge_calls) == (66.0, 6)
    append_judgement(run, Split.TRAIN, 0, two.model_copy(update={"tokens_by_model": {}}))
    with open_index(run) as index:
        spent = read_spending(run, settings, index)
    assert (spent["judge_cost"], spent["judge_tokens"]["prompt"]) == (None, 5 * 10**6), "not told apart"
