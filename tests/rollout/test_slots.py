"""The slots that training and evaluation share."""

import asyncio

from webgym_cli.records.task import Split
from webgym_cli.rollout.slots import SlotPool


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
