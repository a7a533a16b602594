"""Works through what is owed, so much of it at once, and ends when nothing of it comes out right any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from webgym_cli.errors import WebGymError

HOPELESS_AFTER = 8
"""So many failures in a row, and as many as are worked on at once, end a command: nobody is there, or the wrong one."""


async def side_by_side(count: int, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Let so many work at once, to the end. Raises the first `WebGymError` or `OSError` of them."""
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(work())
    except* (WebGymError, OSError) as errors:  # OSError: the reader of our events is gone
        raise errors.exceptions[0] from None


@dataclass(slots=True)
class Failures:
    """Counts failures in a row."""

    workers: int
    """How much is worked on at once."""
    owed: int
    """How much there is in all."""
    in_a_row: int = 0

    @property
    def limit(self) -> int:
        """So many in a row are too many, or all that there are."""
        return min(max(HOPELESS_AFTER, self.workers), self.owed)

    def hopeless(self, *, failed: bool) -> bool:
        """Count what came of one; return whether too many in a row have failed."""
        self.in_a_row = self.in_a_row + 1 if failed else 0
        return self.in_a_row >= self.limit
