"""Several nodes train together: who is where, who is heard, who joins, and whose fault it was."""

import asyncio
import os
import socket
from contextlib import asynccontextmanager

import pytest

from tests.train.nodes.node_runs import NAME, ready
from webgym_cli.errors import JobError, RunLockedError, UsageError
from webgym_cli.store import checkpoints
from webgym_cli.store.run import new_attempt
from webgym_cli.train.execute import execute
from webgym_cli.train.failure import is_peer_loss
from webgym_cli.train.nodes.coordinator import heading
from webgym_cli.train.nodes.status_files import (
    Ear,
    HeadWord,
    Launch,
    NodeWord,
    Voice,
    head_file,
    launch_file,
    node_file,
    read_word,
)
from webgym_cli.train.nodes.topology import Place, place_of
from webgym_cli.train.nodes.worker import Ending, follow
from webgym_cli.train.plan import plan_training
from webgym_cli.util.files import write_json

TWO = {"NNODES": "2", "NODE_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
FIRST, SECOND = Place(2, 0, "127.0.0.1"), Place(2, 1)


def head(**facts) -> HeadWord:
    return HeadWord(**{"command": "c", "host": "a", "pid": 1, "words": "train r", "nodes": 2} | facts)


@pytest.mark.parametrize("environ", [{}, {"NNODES": "1"}, {"NNODES": "", "NODE_RANK": "3"}])
def test_one_node_has_no_place(environ):
    assert place_of(environ) is None


def test_the_place_is_torchruns():
    assert place_of({**TWO, "MASTER_PORT": "29500", "NODE_RANK": "1"}) == Place(2, 1, "127.0.0.1", 29500)
    assert place_of(TWO) == FIRST and FIRST.is_main_process and not SECOND.is_main_process
    assert SECOND.master == socket.gethostname()


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"NNODES": "2"}, "NNODES is 2, but NODE_RANK is not set"),
        ({"NNODES": "2:4", "NODE_RANK": "0"}, "NNODES: '2:4' is no whole number from 1"),
        ({"NNODES": "0"}, "NNODES: '0' is no whole number from 1"),
        ({"NNODES": "2", "NODE_RANK": "2"}, "ranks go from 0 to 1"),
        ({"NNODES": "2", "NODE_RANK": "-1"}, "NODE_RANK: '-1' is no whole number from 0"),
        ({**TWO, "MASTER_PORT": "70000"}, "MASTER_PORT: 70000 is no port"),
    ],
)
def test_a_place_that_contradicts_itself_is_refused(environ, said):
    with pytest.raises(UsageError, match=said):
        place_of(environ)


def test_the_plan_tells_who_does_what(run, role, tmp_path):
    settings = ready(run, role, tmp_path / "images", 5, nproc_per_node=3)
    plan = plan_training(run, settings, {**TWO, "MASTER_PORT": "29500"})
    assert plan.env["FORCE_TORCHRUN"] == "1" and plan.training.world_size == 6
    assert plan.to_json()["nodes"] == {
        "count": 2,
        "this": 0,
        "placed_by": "NODE_RANK",
        "rendezvous": "127.0.0.1:29500",
        "shares": [{"node": 0, "ranks": [0, 1, 2]}, {"node": 1, "ranks": [3, 4, 5]}],
        "files": "every node works in the run's folder: it must be mounted at the same path",
    }
    assert plan_training(run, settings, {}).to_json()["nodes"] is None


def test_an_ear_counts_changes_and_not_what_was_there_before(run):
    now = [100.0]
    file = head_file(run)
    write_json(file, head(beat=7).model_dump())
    ear = Ear(file, HeadWord, lambda: now[0])
    now[0] = 103.0
    assert (ear.hear(), ear.stale, ear.silent, ear.changes) == (None, head(beat=7), 3.0, 0)
    write_json(file, head(beat=8).model_dump())
    now[0] = 104.0
    assert (ear.hear(), ear.stale, ear.silent, ear.changes) == (head(beat=8), None, 0.0, 1)
    file.write_text("{")
    now[0] = 106.0
    assert (ear.hear(), ear.silent) == (head(beat=8), 2.0)


async def test_a_voice_goes_on_and_ends_with_its_last_word(run):
    voice = Voice(head_file(run), head(), 1.0)
    ear = Ear(head_file(run), HeadWord)
    while ear.changes < 3:
        ear.hear()
        await asyncio.sleep(0.02)
    voice.close(code=4, message="bad")
    said = read_word(head_file(run), HeadWord)
    assert said is not None and (said.code, said.message) == (4, "bad") and said.beat > 3
    assert not voice._thread.is_alive()


@pytest.mark.parametrize(
    ("code", "line", "lost"),
    [
        (1, "RuntimeError: [x/pair.cc:537] Connection closed by peer [10.0.0.2]:4321", True),
        (1, "torch.distributed.DistNetworkError: failed to recv, got 0 bytes", True),
        (1, "torch.distributed.DistBackendError: NCCL error in: x.cpp:1, remote process exited", True),
        (1, "ValueError: bad luck", False),
        (1, "torch.OutOfMemoryError: CUDA out of memory.", False),
        (137, "RuntimeError: Connection closed by peer", False),
    ],
)
def test_what_only_felt_that_another_one_was_gone(tmp_path, code, line, lost):
    (tmp_path / "log").write_text(f"Traceback:\n{line}\n")
    assert is_peer_loss(code, tmp_path / "log") is lost


class Nodes:
    """Two nodes in this process."""

    def __init__(self, run, settings):
        self.run, self.settings = run, settings
        self.events = []
        self.followers = []

    async def lead(self):
        """Node 0: one training."""
        with heading(self.run, self.settings, "train r", TWO):
            await self.train()

    async def train(self):
        plan = plan_training(self.run, self.settings, TWO)
        return await execute(plan, self.run, self.settings, new_attempt(self.run), self.events.append)

    @asynccontextmanager
    async def follower(self, place=SECOND):
        """Another node, for the time of the block."""
        task = asyncio.create_task(follow(self.run, self.settings, place, self.events.append))
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.wait((task,))

    def told(self):
        return [event["message"] for event in self.events if "message" in event]


@pytest.fixture
def nodes(run, role, tmp_path):
    return Nodes(run, ready(run, role, tmp_path / "images", 5))


async def test_both_train_and_the_other_ends_with_node_0(nodes, run):
    async with nodes.follower() as other:
        await nodes.lead()
        assert await other == Ending(0, "")
    assert [found.name for found in checkpoints.checkpoints(run)] == [NAME]
    assert (run.logs / "latest/train.node-1.log").is_file()
    assert not launch_file(run).exists()
    word = read_word(node_file(run, 1), NodeWord)
    assert word is not None and (word.code, word.gone) == (0, "node 0 has ended")


async def test_one_command_of_two_trainings_is_followed_to_its_end(nodes, run, role, tmp_path):
    async with nodes.follower() as other:
        with heading(run, nodes.settings, "loop r", TWO):
            await nodes.train()
            nodes.settings = ready(run, role, tmp_path / "images", 5, "model_20260110_000000", "d1")
            await nodes.train()
        assert await other == Ending(0, "")
    assert checkpoints.version(run) == 2
    assert sum("takes part in a training" in line for line in nodes.told()) == 2


async def test_an_error_of_the_other_node_is_told_in_its_own_words(nodes, monkeypatch):
    monkeypatch.setenv("BEHAVE", "1:raise")
    async with nodes.follower() as other:
        with pytest.raises(JobError, match=rf"^node 1 \({socket.gethostname()}\): .*ValueError: bad luck") as caught:
            await nodes.lead()
        ending = await other
    assert "webgym resume" in caught.value.hint
    assert ending.code == 4 and "ValueError: bad luck" in ending.message


async def test_an_error_of_our_own_is_not_put_on_the_node_that_felt_it(nodes, monkeypatch):
    monkeypatch.setenv("BEHAVE", "0:raise")
    async with nodes.follower() as other:
        with pytest.raises(JobError, match=r"^the trainer failed \(exit status 1\): ValueError: bad luck"):
            await nodes.lead()
        assert (await other).code == 4


async def test_a_node_that_is_stopped_ends_the_training_by_its_name(nodes, monkeypatch):
    monkeypatch.setenv("BEHAVE", "1:hang")
    async with nodes.follower() as other:

        def stop(event):
            nodes.events.append(event)
            if event["event"] == "train":
                other.cancel()

        with heading(nodes.run, nodes.settings, "train r", TWO), pytest.raises(JobError, match="left the training"):
            plan = plan_training(nodes.run, nodes.settings, TWO)
            await execute(plan, nodes.run, nodes.settings, new_attempt(nodes.run), stop)


async def test_a_node_that_never_comes_is_named(nodes):
    nodes.settings = nodes.settings.model_copy(
        update={"train": nodes.settings.train.model_copy(update={"node_timeout": 1.0})}
    )
    with pytest.raises(JobError, match=r"^node 1 has not joined the training: it is not heard from for 1 s"):
        await nodes.lead()
    assert not launch_file(nodes.run).exists()


async def test_a_launch_of_a_dead_command_is_not_joined(nodes):
    stale = {"command": "dead", "training": "t", "folder": str(nodes.run.root), "algorithm": "sft", "launch_file": "x"}
    stale |= {"env": {}, "processes": 1, "nodes": 2, "address": "127.0.0.1", "port": 1, "logs": str(nodes.run.logs)}
    voice = Voice(head_file(nodes.run), head(), 5)
    write_json(launch_file(nodes.run), Launch.model_validate(stale).model_dump())
    async with nodes.follower() as other:
        ear = Ear(node_file(nodes.run, 1), NodeWord)
        while ear.changes < 2:
            ear.hear()
            await asyncio.sleep(0.02)
        voice.close(code=0)
        assert await other == Ending(0, "")
    word = read_word(node_file(nodes.run, 1), NodeWord)
    assert word is not None and (word.training, word.message) == ("", "")
    assert not any("takes part" in line for line in nodes.told())


async def test_a_head_that_is_dead_is_not_waited_for_forever(nodes):
    write_json(head_file(nodes.run), head(code=2).model_dump())
    short = nodes.settings.train.model_copy(update={"node_timeout": 1.0})
    nodes.settings = nodes.settings.model_copy(update={"train": short})
    async with nodes.follower() as other:
        with pytest.raises(JobError, match=r"^node 0 \(a\) is not heard from for 1 s .*ended with exit code 2 before"):
            await other


async def test_the_nodes_must_agree_about_their_number(nodes):
    async with nodes.follower(Place(3, 1)) as other:
        with (
            heading(nodes.run, nodes.settings, "train r", TWO),
            pytest.raises(UsageError, match="NNODES is 3 here and 2 on node 0"),
        ):
            await other


async def test_two_can_not_be_the_same_node(nodes, monkeypatch):
    monkeypatch.setattr("webgym_cli.train.nodes.worker.HANDOVER", 0.1)
    nodes.settings = nodes.settings.model_copy(
        update={"train": nodes.settings.train.model_copy(update={"stop_grace": 0.1})}
    )
    with heading(nodes.run, nodes.settings, "train r", TWO):
        async with nodes.follower():
            while not node_file(nodes.run, 1).exists():  # noqa: ASYNC110 - files set no events
                await asyncio.sleep(0.02)
            async with nodes.follower() as second:
                with pytest.raises(RunLockedError, match=rf"process {os.getpid()} on .* is node 1 already"):
                    await second


async def test_a_command_that_replaced_a_lost_one_is_not_taken_for_it(nodes):
    first = Voice(head_file(nodes.run), head(), 5)
    async with nodes.follower() as other:
        while not node_file(nodes.run, 1).exists():  # noqa: ASYNC110 - files set no events
            await asyncio.sleep(0.02)
        first._over.set()
        second = Voice(head_file(nodes.run), head(command="d", words="resume r"), 5)
        with pytest.raises(JobError, match=r"node 0 .* was lost, and runs another command now: `webgym resume r`"):
            await other
        second.close(code=0)
