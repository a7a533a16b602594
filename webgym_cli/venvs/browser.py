"""Installs a Chromium where none is found: Playwright's own, else the system's package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from webgym_cli.errors import VenvError
from webgym_cli.util.optional import map_known
from webgym_cli.venvs.locate import role_home

# Returns the Chromium that episodes will use; raises `VenvError` when there is none.
Finder = Callable[[], Path]

# Takes one line for a person.
Report = Callable[[str], None]
# Runs a command with its output appended to a log and returns its exit status; nothing of it outlives us.
Runner = Callable[[Sequence[str], Path], int]
# Whether the user allows commands that run as root.
Consent = Callable[[Sequence[Sequence[str]]], bool]

# Debian's packages, the preferred choice first; without fonts, text would be drawn as boxes.
PACKAGES = (("chromium-headless-shell", "fonts-liberation"), ("chromium", "fonts-liberation"))
# Seconds that Playwright's download may take.
DOWNLOAD_LIMIT = "180"
_SUDO_TIMEOUT = 10.0


@dataclass(frozen=True, slots=True)
class BrowserPlan:
    """What will be tried, in this order, until a Chromium is found."""

    program: Path | None
    attempts: tuple[tuple[tuple[str, ...], ...], ...]
    """Each attempt is a sequence of commands."""
    log: Path
    system_attempts: tuple[tuple[tuple[str, ...], ...], ...] = ()
    """Further attempts, which install system packages as root: only with the user's consent."""

    def to_json(self) -> dict[str, object]:
        """Return the plan as plain data."""
        attempts = [[list(command) for command in attempt] for attempt in (*self.attempts, *self.system_attempts)]
        state = "ready" if self.program else "make"
        path = map_known(str, self.program)
        return {"role": "browser", "path": path, "state": state, "attempts": attempts, "log": str(self.log)}


def plan_browser(find: Finder) -> BrowserPlan:
    """Return what to try; nothing when there is a browser."""
    log = role_home() / "logs" / "setup-browser.log"
    if program := _find(find):
        return BrowserPlan(program, (), log)
    download: tuple[str, ...] = (sys.executable, "-m", "playwright", "install", "chromium-headless-shell")
    if limit := shutil.which("timeout"):
        download = (limit, DOWNLOAD_LIMIT, *download)
    prefix = _root_prefix() if shutil.which("apt-get") else None
    if prefix is None:
        return BrowserPlan(None, ((download,),), log)
    update = (*prefix, "apt-get", "update")
    quiet = (*prefix, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "--no-install-recommends")
    return BrowserPlan(None, ((download,),), log, tuple((update, (*quiet, *names)) for names in PACKAGES))


def execute_browser(plan: BrowserPlan, report: Report, run: Runner, find: Finder, consent: Consent) -> Path:
    """Return a browser, installed if need be. Raises `VenvError` with the command that a person can type."""
    if plan.program:
        report(f"browser: already there ({plan.program})")
        return plan.program
    plan.log.unlink(missing_ok=True)
    if program := _try_all(plan.attempts, plan.log, report, run, find):
        return program
    hint = by_hand()
    if plan.system_attempts:
        if not consent(plan.system_attempts[0]):
            hint = f"webgym setup --role browser --system-packages (installs as root), or: {hint}"
        elif program := _try_all(plan.system_attempts, plan.log, report, run, find):
            return program
    raise VenvError(f"no Chromium could be installed; see {plan.log}", hint=hint)


def _try_all(
    attempts: Sequence[Sequence[Sequence[str]]], log: Path, report: Report, run: Runner, find: Finder
) -> Path | None:
    """Run the attempts until there is a browser; return it."""
    for attempt in attempts:
        report(f"browser: {' '.join(attempt[-1])} (log: {log})")
        if all(run(command, log) == 0 for command in attempt) and (program := _find(find)):
            report(f"browser: ready ({program})")
            return program
    return None


def by_hand() -> str:
    """Return the command with which a person installs a Chromium on this platform."""
    if sys.platform == "darwin":
        return "brew install --cask chromium"
    if shutil.which("apt-get"):
        return f"sudo apt-get install -y {' '.join(PACKAGES[0])}"
    if shutil.which("dnf"):
        return "sudo dnf install -y chromium-headless liberation-fonts"
    return "install Chromium with your system's package manager, then set browser.executable to its path"


def _find(find: Finder) -> Path | None:
    try:
        return find()
    except VenvError:
        return None


def _root_prefix() -> tuple[str, ...] | None:
    """Return the prefix that runs a command as root without a password prompt; None if there is none."""
    if os.geteuid() == 0:
        return ()
    if not shutil.which("sudo"):
        return None
    try:
        allowed = subprocess.run(["sudo", "-n", "true"], capture_output=True, timeout=_SUDO_TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ("sudo", "-n") if allowed.returncode == 0 else None
