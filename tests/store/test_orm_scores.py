"""An outcome reward model's judgements beside a judge's: files and index say the same of what counts."""

import pytest

from tests.records.builders import CRASHED, new_run, trajectory
from tests.records.test_judgement import ANSWERED, SCORED, WEB, by_orm, judgement
from tests.store.test_judgements import FIRST, SECOND, THIRD, TRAIN
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.trajectory import Outcome
from webgym_cli.store.buffer import append, append_judgement, read, scan
from webgym_cli.store.index.query import open_index

NAME = "train-0000-00000"
YES, NO = by_orm(0.9), by_orm(0.2, success=False)
FAILED, BLOCKED = (judgement(failure=kind) for kind in (FailureKind.JUDGE_FAILED, FailureKind.SITE_BLOCKED))
OPEN_REWARD = Outcome(reward=0.0, stop=ANSWERED.stop, answer="42")


@pytest.fixture
def tell(tmp_path):
    """Store one episode and what was said of it, oldest first, and return what its row of the index says."""

    def stored(outcome, *reply):
        run = new_run(tmp_path / "run")
        append(run, trajectory(0, steps=0, outcome=outcome, task=WEB))
        for moment, one in zip((FIRST, SECOND, THIRD), reply, strict=False):
            append_judgement(run, TRAIN, 0, one.model_copy(update={"trajectory": NAME, "judged_at": moment}))
        (episode,) = scan(run, TRAIN, 0)
        with open_index(run) as index:
            row = index.one("SELECT reward, failure, success, judged_by, orm_probability FROM trajectories")
            (place,) = index.places()
        assert read(run, place) == episode
        failure = episode.outcome.failure and episode.outcome.failure.value
        assert (row["reward"], row["failure"]) == (episode.outcome.reward, failure)
        assert row["success"] == episode.outcome.success
        return row

    return stored


@pytest.mark.parametrize(
    ("outcome", "values", "reward", "by", "probability"),
    [
        (ANSWERED, [YES], 1.0, "orm", 0.9),
        (ANSWERED, [YES, NO], 0.0, "orm", 0.2),
        (ANSWERED, [judgement(success=False), YES], 0.0, "judge", 0.9),
        (ANSWERED, [YES, judgement(success=False)], 0.0, "judge", 0.9),
        (ANSWERED, [FAILED, YES], 1.0, "orm", 0.9),
        (ANSWERED, [YES, FAILED], 1.0, "orm", 0.9),
        (ANSWERED, [YES, BLOCKED], None, "judge", 0.9),
        (SCORED, [YES], 0.0, "orm", 0.9),
        (OPEN_REWARD, [YES], 0.0, "orm", 0.9),
        (CRASHED, [YES], None, "orm", 0.9),
        (ANSWERED, [], None, None, None),
    ],
    ids=[
        *("alone", "newest", "after a judge", "before a judge", "judge had failed", "judge failed", "blocked"),
        *("environment", "known reward", "crashed", "nothing said"),
    ],
)
def test_files_and_index_agree_on_what_counts(tell, outcome, values, reward, by, probability):
    row = tell(outcome, *values)
    assert (row["reward"], row["judged_by"], row["orm_probability"]) == (reward, by, probability)
