"""Extracts the cause of a failure from a trainer's log."""

from __future__ import annotations

import re
import signal
from pathlib import Path

from webgym_cli.errors import JobError, PeerLostError
from webgym_cli.jobs.process import last_lines

# The last line of a Python traceback.
EXCEPTION = re.compile(r"^(?:\[rank\d+\]:\s*)?(?:[A-Za-z_][\w.]*\.)?(\w*(?:Error|Exception|Interrupt|Exit))(?::|$)")
# A launcher's messages about a failed child, which don't contain the cause.
ECHOES = frozenset({"ChildFailedError", "CalledProcessError", "SignalException", "RemoteTraceback"})
# What torchrun reports of the process that failed first, if a signal ended it; the others then fail by it. NCCL aborts
# (SIGABRT) where another node is lost.
KILLED = re.compile(r"Root Cause.*traceback : Signal \d+ \((SIG(?:KILL|SEGV|BUS|ILL|FPE))\)", re.DOTALL)
# A full disk, also as `torch.save` reports it, with positions in the file alone.
DISK_FULL = re.compile(r"No space left on device|inline_container\.cc.*unexpected pos")
# Prefix of our own trainer's line with the cause.
OWN = "webgym: "
LINES = 400
# A trainer's messages about a lost peer, on this or another node, which don't contain the cause.
PEER_LOST = re.compile(
    r"connection (closed|reset|refused|aborted)|broken pipe|\bpeer\b|\bDist\w*Error|Rendezvous\w*Error|"
    r"remote process|failed to recv|\bNCCL\b|\bgloo\b",
    re.IGNORECASE,
)


def reason(log: Path) -> str:
    """Return our own trainer's error line, else the last exception's line, else the last line, else ""."""
    lines = last_lines(log, LINES)
    for line in reversed(lines):
        if line.startswith(OWN):
            return line.removeprefix(OWN).strip()
        match = EXCEPTION.match(line.strip())
        if match and match.group(1) not in ECHOES:
            return re.sub(r"^\[rank\d+\]:\s*", "", line.strip())
    return next(reversed(lines), "").strip()


def trainer_error(code: int, log: Path) -> JobError:
    """Return the error for a trainer's nonzero exit status."""
    cause = reason(log)
    if match := KILLED.search("\n".join(last_lines(log, LINES))):
        cause = f"one of its processes was ended by {match[1]}"
        if match[1] == "SIGKILL":
            cause += ", most likely for lack of memory"
    kind = PeerLostError if code < 128 and not match and PEER_LOST.search(cause) else JobError
    if code == 128 + signal.SIGKILL:
        cause = f"it was killed, most likely for lack of memory; its last words: {cause}"
    hint = f"read {log}, fix the cause, then run the same command again"
    if DISK_FULL.search(cause):
        hint = "free disk space, then run the same command again"
    return kind(f"the trainer failed (exit status {code}): {cause}; log: {log}", hint=hint, returncode=code)
