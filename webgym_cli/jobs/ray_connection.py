"""Connection to Ray, opened and closed in one thread; keeps webgym's SIGTERM handler and leaves no Ray process."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import threading
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from webgym_cli.errors import UsageError
from webgym_cli.jobs.guard import children_by_parent, descendants
from webgym_cli.jobs.process_tree import Reaper

# Ray's address value for starting a local instance.
OWN = "local"
# Object store of a local Ray in bytes, about Ray's minimum: ranks transfer little data.
OBJECT_STORE = 80 * 2**20
# Timeout of a TCP connection to the cluster's address, in seconds.
_CONNECT_SECONDS = 10.0
# Seconds between two scans for processes that Ray has started.
_LOOK_SECONDS = 1.0
# Ray takes some seconds to start, on a busy machine half a minute.
_START_SECONDS = 90.0


async def require_answer(address: str) -> None:
    """Raise `UsageError` if nothing listens at a cluster's address: Ray itself would retry for many minutes."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        return
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except (OSError, TimeoutError, OverflowError) as error:
        raise _unreachable(address, str(error) or f"no answer within {_CONNECT_SECONDS:g} s") from error
    writer.close()


def _unreachable(address: str, why: str) -> UsageError:
    return UsageError(
        f"rollout.ray_address: {address}: {why}",
        hint="ray status --address HOST:PORT, or leave rollout.ray_address and RAY_ADDRESS empty",
    )


class RayConnection(threading.Thread):
    """Thread that connects to Ray and shuts it down.

    The processes of a local Ray die with the thread that started them, so this thread lives until shutdown. It is
    a daemon, because connecting can't be interrupted and must not block the exit. If this process is killed, a
    reaper ends Ray's processes, some of which would survive for minutes.
    """

    def __init__(self, address: str) -> None:
        super().__init__(name="ray", daemon=True)
        self._address = address
        self._connected: Future[None] = Future()
        self._connected.set_running_or_notify_cancel()  # not cancellable: a late connection sets it
        self._leave = threading.Event()

    async def connect(self) -> None:
        """Connect. Raises `UsageError` on failure or timeout."""
        self.start()
        try:
            async with asyncio.timeout(_START_SECONDS):
                await asyncio.wrap_future(self._connected)
        except TimeoutError as error:
            raise _unreachable(self._address, f"Ray does not connect within {_START_SECONDS:g} s") from error

    async def leave(self) -> None:
        """Disconnect and end a local Ray; don't wait if Ray is still connecting."""
        self._leave.set()
        if self._connected.done():
            await asyncio.to_thread(self.join)

    def run(self) -> None:
        """Connect, wait, shut down."""
        before = set(descendants(os.getpid()))
        try:
            _connect(self._address)
            # Listed before the reaper starts: it must not end itself.
            new = ours = set(descendants(os.getpid())) - before
            reaper = Reaper()
        except BaseException as error:  # noqa: BLE001 - passed on to `connect`
            self._connected.set_exception(error)
            importlib.import_module("ray").shutdown()
            return
        self._connected.set_result(None)
        try:
            while True:
                with suppress(OSError):  # the reaper was killed
                    reaper.add(new)
                # A raylet also starts agents and workers later.
                if self._leave.wait(_LOOK_SECONDS if ours else None):
                    return
                children = children_by_parent()
                new = {pid for process in ours for pid in descendants(process, children)} - ours
                ours |= new
        finally:
            importlib.import_module("ray").shutdown()
            reaper.dismiss()


def restore_sigterm(handler: Any) -> None:
    """Restore the SIGTERM handler: Ray's C++ handler would abort the process after three seconds."""
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)
        signal.siginterrupt(signal.SIGTERM, False)


def one_line(error: BaseException) -> str:
    """Return a Ray error message as one line of at most 400 characters."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    words = [line for line in lines if not line.startswith(("class_name:", "actor_id:", "pid:", "namespace:", "ip:"))]
    return " ".join(words)[:400] or type(error).__name__


def _connect(address: str) -> None:
    worker = importlib.import_module("ray._private.worker")
    own: dict[str, Any] = {"object_store_memory": OBJECT_STORE, "include_dashboard": False} if address == OWN else {}
    # Ray prints dead nodes to stdout, which is reserved for data; webgym reports them itself.
    worker.print_to_stdstream = lambda *_, **__: None  # type: ignore[attr-defined]
    try:
        importlib.import_module("ray").init(address=address, log_to_driver=False, logging_level="ERROR", **own)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError, OSError) as error:
        raise _unreachable(address, one_line(error)) from error
