"""Which stored trajectories are judged, and why not the rest."""

import pytest

from tests.records.builders import CRASHED, SOLVED, UNSOLVED, trajectory
from tests.records.test_judgement import SCORED, judgement
from tests.rewards.cases import answered
from webgym_cli.config.judge import JudgeSettings
from webgym_cli.errors import MissingStageError, UsageError
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.task import Split, Task
from webgym_cli.rewards.judge.judge import compute_settings_digest
from webgym_cli.rewards.judge.scorer import JudgeScorer
from webgym_cli.rewards.selection import ScoringQuery, ScoringSelection, load_pending, plan_scoring
from webgym_cli.store.buffer import append, append_judgement

SETTINGS = JudgeSettings(base_url="http://127.0.0.1:1/v1")
DIGEST = compute_settings_digest(SETTINGS)
OTHER = "0" * 64
NAMES = ["new", "same", "other", "failed", "blocked", "crashed", "scored", "miniwob", "ended"]


@pytest.fixture
def run(run):
    """A run with an episode of every kind; `test` and iteration 1 have one new episode each."""
    kinds = {"crashed": CRASHED, "scored": SCORED, "ended": SOLVED}
    for number, name in enumerate(NAMES):
        episode = answered(number, id=name, **({"outcome": kinds[name]} if name in kinds else {}))
        if name == "miniwob":
            episode = trajectory(number, id=name, steps=0, outcome=UNSOLVED, task=Task(id="click-test"))
        append(run, episode)
    append(run, answered(0, id="later", iteration=1))
    append(run, answered(0, id="held-out", split=Split.TEST))
    for name, changes in {
        "same": {"settings_digest": DIGEST, "success": True},
        "other": {"settings_digest": OTHER, "success": True},
        "failed": {"settings_digest": DIGEST, "failure": FailureKind.JUDGE_FAILED},
        "blocked": {"settings_digest": DIGEST, "failure": FailureKind.SITE_BLOCKED},
    }.items():
        append_judgement(run, Split.TRAIN, 0, judgement(trajectory=name, **changes))
    return run


def ids(plan):
    return [one.id for one in plan.pending]


def planned(run, settings=SETTINGS, **query):
    return plan_scoring(run, JudgeScorer(settings, run), ScoringQuery(**query))


def test_what_has_no_verdict_is_owed(run):
    plan = planned(run)
    assert ids(plan) == ["new", "failed", "later", "held-out"]
    skipped = {
        "infrastructure_failure": 1,
        "scored_by_environment": 3,
        "judged_with_these_settings": 2,
        "not_selected": 1,
    }
    assert plan.skipped == skipped
    assert plan.to_json() == {
        "event": "plan",
        "stage": "judge",
        "owed": 4,
        **{f"skipped_{why}": count for why, count in skipped.items()},
        "owed_by_iteration": {"train 0": 2, "train 1": 1, "test 0": 1},
        "models": {name: SETTINGS.model for name in ("key_points", "blocking", "verdict")},
        "settings_digest": DIGEST,
    }


def test_with_other_settings_everything_is_owed(run):
    plan = planned(run, SETTINGS.model_copy(update={"votes": 3}), selection=ScoringSelection.ALL)
    assert ids(plan)[:5] == ["new", "same", "other", "failed", "blocked"]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"selection": ScoringSelection.FAILED}, ["failed"]),
        ({"selection": ScoringSelection.ALL}, ["new", "other", "failed", "scored", "later", "held-out"]),
        ({"split": Split.TEST}, ["held-out"]),
        ({"split": Split.TRAIN, "iteration": 1}, ["later"]),
        ({"iteration": 0}, ["new", "failed", "held-out"]),
        ({"ids": ("other", "scored", "same", "crashed")}, ["other", "scored"]),
        ({"ids": ("other", "failed"), "selection": ScoringSelection.FAILED}, ["failed"]),
        ({"ids": ()}, []),
    ],
    ids=str,
)
def test_a_part_can_be_asked_for(run, query, names):
    assert ids(planned(run, **query)) == names


def test_what_was_said_before_is_known_and_what_is_owed_loaded_as_it_was_stored(run):
    broken = judgement(trajectory="other", settings_digest=OTHER, failure=FailureKind.JUDGE_FAILED)
    append_judgement(run, Split.TRAIN, 0, broken)  # it replaces no verdict
    plan = planned(run, selection=ScoringSelection.ALL)
    facts = {one.id: (one.previous, one.environment) for one in plan.pending}
    assert {name: facts[name] for name in ("new", "other", "failed", "scored")} == {
        **dict.fromkeys(("new", "failed"), (None, None)),
        **{"other": (True, None), "scored": (None, False)},
    }
    loaded = list(load_pending(run, plan.pending))
    assert [(one.id, episode.id) for one, episode in loaded] == [(name, name) for name in ids(plan)]
    assert all(episode.outcome.scores in ((), SCORED.scores) for _, episode in loaded)


def test_unknown_ids_nothing_to_look_at_and_damaged_lines_are_named(run):
    with pytest.raises(UsageError, match=r"'nosuch' .*1 more"):
        planned(run, ids=("new", "nosuch", "neither"))
    with pytest.raises(UsageError, match="'later'"):
        planned(run, ids=("later",), iteration=0)
    with pytest.raises(MissingStageError, match="iteration 7") as caught:
        planned(run, split=Split.TRAIN, iteration=7)
    assert caught.value.hint == f"webgym rollout {run.root}"
    with run.part(Split.TRAIN, 0).open("a") as file:
        file.write("{}\n")
    (line,) = planned(run).damaged
    assert line.startswith(f"{run.part(Split.TRAIN, 0)}:10: ")
