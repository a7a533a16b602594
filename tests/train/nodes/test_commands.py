"""The executable as two nodes run it, killed in all ways: the right exit codes, nothing left, and it can go on."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from shlex import quote

import pytest

from tests.executable import Command, refused
from tests.train.nodes.node_runs import NAME, ready
from webgym_cli.store import checkpoints

TIMEOUT = 8.0
"""Seconds of silence that mean death here."""


class TwoNodes:
    """`webgym` on two nodes with one folder."""

    def __init__(self, run, folder: Path) -> None:
        self.run, self.folder = run, folder

    def start(self, rank: int, *words: object, behave: str = "") -> Command:
        more = {"NNODES": "2", "NODE_RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "BEHAVE": behave}
        return Command(self.folder, *(words or ("train", self.run.root)), **more)

    def until_step(self, command: Command, step: int) -> None:
        log = self.run.checkpoints / f"{NAME}.partial/trainer_log.jsonl"
        command.until(lambda: log.is_file() and log.read_text().count("\n") >= step)

    def resumed(self) -> list[dict]:
        """Resume on both nodes to the end and return what node 0 told."""
        other, first = self.start(1, "resume", self.run.root), self.start(0, "resume", self.run.root)
        assert first.finish() == 0, first.err.read_text()
        assert other.finish() == 0, other.err.read_text()
        assert [found.name for found in checkpoints.checkpoints(self.run)] == [NAME]
        return [json.loads(line) for line in first.out.read_text().splitlines()]


@pytest.fixture
def two(run, role, tmp_path) -> TwoNodes:
    ready(run, role, tmp_path / "images", TIMEOUT)
    return TwoNodes(run, tmp_path)


def test_the_same_command_on_both(two):
    first, other = two.start(0), two.start(1)
    assert first.finish() == 0, first.err.read_text()
    assert other.finish() == 0, other.err.read_text()
    assert "node 0 has ended: done" in other.err.read_text()
    assert checkpoints.version(two.run) == 1


def test_a_killed_node_ends_the_training_and_it_goes_on(two):
    first, other = two.start(0, behave="1:wait"), two.start(1, behave="1:wait")
    two.until_step(first, 1)
    other.send(signal.SIGKILL)
    assert first.finish() == 4
    message, hint = refused(first)
    assert message.startswith("node 1 (") and "left the training: its process has ended" in message
    assert hint.startswith(f"webgym resume {quote(str(two.run.root))}, on every node")
    steps = [event["done"] for event in two.resumed() if event["event"] == "train" and "done" in event]
    assert steps == [2, 3, 4], "from the checkpoint of step 1"


def test_a_killed_node_0_ends_the_others(two):
    first, other = two.start(0, behave="1:wait"), two.start(1, behave="1:wait")
    two.until_step(first, 1)
    first.send(signal.SIGKILL)
    assert other.finish() == 4
    assert refused(other)[0].startswith("node 0 (") and "its process has ended" in refused(other)[0]
    two.resumed()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_stopping_node_0_stops_all_with_its_exit_code(two, number, code):
    first, other = two.start(0, behave="1:wait"), two.start(1, behave="1:wait")
    two.until_step(first, 1)
    assert first.send(number) == code
    assert other.finish() == code


def test_a_loop_is_followed_and_the_follower_writes_nothing_of_the_run(two):
    before = {path.name for path in two.run.root.iterdir()}
    other = two.start(1, "loop", two.run.root, "-s", "train.node_timeout=1")
    assert other.finish() == 4
    message, hint = refused(other)
    assert message == "node 0 is not heard from for 1 s (train.node_timeout)"
    assert hint.startswith(f"NODE_RANK=0 must run the same command on {quote(str(two.run.root))}")
    assert {path.name for path in two.run.root.iterdir()} - before == set()


def test_a_missing_dataset_is_told_at_once(two):
    (two.run.dataset / "prepared.json").unlink()
    first = two.start(0)
    assert first.finish() == 3
    assert refused(first)[1] == f"webgym prepare {quote(str(two.run.root))}"


def test_a_node_without_a_rank_is_refused(two):
    command = Command(two.folder, "train", two.run.root, NNODES="2")
    assert command.finish() == 2
    assert refused(command)[0].startswith("NNODES is 2, but NODE_RANK is not set")
