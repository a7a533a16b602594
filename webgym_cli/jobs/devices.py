"""Visible NVIDIA GPUs of a child process, determined from the environment and the device files; their assignment."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from webgym_cli.errors import SettingsError, UsageError

VARIABLE = "CUDA_VISIBLE_DEVICES"
DEVICES = Path("/dev")
DRIVER = Path("/proc/driver/nvidia/gpus")
ASK = f"export {VARIABLE} as numbers (0,1), GPU-… ids or one MIG-… id of `nvidia-smi -L`, or unset it"


def present() -> int:
    """Return the number of GPUs of this machine or container; 0 if none is visible, or with an unusual driver."""
    files = sum(1 for path in DEVICES.glob("nvidia*") if re.fullmatch(r"nvidia\d+", path.name))
    return files or sum(1 for _ in DRIVER.glob("*"))


def list_visible(environ: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the GPUs of `CUDA_VISIBLE_DEVICES`, parsed as CUDA does; None if it is not set.

    An empty entry, a negative number and `NoDevFiles` end the list. Raises `UsageError` for an invalid GPU name or a
    number that is out of range, and for a repeated one, with which CUDA would see no GPU.
    """
    value = environ.get(VARIABLE)
    if value is None:
        return None
    names, count = list[str](), present()
    for entry in (part.strip() for part in value.split(",")):
        if not entry or re.fullmatch(r"-\d+", entry) or entry == "NoDevFiles":
            break
        if not re.fullmatch(r"\d+|GPU-[0-9A-Fa-f-]+|MIG-\S+", entry):
            raise UsageError(f"{VARIABLE}={value}: {entry!r} is no GPU", hint=ASK)
        if entry in names:
            raise UsageError(f"{VARIABLE}={value}: {entry} is named twice", hint=ASK)
        if entry.isdigit() and count and int(entry) >= count:
            raise UsageError(
                f"{VARIABLE}={value}: there is no GPU {entry}, they are numbered from 0 to {count - 1}", hint=ASK
            )
        names.append(entry)
    return tuple(names)


def restrict(environ: Mapping[str, str], gpus: Sequence[str], setting: str) -> dict[str, str]:
    """Return the environment variables that restrict a child process to `gpus`; empty if `gpus` is empty.

    Raises `SettingsError`, naming the setting, for a GPU that is hidden or that there is not.
    """
    if not gpus:
        return {}
    chosen = {VARIABLE: ",".join(gpus)}
    ours = list_visible(environ)
    try:
        hidden = [gpu for gpu in list_visible(chosen) or () if ours is not None and gpu not in ours]
    except UsageError as error:
        raise SettingsError(f"{setting}: {error}", hint=f'-s {setting}=["0"]') from error
    if hidden:
        raise SettingsError(
            f"{setting}: {VARIABLE}={environ[VARIABLE]} hides {', '.join(hidden)}", hint="name others, or unset it"
        )
    return chosen


def usable(environ: Mapping[str, str]) -> int | None:
    """Return the number of GPUs that a process can use, None if unknown.

    With several MIG instances CUDA uses the first. Raises `UsageError` as `list_visible`.
    """
    names = list_visible(environ)
    if names is None:
        return present() or None
    return 1 if any(name.startswith("MIG-") for name in names) else len(names)


def usable_gpus(environ: Mapping[str, str], chosen: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the usable GPUs: the chosen ones, else those of `CUDA_VISIBLE_DEVICES`, else all of this machine.

    Empty if no GPU is known. Raises `UsageError` for an invalid `CUDA_VISIBLE_DEVICES`, and `SettingsError` for
    chosen GPUs (`serve.gpus`) that are invalid or hidden.
    """
    named = list_visible({**environ, **restrict(environ, chosen, "serve.gpus")})
    return tuple(str(number) for number in range(present())) if named is None else named


def split_gpus(
    gpus: tuple[str, ...], replicas: int | None, each: int, *, chosen: bool = False
) -> list[tuple[str, ...]]:
    """Return the GPUs of each replica, `each` per replica; empty for a single replica, whose GPUs CUDA chooses.

    `replicas`: None means as many as fit on the GPUs. `chosen`: the user chose the GPUs, so that a single replica
    gets their names too. Raises `SettingsError` if there are too few GPUs.
    """
    count = replicas or max(1, len(gpus) // each)
    if count == 1 and not chosen:
        return [()]
    if len(gpus) < count * each:
        raise SettingsError(
            f"serve.replicas: {count} servers on {each} GPUs each need {count * each}, {len(gpus)} can be used",
            hint="take fewer with -s serve.replicas=N; null takes as many as fit",
        )
    return [gpus[first : first + each] for first in range(0, count * each, each)]
