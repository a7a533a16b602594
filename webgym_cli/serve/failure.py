"""Extracts progress and the cause of a failure from vLLM's log."""

from __future__ import annotations

import re
from pathlib import Path

from webgym_cli.errors import JobError
from webgym_cli.jobs.process import last_lines

LINES = 400
# Characters of a progress bar's remark.
SHORT = 100
# Which process wrote a line, and vLLM's stamp.
PREFIX = re.compile(r"^(?:\([\w ]+ pid=\d+\)\s*)?(?:(?:DEBUG|INFO|WARNING|ERROR) \d\d-\d\d [\d:]+ \[[^\]]*\]\s?)?")
# The last line of a Python traceback.
EXCEPTION = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?\w*(?:Error|Exception)(?::|$)")
# What one of vLLM's processes says about the failure of another: true, but not why.
ECHOES = ("See root cause above", "Engine core initialization failed", "EngineDeadError", "ChildProcessError")
# What argparse says about an argument.
USAGE = re.compile(r"^\S+: error: ")
# Exit statuses from here on are 128 + the signal's number.
SIGNALLED = 128


def plain(line: str) -> str:
    """Return a line of the log without its prefixes."""
    return PREFIX.sub("", line).strip()


def last_words(log: Path) -> str:
    """Return the newest line, short enough for a progress bar."""
    lines = last_lines(log, 1)
    return plain(lines[-1])[:SHORT] if lines else ""


def reason(log: Path) -> str:
    """Return the line of the last exception that is not an echo, else argparse's word, else the last line."""
    lines = [plain(line) for line in last_lines(log, LINES)]
    for position in range(len(lines) - 1, -1, -1):
        line = lines[position]
        if USAGE.match(line) or (EXCEPTION.match(line) and not any(echo in line for echo in ECHOES)):
            # pydantic puts the cause on the line after
            after = lines[position + 1] if position + 1 < len(lines) else ""
            return f"{line}: {after}" if "validation error" in line else line
    return lines[-1] if lines else "it wrote nothing"


def server_died_error(code: int | None, log: Path, when: str) -> JobError:
    """Return the error of a server that ended by itself; its exit status is None where it isn't known yet."""
    killed = f" (killed by signal {code - SIGNALLED})" if code and code > SIGNALLED else ""
    status = "" if code is None else f" with exit status {code}{killed}"
    return JobError(
        f"vLLM ended {when}{status}: {reason(log)}; log: {log}",
        hint=f"read {log}, fix the cause, then run the same command again",
        returncode=code,
    )
