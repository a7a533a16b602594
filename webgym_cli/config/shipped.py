"""The files that ship with webgym (`configs/` in a checkout, `webgym_cli/configs/` in a wheel), and DeepSpeed's."""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path
from typing import Any

from webgym_cli.errors import SettingsError
from webgym_cli.util.json_values import as_object
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
        f"{path}: no such settings file", hint=f"a path, or a shipped name: {suggest_name(path.stem, known)}"
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


def requirements_files(role: str, device: str) -> list[Path]:
    """Return what a role environment can be made from on this platform, the best first.

    The last one is for the running Python: the lock file if it is resolved for it, else the pins.
    """
    suffixes = ["lock", "txt"]
    if (sys.platform, platform.machine()) != LOCKED_PLATFORM:
        suffixes = ["txt"]
    elif sys.version_info[:2] in LOCKED_PYTHONS[device]:
        suffixes = ["lock"]
    return [shipped_root() / "roles" / f"{role}-{device}.{suffix}" for suffix in suffixes]


def zero_stage(deepspeed: dict[str, Any]) -> int:
    """Return the ZeRO stage of a DeepSpeed configuration."""
    return int(as_object(deepspeed.get("zero_optimization")).get("stage", 0))


def is_offloaded(deepspeed: dict[str, Any], part: str) -> bool:
    """Return whether DeepSpeed offloads `part` (`optimizer` or `param`) to the CPU."""
    zero = as_object(deepspeed.get("zero_optimization"))
    return bool(as_object(zero.get(f"offload_{part}")).get("device", "none") != "none")


def read_deepspeed_file(value: dict[str, Any] | str | Path | None) -> dict[str, Any] | None:
    """Return the DeepSpeed configuration of a file, or the given one. Raises `SettingsError` naming the file."""
    if value is None or isinstance(value, dict):
        return value
    file = Path(str(value))
    try:
        loaded = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{file}: DeepSpeed's settings can't be read: {error.strerror}") from None
    except ValueError as error:
        raise SettingsError(f"{file}: not JSON: {error}") from None
    if not isinstance(loaded, dict):
        raise SettingsError(f"{file}: DeepSpeed's settings must be a JSON object")
    if as_object(loaded.get("zero_optimization")).get("stage", 0) not in (0, 1, 2, 3):
        raise SettingsError(f"{file}: zero_optimization.stage must be 0, 1, 2 or 3")
    return loaded
