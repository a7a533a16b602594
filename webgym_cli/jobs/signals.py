"""Signal handling for coroutines: SIGINT and SIGTERM cancel the coroutine, run its clean-up and set the exit code."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Coroutine, Iterator
from contextvars import ContextVar
from typing import Any, TypeVar

from webgym_cli.errors import Terminated

T = TypeVar("T")
# Signals received during `run_async`, oldest first.
_CAUGHT: ContextVar[list[signal.Signals]] = ContextVar("caught")


def run_async(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine. SIGINT raises KeyboardInterrupt, SIGTERM `Terminated`, both after the coroutine's clean-up."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with asyncio.Runner() as runner:
            return runner.run(_supervise(main))
    finally:
        for number, handler in before.items():  # asyncio does not restore the SIGTERM handler
            signal.signal(number, handler)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGINT and SIGTERM interrupt work that blocks the event loop, as they interrupt an `await`.

    The loop would handle them only afterwards. Outside of `run_async` this does nothing: signals interrupt anyway.
    """
    caught = _CAUGHT.get(None)
    if caught is None:
        yield
        return

    def on_signal(number: int, _: object) -> None:
        caught.append(signal.Signals(number))
        if len(caught) == 1:
            raise asyncio.CancelledError

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    wakeup = signal.set_wakeup_fd(-1)
    try:
        yield
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            signal.signal(number, handler)
            signal.siginterrupt(number, False)  # as set by the event loop


async def _supervise(main: Coroutine[Any, Any, T]) -> T:
    caught: list[signal.Signals] = []
    _CAUGHT.set(caught)
    task = asyncio.ensure_future(main)
    loop = asyncio.get_running_loop()

    def on_signal(number: signal.Signals) -> None:
        caught.append(number)
        if len(caught) == 1:  # a second signal must not cut the clean-up short
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal, number)
    try:
        return await task
    except asyncio.CancelledError:
        if not caught:  # the loop ends by an exception that no task can hold, such as a plug-in's SystemExit
            raise
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
    raise Terminated if caught[0] == signal.SIGTERM else KeyboardInterrupt
