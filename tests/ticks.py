"""How often the event loop comes round while something else is done."""

import asyncio
from collections.abc import Awaitable


async def count_ticks(work: Awaitable[object]) -> int:
    """Return how often another task ran until `work` was done: once if it held the loop from beginning to end."""
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    ticking = asyncio.create_task(tick())
    await asyncio.sleep(0)
    try:
        await work
    finally:
        ticking.cancel()
    return ticks
