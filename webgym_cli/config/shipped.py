"""The files that ship with webgym: `configs/` in a checkout, `webgym_cli/configs/` in a wheel."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

from webgym_cli.errors import SettingsError
from webgym_cli.util.registry import suggest_name

PACKAGE = Path(__file__).resolve().parent.parent
# The platform that `make lock` resolves for: other ones have wheels with other hashes.
LOCKED_PLATFORM = ("linux", "x86_64")
# Python versions that `make lock` resolves each flavour for. The CPU build of torch is one wheel a Python version.
LOCKED_PYTHONS = {"cpu": ((3, 11),), "cuda": ((3, 11), (3, 12), (3, 13))}


def shipped_root() -> Path:
    """Return the folder of the shipped configuration files."""
    # A wheel has them inside the package (pyproject.toml, force-include).
    packed = PACKAGE / "configs"
    return packed if packed.is_dir() else PACKAGE.parent / "configs"


def find_config_file(name: str | Path) -> Path:
    """Return an existing settings file: a path, or the bare name of a shipped one (`demo` -> `configs/demo.yaml`)."""
    path = Path(name)
    if path.is_file():
        return path
    shipped = shipped_root() / f"{path}.yaml"
    # A path with a folder is never a shipped name, so that a typing error is reported.
    if path.name == str(path) and shipped.is_file():
        return shipped
    known = sorted(file.stem for file in shipped_root().glob("*.yaml"))
    raise SettingsError(
        f"{path}: no such settings file", hint=f"a path, or a shipped name: {suggest_name(str(path), known)}"
    )


def find_deepspeed_file(name: str, setting: str = "algorithm_config.deepspeed_config_filename") -> Path:
    """Return an existing DeepSpeed configuration: a path, or the name of a shipped one. `setting`: key in errors."""
    path = Path(name)
    if path.is_file():
        return path.resolve()
    # equal files were merged: a B200 uses the H200's, and ZeRO stage 3 has no GPU-dependent bucket sizes
    shared = path.name.replace("_b200_", "_h200_").replace("_h100_zero3", "_h200_zero3")
    shipped = shipped_root() / "deepspeed" / shared
    if shipped.is_file():
        return shipped
    known = sorted(file.name for file in shipped_root().glob("deepspeed/*.json"))
    raise SettingsError(f"{setting}: no file {name!r}", hint=f"a path, or a shipped name: {suggest_name(name, known)}")


def requirements_file(role: str, device: str) -> Path:
    """Return what a role environment is made from: the lock file for this Python and platform, else the pins."""
    is_known = (sys.platform, platform.machine()) == LOCKED_PLATFORM
    locked = is_known and sys.version_info[:2] in LOCKED_PYTHONS[device]
    return shipped_root() / "roles" / f"{role}-{device}.{'lock' if locked else 'txt'}"
