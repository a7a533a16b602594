"""Extracts progress and the cause of a failure from vLLM's log."""

from __future__ import annotations

import re
from pathlib import Path

from webgym_cli.errors import JobError
from webgym_cli.jobs import process

LINES = 400
# Maximum characters of a progress message.
LAST_LINE_LENGTH = 100
# Process name and vLLM's timestamp at the start of a line.
PREFIX = re.compile(r"^(?:\([\w ]+ pid=\d+\)\s*)?(?:(?:DEBUG|INFO|WARNING|ERROR) \d\d-\d\d [\d:]+ \[[^\]]*\]\s?)?")
# Exceptions with which a vLLM process reports another one's failure; they don't contain the cause.
_ECHOES = re.compile(".*(See root cause above|Engine core initialization failed|EngineDeadError|ChildProcessError)")
# An argparse error.
USAGE = re.compile(r"^\S+: error: ")
# Exit statuses from here on are 128 + the signal's number.
SIGNALLED = 128


def plain(line: str) -> str:
    """Return a line of the log without its prefixes."""
    return PREFIX.sub("", line).strip()


def last_line(log: Path) -> str:
    """Return the last line, truncated for a progress bar."""
    return plain(process.last_line(log))[:LAST_LINE_LENGTH]


def reason(log: Path) -> str:
    """Return the last line with an argparse error or an exception that is not an echo, else the last line."""
    lines = [plain(line) for line in process.read_failure(log, LINES)]
    return process.find_cause(lines, _ECHOES, USAGE) or "it wrote nothing"


def server_died_error(code: int | None, log: Path, when: str) -> JobError:
    """Return the error for a server that exited by itself. `code`: exit status, None if not known yet."""
    killed = f" (killed by signal {code - SIGNALLED})" if code and code > SIGNALLED else ""
    status = "" if code is None else f" with exit status {code}{killed}"
    return JobError(
        f"vLLM ended {when}{status}: {reason(log)}; log: {log}",
        hint=f"read {log}, fix the cause, then run the same command again",
        returncode=code,
    )
