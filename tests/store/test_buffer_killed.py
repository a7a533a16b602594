"""A hundred writers are killed, each at another point of its work: nothing that they were told is stored is lost."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.records.builders import new_run
from webgym_cli.records.task import Split
from webgym_cli.store.buffer import read, scan
from webgym_cli.store.index.query import open_index

KILLS, ROUND = 100, 10
"""Deaths, and how many of them one run sees before a fresh one begins: each is checked against all of its run."""
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def writers():
    """The process that forks writers and kills them; it imports once."""
    command, pipe = [sys.executable, "-m", "tests.store.killed_writer"], subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        yield process
        process.stdin.close()
        assert process.wait() == 0


@pytest.mark.parametrize("first", range(0, KILLS, ROUND))
def test_what_was_acknowledged_outlives_a_kill_at_any_point(tmp_path, writers, first):
    run = new_run(tmp_path / "run")
    stored: dict[str, int] = {}
    judged: set[str] = set()
    for number in range(first, first + ROUND):
        writers.stdin.write(f"{number} {run.root}\n")
        writers.stdin.flush()
        while (line := writers.stdout.readline()) != "dead\n":
            what, name, *length = line.split()
            if what == "stored":
                stored[name] = int(length[0])
            else:
                judged.add(name)
        if number % 5 == 4:  # what is lost stays lost
            check(run, stored, judged)
    assert stored


def check(run, stored, judged):
    """Everything is there, once, whole, in the truth and in the index; at most one line a death is torn or not told."""
    damage = []
    plain = {trajectory.id: trajectory for trajectory in scan(run, Split.TRAIN, 0, damage)}
    with open_index(run) as index:
        rows = list(index.rows("SELECT id, judged FROM trajectories"))
        places = {place.id: place for place in index.places()}
        assert index.one("SELECT count(*) AS lines FROM damage")["lines"] == len(damage) <= 2 * ROUND
    assert len(rows) == len(places) == len(plain) and places.keys() == plain.keys() >= stored.keys()
    assert len(plain) <= len(stored) + ROUND
    for name, length in stored.items():
        assert len(plain[name].instruction) == length
    newest = next(reversed(stored), None)
    if newest is not None:
        assert read(run, places[newest]) == plain[newest]
    assert {row["id"] for row in rows if row["judged"] is False} >= judged
