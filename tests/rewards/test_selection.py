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
def run(made_run):
    """A run with an episode of every kind; `test` and iteration 1 have one new episode each."""
    kinds = {"crashed": CRASHED, "scored": SCORED, "ended": SOLVED}
    for number, name in enumerate(NAMES):
        changes = {"outcome": kinds[name]} if name in kinds else {}
        episode = answered(number, id=name, **changes)
        append(
            made_run,
            trajectory(number, id=name, steps=0, outcome=UNSOLVED, task=Task(id="click-test"))
            if name == "miniwob"
            else episode,
        )
    append(made_run, answered(0, id="later", iteration=1))
    append(made_run, answered(0, id="held-out", split=Split.TEST))
    for name, changes in {
        "same": {"settings_digest": DIGEST, "success": True},
        "other": {"settings_digest": OTHER, "success": True},
        "failed": {"settings_digest": DIGEST, "failure": FailureKind.JUDGE_FAILED},
        "blocked": {"settings_digest": DIGEST, "failure": FailureKind.SITE_BLOCKED},
    }.items():
        append_judgement(made_run, Split.TRAIN, 0, judgement(trajectory=name, **changes))
    return made_run


def owed(run, **query):
    return [
        pending_trajectory.id
        for pending_trajectory in plan_scoring(run, JudgeScorer(SETTINGS), ScoringQuery(**query)).pending
    ]


def test_what_has_no_verdict_is_owed(run):
    plan = plan_scoring(run, JudgeScorer(SETTINGS), ScoringQuery())
    assert [pending_trajectory.id for pending_trajectory in plan.pending] == ["new", "failed", "later", "held-out"]
    assert plan.skipped == {
        "judged_with_these_settings": 2,
        "not_selected": 1,
        "infrastructure_failure": 1,
        "scored_by_environment": 3,
    }
    assert plan.to_json() == {
        "event": "plan",
        "stage": "judge",
        "owed": 4,
        "skipped_infrastructure_failure": 1,
        "skipped_scored_by_environment": 3,
        "skipped_judged_with_these_settings": 2,
        "skipped_not_selected": 1,
        "owed_by_iteration": {"train 0": 2, "train 1": 1, "test 0": 1},
        "models": {name: SETTINGS.model for name in ("key_points", "blocking", "verdict")},
        "settings_digest": DIGEST,
    }


def test_with_other_settings_everything_is_owed(run):
    votes = SETTINGS.model_copy(update={"votes": 3})
    plan = plan_scoring(run, JudgeScorer(votes), ScoringQuery(selection=ScoringSelection.ALL))
    assert [pending_trajectory.id for pending_trajectory in plan.pending][:5] == [
        "new",
        "same",
        "other",
        "failed",
        "blocked",
    ]


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
    assert owed(run, **query) == names


def test_what_was_said_before_is_known(run):
    plan = plan_scoring(run, JudgeScorer(SETTINGS), ScoringQuery(selection=ScoringSelection.ALL))
    facts = {
        pending_trajectory.id: (pending_trajectory.previous, pending_trajectory.environment)
        for pending_trajectory in plan.pending
    }
    assert (facts["new"], facts["other"]) == ((None, None), (True, None))
    assert (facts["failed"], facts["scored"]) == ((None, None), (None, False))


def test_an_unknown_id_is_named(run):
    with pytest.raises(UsageError, match=r"no trajectory 'nosuch' \(and 1 more\)"):
        owed(run, ids=("new", "nosuch", "neither"))
    with pytest.raises(UsageError, match="no trajectory 'later'"):
        owed(run, ids=("later",), iteration=0)


def test_nothing_to_look_at_names_the_next_command(run):
    with pytest.raises(MissingStageError, match="no train trajectories of iteration 7 to judge") as caught:
        owed(run, split=Split.TRAIN, iteration=7)
    assert caught.value.hint == f"webgym rollout {run.root}"


def test_damaged_lines_are_told(run):
    with run.part(Split.TRAIN, 0).open("a") as file:
        file.write("{}\n")
    (line,) = plan_scoring(run, JudgeScorer(SETTINGS), ScoringQuery()).damaged
    assert line.startswith(f"{run.part(Split.TRAIN, 0)}:10: ")


def test_what_is_owed_is_loaded_as_it_was_stored(run):
    plan = plan_scoring(run, JudgeScorer(SETTINGS), ScoringQuery(selection=ScoringSelection.ALL))
    loaded = list(load_pending(run, plan.pending))
    assert [(pending_trajectory.id, episode.id) for pending_trajectory, episode in loaded] == [
        (pending_trajectory.id, pending_trajectory.id) for pending_trajectory in plan.pending
    ]
    assert all(episode.outcome.scores in ((), SCORED.scores) for _, episode in loaded)
