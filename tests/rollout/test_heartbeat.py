"""The rollout's sign of life: what other shells see while it runs and how it ended."""

import asyncio
import json

import pytest

from tests.rollout.scripted import failing
from webgym_cli.errors import StoreError, WebGymError
from webgym_cli.rollout import monitor
from webgym_cli.store.status import RolloutState, read_status


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(monitor, "_BEAT_SECONDS", 0.02)


def state(world):
    (status,) = read_status(world.run) or [None]
    return status and status.state


async def test_a_rollout_says_how_far_it_is_and_how_it_ended(world):
    async def takes_time(environment):
        await asyncio.sleep(0.1)

    await world.roll(4, on_step=takes_time)
    events = world.events_named("status")
    assert len(events) >= 2 and all(event["transient"] for event in events), "none of them is kept"
    json.dumps(events)
    (status,) = read_status(world.run)
    assert status.state is RolloutState.FINISHED
    assert (status.snapshot["collected"], status.snapshot["total"], status.snapshot["running"]) == (4, 4, 0)
    with pytest.raises(WebGymError):
        await world.roll(30, on_reset=failing())
    assert state(world) is RolloutState.FAILED


async def test_an_interrupted_rollout_says_so(world):
    reached = asyncio.Event()

    async def hangs(environment):
        reached.set()
        await asyncio.sleep(60)

    task = asyncio.ensure_future(world.roll(4, on_step=hangs))
    await reached.wait()
    # The file tells nobody when it is written.
    while state(world) is not RolloutState.RUNNING:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert state(world) is RolloutState.INTERRUPTED


async def test_a_status_file_that_can_not_be_written_ends_nothing(world, monkeypatch):
    def full(*arguments):
        raise StoreError("no space left on device")

    monkeypatch.setattr(monitor, "write_status", full)
    assert (await world.roll(4))["episodes"] == 4


async def test_a_reader_of_events_that_is_gone_ends_the_rollout(world):
    def break_pipe(event):
        if event["event"] == "trajectory":
            raise BrokenPipeError("the reader is gone")

    with pytest.raises(BrokenPipeError):
        await world.roll(4, sink=break_pipe)
    assert state(world) is RolloutState.FAILED
    assert len(world.stored) >= 1
