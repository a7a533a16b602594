"""Signal handling for coroutines: SIGINT and SIGTERM cancel the coroutine, run its clean-up and set the exit code."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Coroutine, Iterator
from contextvars import ContextVar
from typing import Any, TypeVar

from webgym_cli.errors import Terminated
from webgym_cli.util.stopping import SIGNALS, ignore_further, interrupt_work

T = TypeVar("T")


class _CaughtSignals(list[int]):
    """The signal received during `run_async`, if any."""

    blocks = False
    """Whether work blocks the event loop."""

    def error(self) -> BaseException:
        return Terminated() if self[0] == signal.SIGTERM else KeyboardInterrupt()


_CAUGHT: ContextVar[_CaughtSignals] = ContextVar("caught")


def run_async(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine. SIGINT raises KeyboardInterrupt, SIGTERM `Terminated`, both after the coroutine's clean-up.

    After one of them both stay as `ignore_further` sets them, so that a second one can't cut the caller's clean-up
    short either.
    """
    before = {number: signal.getsignal(number) for number in SIGNALS}
    received = _CaughtSignals()
    try:
        with asyncio.Runner() as runner:
            result = runner.run(_supervise(main, received))
    finally:
        if not received:
            for number, handler in before.items():  # asyncio does not restore the SIGTERM handler
                signal.signal(number, handler)
    if received:
        raise received.error()
    return result


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGINT and SIGTERM interrupt work that blocks the event loop, as they interrupt an `await`.

    The loop would handle them only afterwards. Outside of `run_async` this does nothing: signals interrupt anyway.
    """
    received = _CAUGHT.get(_CaughtSignals())
    received.blocks = True
    try:
        yield
    except Exception as error:
        if received:  # DuckDB's "Query interrupted", say, in place of what the handler raised
            raise asyncio.CancelledError from error
        raise
    finally:
        received.blocks = False


async def _supervise(main: Coroutine[Any, Any, T], received: _CaughtSignals) -> T:
    _CAUGHT.set(received)
    task = asyncio.ensure_future(main)
    loop = asyncio.get_running_loop()

    def on_signal(number: int, _: object) -> None:
        received.append(number)
        ignore_further(number)
        if task.done():
            return
        if received.blocks:
            interrupt_work()
            raise asyncio.CancelledError
        loop.call_soon_threadsafe(task.cancel)

    for number in SIGNALS:  # not by the loop, which loses a signal after its last turn: threads can delay its end
        signal.signal(number, on_signal)
    try:
        return await task
    except asyncio.CancelledError:
        if not received:  # the loop ends by an exception that no task can hold, as a plug-in's SystemExit
            raise
    raise received.error()
