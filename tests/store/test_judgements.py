"""Judgements beside trajectories: each is kept, the newest counts."""

import pytest

from tests.records.builders import trajectory
from tests.records.test_judgement import ANSWERED, WEB, judgement
from webgym_cli.records.task import Split
from webgym_cli.store.buffer import append, append_judgement, read_judgements, scan, scan_stored

FIRST, SECOND, THIRD = (f"2026-01-0{day}T00:00:00.000+00:00" for day in (1, 2, 3))
TRAIN = Split.TRAIN


@pytest.fixture
def run(run):
    """A run with four answered episodes that nobody has judged."""
    for number in range(4):
        append(run, trajectory(number, steps=0, outcome=ANSWERED, task=WEB))
    return run


def say(run, number, at=FIRST, rank=0, **changes):
    append_judgement(run, TRAIN, 0, judgement(trajectory=f"train-0000-0000{number}", judged_at=at, **changes), rank)


def rewards(run):
    return [episode.outcome.reward for episode in scan(run, TRAIN, 0)]


def test_the_newest_judgement_counts_and_the_older_ones_are_kept(run):
    say(run, 0, FIRST, success=False)
    say(run, 0, THIRD, success=True)
    say(run, 0, SECOND, success=False)  # written by another process, later but older
    assert rewards(run) == [1.0, None, None, None]
    (kept,) = read_judgements(run, TRAIN, 0).values()
    assert [verdict.judged_at for verdict in kept] == [FIRST, SECOND, THIRD]
    assert [episode.outcome.reward for episode in scan_stored(run, TRAIN, 0)] == [None] * 4


def test_a_damaged_verdict_is_named_and_the_older_one_counts(run):
    say(run, 0, FIRST, success=True)
    path = run.verdicts(TRAIN, 0)
    with path.open("a") as file:
        file.write('{"schema": 1, "trajectory": "train-0000-00000"}\n{"torn": ')
    damage = []
    assert [episode.outcome.reward for episode in scan(run, TRAIN, 0, damage)] == [1.0, None, None, None]
    (line,) = damage
    assert line.startswith(f"{path}:2: ")
    say(run, 0, SECOND, success=False)
    assert rewards(run)[0] == 0.0
