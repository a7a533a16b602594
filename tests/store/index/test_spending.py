"""What a run has spent."""

from tests.records.builders import trajectory
from webgym_cli.config.load import load
from webgym_cli.jobs.budget import Work
from webgym_cli.records.judgement import Judgement
from webgym_cli.records.task import Split
from webgym_cli.records.usage import TokenUsage
from webgym_cli.store.buffer import append, append_judgement
from webgym_cli.store.index.query import open_index
from webgym_cli.store.index.spending import open_budget, read_spending
from webgym_cli.store.metrics import append_event
from webgym_cli.store.run import create_or_open


def test_each_policy_has_its_own_price_and_new_tasks_are_counted_by_request(run):
    settings = load(
        overrides=['cost.prices={"m1": {"prompt": 1, "completion": 1}, "g": {"prompt": 3, "completion": 3}}']
    )
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
    with open_index(run) as index:
        assert read_spending(run, settings, index)["policy_cost"] is None, "m2 has no price"


def test_a_budget_counts_what_the_survey_spent(run):
    settings = load(overrides=["cost.max_judge_calls=9"])
    for one, calls in ((run, 2), (run.survey, 3)):
        create_or_open(one, settings)
        append(one, trajectory(0))
        judged = Judgement(
            trajectory=trajectory(0).id,
            models={},
            settings_digest="0",
            success=True,
            calls=calls,
            judged_at="2026-01-01T00:00:00Z",
        )
        append_judgement(one, Split.TRAIN, 0, judged)
    budget = open_budget(run, settings)
    assert (budget.judge_calls, budget.largest_judgement) == (5, 3)


def test_each_model_of_a_judge_has_its_own_price_and_old_judgements_have_none(run):
    overrides = ['cost.prices={"big": {"prompt": 5, "completion": 10}, "small": {"prompt": 1, "completion": 2}}']
    settings = load(overrides=[*overrides, "cost.max_cost=100"])
    create_or_open(run, settings)
    append(run, trajectory(0))
    million = TokenUsage(prompt=10**6, completion=10**6)
    facts = {
        "trajectory": trajectory(0).id,
        "settings_digest": "0",
        "success": True,
        "judged_at": "2026-01-01T00:00:00Z",
    }
    jobs = {"blocking": "small", "verdict": "big"}
    two = Judgement(
        models=jobs, tokens=million + million, tokens_by_model={"big": million, "small": million}, calls=2, **facts
    )
    one = Judgement(models={"blocking": "big", "verdict": "big"}, tokens=million, calls=1, **facts)
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
