"""Several nodes train together: who is where, who is heard, who joins, and whose fault it was."""

import asyncio
import os
import socket
import threading
from contextlib import asynccontextmanager

import pytest

from tests.train.nodes.node_runs import NAME, ready
from webgym_cli.errors import JobError, PeerLostError, RunLockedError, UsageError, WebGymError
from webgym_cli.store import checkpoints
from webgym_cli.store.run import new_attempt
from webgym_cli.train.execute import execute
from webgym_cli.train.failure import trainer_error
from webgym_cli.train.nodes import worker
from webgym_cli.train.nodes.coordinator import COORDINATOR, coordinate
from webgym_cli.train.nodes.messages import NodeHello
from webgym_cli.train.nodes.topology import NodeTopology, from_env
from webgym_cli.train.nodes.worker import run_worker_node
from webgym_cli.train.plan import plan_training
from webgym_cli.util.files import read_json, write_json

TWO = {"NNODES": "2", "NODE_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
FIRST, SECOND = NodeTopology(2, 0, "127.0.0.1"), NodeTopology(2, 1)


@pytest.mark.parametrize("environ", [{}, {"NNODES": "1"}, {"NNODES": "", "NODE_RANK": "3"}])
def test_one_node_has_no_place(environ):
    assert from_env(environ) is None


def test_the_place_is_torchruns():
    assert from_env({**TWO, "MASTER_PORT": "29500", "NODE_RANK": "1"}) == NodeTopology(2, 1, "127.0.0.1", 29500)
    assert from_env(TWO) == FIRST
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
        from_env(environ)


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
    }
    assert plan_training(run, settings, {}).to_json()["nodes"] is None


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
    assert isinstance(trainer_error(code, tmp_path / "log"), PeerLostError) is lost


class Nodes:
    """Two nodes in this process, node 0 in a thread of its own."""

    def __init__(self, run, settings):
        self.run, self.settings = run, settings
        self.events = []
        self.followers = []

    async def lead(self, *more, sink=None):
        """Node 0: one training, and one for each of `more`, which prepare it."""

        def command():
            with coordinate(self.run, self.settings, FIRST):
                asyncio.run(self.train(sink))
                for prepare in more:
                    prepare()
                    asyncio.run(self.train(sink))

        await asyncio.to_thread(command)

    async def train(self, sink=None):
        plan = plan_training(self.run, self.settings, TWO)
        return await execute(plan, self.run, self.settings, new_attempt(self.run), sink or self.events.append)

    @asynccontextmanager
    async def follower(self, place=SECOND):
        """Another node, for the time of the block."""
        task = asyncio.create_task(run_worker_node(self.run, self.settings, place, self.events.append))
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
        assert await other == (0, "")
    assert [found.name for found in checkpoints.checkpoints(run)] == [NAME]
    assert (run.logs / "latest/train.node-1.log").is_file()
    assert not run.coordinator.exists()


async def test_one_command_of_two_trainings_is_followed_to_its_end(nodes, run, role, tmp_path):
    async with nodes.follower() as other:
        await nodes.lead(lambda: ready(run, role, tmp_path / "images", 5, "model_20260110_000000", "d1"))
        assert await other == (0, "")
    assert checkpoints.version(run) == 2
    assert sum("takes part in a training" in line for line in nodes.told()) == 2


async def test_an_error_of_the_other_node_is_told_in_its_own_words(nodes, monkeypatch):
    monkeypatch.setenv("BEHAVE", "1:raise")
    async with nodes.follower() as other:
        with pytest.raises(JobError, match=rf"^node 1 \({socket.gethostname()}\): .*ValueError: bad luck") as caught:
            await nodes.lead()
        code, message = await other
    assert "webgym resume" in caught.value.hint
    assert code == 4 and "ValueError: bad luck" in message


async def test_an_error_of_our_own_is_not_put_on_the_node_that_felt_it(nodes, monkeypatch):
    monkeypatch.setenv("BEHAVE", "0:raise")
    async with nodes.follower() as other:
        with pytest.raises(JobError, match=r"^the trainer failed \(exit status 1\): ValueError: bad luck"):
            await nodes.lead()
        assert (await other)[0] == 4


async def test_a_node_that_is_stopped_ends_the_training_by_its_name(nodes, monkeypatch):
    monkeypatch.setenv("BEHAVE", "1:hang")
    async with nodes.follower() as other:
        loop = asyncio.get_running_loop()

        def stop(event):
            if event["event"] == "train":
                loop.call_soon_threadsafe(other.cancel)

        with pytest.raises(JobError, match=r"^node 1 \(.*\) left the training: its process has ended"):
            await nodes.lead(sink=stop)


async def test_a_node_that_never_comes_is_named(nodes):
    nodes.settings = nodes.settings.model_copy(
        update={"train": nodes.settings.train.model_copy(update={"node_timeout": 1.0})}
    )
    with pytest.raises(JobError, match=r"^node 1 has not joined the training: it is not heard from for 1 s"):
        await nodes.lead()
    assert not nodes.run.coordinator.exists()


async def test_the_nodes_must_agree_about_their_number(nodes):
    async with nodes.follower(NodeTopology(3, 1)) as other:
        with (
            coordinate(nodes.run, nodes.settings, FIRST),
            pytest.raises(UsageError, match="NNODES is 3 here and 2 on node 0"),
        ):
            await other


def short(nodes, **train):
    train = nodes.settings.train.model_copy(update=train)
    nodes.settings = nodes.settings.model_copy(update={"train": train})


async def test_the_address_of_a_dead_command_is_not_waited_for_forever(nodes):
    nodes.run.coordinator.parent.mkdir(parents=True, exist_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        facts = {"address": "127.0.0.1", "port": deaf.getsockname()[1], "token": "t", "host": "a", "pid": 1}
        write_json(nodes.run.coordinator, facts)
        short(nodes, node_timeout=1.0)
        async with nodes.follower() as other:
            with pytest.raises(JobError, match=r"^node 0 is not heard from for 1 s"):
                await other


async def test_two_can_not_be_the_same_node(nodes):
    with coordinate(nodes.run, nodes.settings, FIRST):
        async with nodes.follower():
            while COORDINATOR.get().missing():  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            async with nodes.follower() as second:
                with pytest.raises(RunLockedError, match=rf"process {os.getpid()} on .* is node 1 already"):
                    await second


async def test_who_does_not_know_the_token_is_sent_away(nodes):
    with coordinate(nodes.run, nodes.settings, FIRST):
        facts = read_json(nodes.run.coordinator)
        reader, writer = await asyncio.open_connection("127.0.0.1", facts["port"])
        writer.write(b'{"token": "guessed", "rank": 1, "nodes": 2, "host": "x", "pid": 1}\n')
        assert await reader.read() == b""
        writer.close()


async def test_a_node_that_sends_nonsense_is_lost_and_may_join_again(nodes):
    with coordinate(nodes.run, nodes.settings, FIRST):
        facts = read_json(nodes.run.coordinator)
        hello = NodeHello(token=facts["token"], rank=1, nodes=2, host="x", pid=1)
        reader, writer = await asyncio.open_connection("127.0.0.1", facts["port"])
        writer.write(hello.model_dump_json().encode() + b"\n")
        assert await reader.readline() and not COORDINATOR.get().missing()
        writer.write(b"nonsense\n")
        assert await reader.read() == b""
        writer.close()
        assert COORDINATOR.get().missing() == [1]
        async with nodes.follower():
            while COORDINATOR.get().missing():  # noqa: ASYNC110
                await asyncio.sleep(0.02)


async def test_a_node_that_hangs_is_named(nodes, monkeypatch):
    """Its process lives and its connection stands, but it sends nothing any more."""
    monkeypatch.setenv("BEHAVE", "1:hang")
    short(nodes, node_timeout=2.0)
    hangs, go_on = threading.Event(), asyncio.Event()
    exchange = worker._Connection.exchange

    async def exchange_or_hang(self, message):
        if hangs.is_set():
            await go_on.wait()
        return await exchange(self, message)

    monkeypatch.setattr(worker._Connection, "exchange", exchange_or_hang)
    async with nodes.follower():
        with pytest.raises(JobError, match=r"^node 1 \(.*\) left the training: it is not heard from for 2 s"):
            await nodes.lead(sink=lambda event: event["event"] == "train" and hangs.set())


@pytest.mark.parametrize(
    ("error", "raised", "said", "hint"),
    [
        (UsageError("no such folder here", hint="mount it"), UsageError, "no such folder here", "mount it"),
        (KeyError("a bug"), WebGymError, "KeyError: 'a bug'", "webgym resume"),
    ],
)
async def test_a_node_that_can_not_start_is_told_with_its_own_error(nodes, monkeypatch, error, raised, said, hint):
    async def refuse(*arguments):
        raise error

    monkeypatch.setattr(worker, "run_trainer", refuse)
    async with nodes.follower():
        with pytest.raises(raised, match=rf"^node 1 \(.*\): {said}") as caught:
            await nodes.lead()
    assert hint in caught.value.hint
