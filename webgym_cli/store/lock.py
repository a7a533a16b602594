"""Run lock: one writer per run; readers need no lock."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from filelock import FileLock, Timeout

from webgym_cli.errors import RunLockedError, StoreError
from webgym_cli.store.run import RunDir, now
from webgym_cli.store.status import read_lock_holder
from webgym_cli.util.files import write_json

# An NFS share without its lock service. (Where flock is not implemented at all, filelock takes a file's existence.)
_HINTS = {errno.ENOLCK: "mount it with locks, or put the run on another file system"}


@contextmanager
def lock_run(run: RunDir, command: str) -> Iterator[None]:
    """Hold the run's lock. Raises `RunLockedError` naming the holder; the operating system releases it if we die."""
    try:
        run.root.mkdir(parents=True, exist_ok=True)
        lock = FileLock(run.lock)
        lock.acquire(timeout=0)
    except Timeout:
        who = "another webgym"
        if (holder := read_lock_holder(run)) is not None:
            who = f"`webgym {holder['command']}` (process {holder['pid']} on {holder['host']}, since {holder['since']})"
        raise RunLockedError(
            f"{run.root}: locked by {who}", hint="wait for it, or stop it, then run the same command again"
        ) from None
    except OSError as error:
        raise StoreError(
            f"{run.root}: can't be written: {error.strerror}", hint=_HINTS.get(error.errno or 0, "")
        ) from error
    try:
        write_json(
            run.lock_holder, {"pid": os.getpid(), "host": socket.gethostname(), "command": command, "since": now()}
        )
        yield
    finally:
        with contextlib.suppress(OSError):
            run.lock_holder.unlink(missing_ok=True)
        lock.release()
