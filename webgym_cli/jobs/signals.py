"""Runs a coroutine so that Ctrl-C and SIGTERM unwind it: what is open gets closed, then the right exit code follows."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

from webgym_cli.errors import Terminated

T = TypeVar("T")


def run_async(main: Coroutine[Any, Any, T]) -> T:
    """Run to the end. SIGINT raises KeyboardInterrupt and SIGTERM `Terminated`, both after the coroutine's clean-up."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with asyncio.Runner() as runner:
            return runner.run(_supervised(main))
    finally:
        for number, handler in before.items():  # asyncio would leave SIGTERM without one
            signal.signal(number, handler)


async def _supervised(main: Coroutine[Any, Any, T]) -> T:
    task = asyncio.ensure_future(main)
    loop = asyncio.get_running_loop()
    caught: list[signal.Signals] = []

    def on_signal(number: signal.Signals) -> None:
        caught.append(number)
        if len(caught) == 1:  # a second signal must not cut the clean-up short
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal, number)
    try:
        with contextlib.suppress(asyncio.CancelledError):
            return await task
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
    raise Terminated if caught and caught[0] == signal.SIGTERM else KeyboardInterrupt
