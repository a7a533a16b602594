"""Creates the venvs from the lock files of their flavour.

An environment's path holds a digest of what goes into it, so that new requirements make a new one and never alter one
that a run is using. The marker file is written last: what an interrupted set-up left is removed and made again.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

from webgym_cli.config.model import Settings
from webgym_cli.config.shipped import LOCKED_PYTHONS
from webgym_cli.errors import JobError, UsageError, VenvError
from webgym_cli.util.files import file_size, write_json
from webgym_cli.venvs import cpu_fixes
from webgym_cli.venvs import installer as installer_script
from webgym_cli.venvs.browser import Report, Runner
from webgym_cli.venvs.locate import (
    ROLES,
    Device,
    RoleEnvironment,
    find_configured,
    installed_packages,
    role_environment,
    role_environments,
    role_home,
)

# Messages of uv, pip and Playwright without a network.
_OFFLINE = re.compile(
    "NewConnectionError|NameResolutionError|ConnectTimeoutError|Network is unreachable|ENOTFOUND|EAI_AGAIN"
    "|dns error|client error \\(Connect\\)|Temporary failure in name resolution"
)

# An index without the CPU build of torch, as PyPI is.
_NO_CPU_BUILD = re.compile(
    r"(?:no version of|distribution found for|\btorch\S* was not found in .*) torch\S*==[\d.]+\+cpu"
)

# Modules that must be importable in a finished venv.
CHECKS = {
    "serve": "import vllm; from vllm.entrypoints.openai import api_server",
    "train": "import torch, torchvision, transformers, deepspeed, llamafactory.train.tuner",
}


@dataclass(frozen=True, slots=True)
class RoleSetup:
    """What is to be done for one role. No commands: it is there already, or the settings name another one."""

    environment: RoleEnvironment
    state: str
    """`make`, `ready` or `configured`."""
    commands: tuple[tuple[str, ...], ...]
    log: Path

    def to_json(self) -> dict[str, object]:
        """Return it as plain data."""
        environment = {key: str(value) for key, value in asdict(self.environment).items()}
        commands = [list(command) for command in self.commands]
        return {**environment, "state": self.state, "commands": commands, "log": str(self.log)}


def plan_setup(settings: Settings, roles: Sequence[str], device: Device) -> tuple[RoleSetup, ...]:
    """Return what is missing for these roles; changes nothing."""
    for role in roles:
        if role not in ROLES:
            raise UsageError(f"there is no role {role!r}", hint=f"the roles are: {', '.join(ROLES)}")
    return tuple(_plan_role(settings, role, device) for role in roles)


def execute_setup(plan: Sequence[RoleSetup], report: Report, run: Runner) -> None:
    """Make every environment that is missing. Raises `JobError` when pip or the check fails."""
    for role in plan:
        if role.state == "configured":
            report(f"{role.environment.role}: the settings name an environment of your own; nothing to do")
            continue
        with _lock(role.environment, report):
            if role.environment.complete:
                report(f"{role.environment.role}: already there ({role.environment.path})")
            else:
                _make(role, report, run)
        name, device = role.environment.role, role.environment.device
        current = [environment.path for environment in role_environments(name, device)]
        beside = role.environment.path.parent.glob(f"{name}-{device}-*")
        for path in sorted(path for path in beside if path.is_dir() and path not in current):  # gigabytes
            report(f"{name}: {path} is of another webgym version; delete it if no run uses it")


def _plan_role(settings: Settings, role: str, device: Device) -> RoleSetup:
    environment = role_environment(role, device)
    log = role_home() / "logs" / f"setup-{role}.log"
    if find_configured(settings, role):
        return RoleSetup(environment, "configured", (), log)
    if environment.complete:
        return RoleSetup(environment, "ready", (), log)
    base = sys.executable
    best = role_environments(role, device)[0]
    if best != environment and (other := installer_script.find_interpreter(LOCKED_PYTHONS[device])):
        environment, base = best, other
    python, installer = str(environment.python), (sys.executable, "-I", installer_script.__file__)
    commands = (
        (*installer, "venv", base, str(environment.path)),
        (*installer, "install", python, "-r", str(environment.requirements)),
        (python, "-c", CHECKS[role]),
    )
    return RoleSetup(environment, "make", commands, log)


def _make(role: RoleSetup, report: Report, run: Runner) -> None:
    environment = role.environment
    if find_spec("ensurepip") is None or find_spec("venv") is None:
        raise VenvError("this Python can't make virtual environments", hint="apt-get install -y python3-venv")
    if environment.path.exists():
        report(f"{environment.role}: removing what an interrupted set-up left")
        shutil.rmtree(environment.path)
    role.log.parent.mkdir(parents=True, exist_ok=True)
    role.log.unlink(missing_ok=True)
    make, install, check = role.commands
    _step(role, make, "making the environment", report, run)
    _step(role, install, "installing; this takes minutes and gigabytes", report, run)
    if environment.device == "cpu":
        cpu_fixes.apply(environment.path)
    _step(role, check, "checking that it can be imported", report, run)
    marker = {
        "role": environment.role,
        "device": environment.device,
        "python": str(environment.python),
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "packages": installed_packages(environment.path),
    }
    write_json(environment.marker, marker)
    report(f"{environment.role}: ready ({environment.path})")


def _step(role: RoleSetup, command: Sequence[str], what: str, report: Report, run: Runner) -> None:
    name = role.environment.role
    report(f"{name}: {what} (log: {role.log})")
    before = file_size(role.log)
    code = run(command, role.log)
    if code != 0:
        why, first = reason(role.log, before), f"read {role.log}"
        if _NO_CPU_BUILD.search(why):
            first = "export PIP_EXTRA_INDEX_URL with PyTorch's index of CPU wheels"
        raise JobError(
            f"setting up the {name} environment failed: {why}",
            hint=f"{first}, then: webgym setup --role {name}",
            returncode=code,
        )


def reason(log: Path, start: int = 0) -> str:
    """Return the most informative error line of a log, from byte `start` on."""
    if not log.is_file():
        return "it could not be started"
    text = log.read_bytes()[start:].decode(errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("ERROR", "error:"))]
    lines_left = [line for line in lines if not line.startswith("WARNING")]
    # uv's, from what it did to what went wrong
    causes = [line.removeprefix("cause: ") for line in lines if line.startswith("cause: ")]
    if causes:
        errors = [": ".join(dict.fromkeys((causes[0], causes[-1])))]
    why = (errors or lines_left or ["it said nothing"])[-1][:300]
    return f"no network, or the package index can't be reached: {why}" if _OFFLINE.search(text) else why


@contextmanager
def _lock(environment: RoleEnvironment, report: Report) -> Iterator[None]:
    """Lock the venv against a second set-up; the lock ends with the process."""
    from filelock import FileLock, Timeout

    path = environment.path.with_name(f"{environment.path.name}.lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        held = lock.acquire(timeout=0)
    except Timeout:
        report(f"{environment.role}: another set-up is at work on it; waiting")
        held = lock.acquire()
    with held:
        yield
