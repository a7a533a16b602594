"""Work that goes on at once, and how its errors are raised."""

import asyncio

import pytest

from webgym_cli.jobs.workers import gather_to_end


async def test_what_is_gathered_to_its_end_ends_before_the_first_error_is_raised():
    ended = []

    async def work(number, error=None):
        await asyncio.sleep(0.01 * number)
        ended.append(number)
        if error:
            raise error

    with pytest.raises(ValueError, match="first"):
        await gather_to_end(work(3, ValueError("first")), work(1, KeyError("later")), work(4), work(2))
    assert ended == [1, 2, 3, 4]
    await gather_to_end()
