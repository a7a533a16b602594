import asyncio
import contextlib
import threading

import pytest

from webgym_cli.errors import BoundaryError
from webgym_cli.tools import workers as module
from webgym_cli.tools.workers import TooLateError, Workers

SOON, LONG = 0.05, 30.0


async def test_sync_and_async_functions_are_called_and_a_sync_one_runs_beside_the_loop():
    go = threading.Event()

    async def release():
        go.set()
        return "async"

    workers = Workers()
    assert await asyncio.gather(workers.call(lambda: go.wait(LONG), LONG), workers.call(release, LONG)) == [
        True,
        "async",
    ]


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (KeyError("x"), KeyError, "x"),
        (TimeoutError("theirs"), TimeoutError, "theirs"),
        (OSError("disk"), OSError, "disk"),
        (SystemExit(3), RuntimeError, "SystemExit"),
        (KeyboardInterrupt(), RuntimeError, "KeyboardInterrupt"),
        (StopIteration(), RuntimeError, "StopIteration"),
        (GeneratorExit(), RuntimeError, "GeneratorExit"),
    ],
)
async def test_what_a_function_raises_comes_back_and_what_would_end_the_process_as_an_error(error, kind, words):
    def fail():
        raise error

    with pytest.raises(kind, match=words):
        await Workers().call(fail, LONG)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
async def test_what_would_end_the_loop_becomes_an_error(error):
    async def fail():
        raise error

    with pytest.raises(RuntimeError, match=type(error).__name__):
        await Workers().call(fail, LONG)


async def test_an_endless_loop_is_stopped_at_its_deadline_or_when_its_caller_is_cancelled():
    began, ended = threading.Event(), threading.Event()

    def endless():
        began.set()
        try:
            while True:
                with contextlib.suppress(Exception):
                    sum(range(1000))
        finally:
            ended.set()

    with pytest.raises(TooLateError):
        await Workers().call(endless, 10 * SOON)
    assert await asyncio.to_thread(ended.wait, LONG)
    began.clear()
    ended.clear()
    call = asyncio.create_task(Workers().call(endless, LONG))
    assert await asyncio.to_thread(began.wait, LONG)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await asyncio.to_thread(ended.wait, LONG)


async def test_an_async_function_that_never_ends_is_cancelled():
    cancelled = asyncio.Event()

    async def endless():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with pytest.raises(TooLateError):
        await Workers().call(endless, SOON)
    async with asyncio.timeout(LONG):
        await cancelled.wait()


async def test_an_async_function_that_refuses_to_be_cancelled_holds_nobody():
    release = asyncio.Event()

    async def stubborn():
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    with pytest.raises(TooLateError):
        await Workers().call(stubborn, SOON)
    release.set()


async def test_too_many_functions_that_never_return_are_a_failure(monkeypatch):
    monkeypatch.setattr(module, "MAX_STUCK", 2)
    release, workers = threading.Event(), Workers()
    for _ in range(2):
        with pytest.raises(TooLateError):
            await workers.call(lambda: release.wait(LONG), SOON)
    with pytest.raises(BoundaryError, match="2 calls that never returned"):
        await workers.call(lambda: 1, LONG)
    stuck = list(workers._stuck)
    release.set()
    for thread in stuck:
        await asyncio.to_thread(thread.join, LONG)
    assert await workers.call(lambda: 1, LONG) == 1


async def test_a_thread_that_the_system_refuses_is_a_failure(monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch, pytest.raises(BoundaryError, match="can't start new thread"):
        patch.setattr(module.threading.Thread, "start", refuse)
        await Workers().call(lambda: 1, LONG)
