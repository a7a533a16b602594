"""What SIGINT and SIGTERM do while a command stops after the first of them."""

from __future__ import annotations

import os
import signal
import time

SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Seconds from the first signal in which another one does not cut the clean-up short.
GRACE = 10.0


def ignore_further() -> None:
    """Leave further signals without effect for `GRACE`; a later one ends the process, its guards the children."""
    began = time.monotonic()

    def end_late(number: int, _: object) -> None:
        if time.monotonic() - began >= GRACE:
            os.write(2, b"webgym: ended at once by a further signal; its clean-up had not ended\n")
            os._exit(128 + number)

    for one in SIGNALS:
        signal.signal(one, end_late)


def ignore_at_exit(first: object) -> None:
    """Ignore signals at the interpreter's end, which resets handlers, unless `first` still waits for the first one."""
    if signal.getsignal(signal.SIGTERM) is not first:
        for one in SIGNALS:
            signal.signal(one, signal.SIG_IGN)
