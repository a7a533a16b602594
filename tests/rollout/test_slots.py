"""The slots that training and evaluation share."""

import asyncio
from dataclasses import replace

from webgym_cli.agent.client.gate import PolicyGate
from webgym_cli.config.load import load
from webgym_cli.records.task import Split
from webgym_cli.rollout.queue import ResourceClaims, SharedRollouts, SlotPool
from webgym_cli.rollout.resources import PolicyEndpoint
from webgym_cli.rollout.runner import open_runner
from webgym_cli.store.run import RunDir


async def test_evaluation_episodes_come_first_and_no_slot_is_held_twice():
    slots, go, order, running, most = SlotPool(2), asyncio.Event(), [], 0, 0

    async def episode(split: Split, name: str):
        nonlocal running, most
        async with slots.slot(split):
            running += 1
            most = max(most, running)
            order.append(name)
            await go.wait()
            running -= 1

    training = [asyncio.create_task(episode(Split.TRAIN, f"train {number}")) for number in range(4)]
    await asyncio.sleep(0)
    testing = [asyncio.create_task(episode(Split.TEST, f"test {number}")) for number in range(2)]
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(*training, *testing)
    assert most == 2
    assert order == ["train 0", "train 1", "test 0", "test 1", "train 2", "train 3"]


async def test_a_slot_that_is_handed_to_a_cancelled_episode_is_not_lost():
    slots, held = SlotPool(1), asyncio.Event()

    async def hold():
        async with slots.slot(Split.TRAIN):
            await held.wait()

    async def wait():
        async with slots.slot(Split.TRAIN):
            raise AssertionError("it was cancelled")

    first = asyncio.create_task(hold())
    await asyncio.sleep(0)
    second = asyncio.create_task(wait())
    await asyncio.sleep(0)
    held.set()
    await first  # its end hands the slot to the second one
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    assert slots.free == 1


async def test_training_and_the_evaluation_beside_it_count_the_machine_s_time_once(tmp_path):
    shared = SharedRollouts(PolicyGate(), SlotPool(1), ResourceClaims())
    run, settings, beside = RunDir(tmp_path), load(), replace(shared, gate=PolicyGate())
    async with (
        open_runner(run, settings, PolicyEndpoint(gpus=4), "", shared) as training,
        open_runner(run, settings, PolicyEndpoint(), "", beside) as evaluation,  # no episode is pending
        open_runner(run, settings, PolicyEndpoint(gpus=2), "") as alone,
    ):
        assert training.meter is evaluation.meter
        assert (training.meter.gpus, alone.meter.gpus) == (4, 2)
