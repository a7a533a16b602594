"""Runs functions of tools and plugins with deadlines, without blocking the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import inspect
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from webgym_cli.errors import BoundaryError
from webgym_cli.records.failure import FailureKind
from webgym_cli.util.user_code import user_code

# Maximum number of threads that did not end at their deadline; beyond it, no function is called.
MAX_STUCK = 64


class _Stopped(BaseException):
    """Raised in a thread at its deadline. Not an `Exception`, so that `except Exception` does not catch it."""


class TooLateError(Exception):
    """A function exceeded its deadline. Not a `TimeoutError`, because functions raise those themselves."""


class Workers:
    """Calls functions: sync ones in a thread of their own, async ones in the event loop.

    At the deadline an exception is raised in the thread, which ends Python code. A thread that is blocked elsewhere
    (a read that never returns) is abandoned: it delays neither the caller nor the exit of the process.
    """

    def __init__(self) -> None:
        self._stuck: list[threading.Thread] = []

    async def call(self, function: Callable[[], Any], seconds: float) -> Any:
        """Call a function without arguments within `seconds` and return its result, awaited if necessary.

        Raises `TooLateError`, the function's exception, or `BoundaryError` if too many threads are stuck.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        value = await self._in_thread(function, seconds)
        if not inspect.isawaitable(value):
            return value
        task = asyncio.ensure_future(_harmless(value))
        return await _within(task, max(0.0, deadline - loop.time()), lambda: None)

    async def _in_thread(self, function: Callable[[], Any], seconds: float) -> Any:
        self._stuck = [thread for thread in self._stuck if thread.is_alive()]
        if len(self._stuck) >= MAX_STUCK:
            message = f"{MAX_STUCK} calls that never returned are still running"
            raise BoundaryError(FailureKind.ENVIRONMENT_ERROR, message, hint="give the tools deadlines of their own")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        thread = threading.Thread(target=_run, args=(function, loop, future), daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the system has no more: no fault of the function
            raise BoundaryError(FailureKind.ENVIRONMENT_ERROR, str(error), hint="fewer episodes at once") from error
        return await _within(future, seconds, lambda: self._stop(thread))

    def _stop(self, thread: threading.Thread) -> None:
        if thread.ident is not None and thread.is_alive():
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(_Stopped))
            self._stuck.append(thread)


async def _within(future: asyncio.Future[Any], seconds: float, stop: Callable[[], object]) -> Any:
    """Return a future's result. At the deadline or on cancellation, call `stop` without waiting for its effect."""
    try:
        done, _ = await asyncio.wait({future}, timeout=seconds)
        if done:
            return future.result()
    finally:
        if not future.done():
            future.add_done_callback(lambda late: late.cancelled() or late.exception())  # retrieves a late exception
            future.cancel()
            stop()
    raise TooLateError(f"not done within {seconds:g} s")


def _run(function: Callable[[], Any], loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any]) -> None:
    """Call a function in this thread and pass its result or exception to the event loop."""
    with contextlib.suppress(_Stopped):
        try:
            with user_code():
                value = function()
        except _Stopped:
            return
        except BaseException as error:  # noqa: BLE001  boundary to tools and plugins: the caller decides
            outcome = _to_exception(error)
            _settle(loop, future, lambda: future.set_exception(outcome))
        else:
            _settle(loop, future, lambda: future.set_result(value))


async def _harmless(value: Awaitable[Any]) -> Any:
    """Await a result; convert exceptions that would end the loop or look like our own cancellation."""
    try:
        with user_code():
            return await value
    except BaseException as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        raise _to_exception(error) from None


def _to_exception(error: BaseException) -> Exception:
    """Return an exception that a future can hold: a `RuntimeError` for one that would end the process or the loop."""
    return error if isinstance(error, Exception) and not isinstance(error, StopIteration) else RuntimeError(repr(error))


def _settle(loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any], settle: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(lambda: None if future.done() else settle())
