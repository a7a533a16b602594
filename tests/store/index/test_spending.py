"""What a run has spent."""

from tests.records.builders import trajectory
from webgym_cli.config.load import load
from webgym_cli.records.judgement import Judgement
from webgym_cli.records.task import Split
from webgym_cli.store.buffer import append, append_judgement
from webgym_cli.store.index.spending import open_budget
from webgym_cli.store.run import create_or_open


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
