"""Compiles DeepSpeed's extensions before they are used, and removes what killed builds left.

A first build takes minutes, a failed one is reported early, and a stale lock would stop every later one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from webgym_cli.config.load import flat_values
from webgym_cli.config.model import Settings
from webgym_cli.config.shipped import find_deepspeed_file, is_offloaded, read_deepspeed_file
from webgym_cli.errors import VenvError
from webgym_cli.jobs.process import Job
from webgym_cli.records.events import EventSink
from webgym_cli.train.backend import TrainPlan
from webgym_cli.train.registry import find_backend
from webgym_cli.train.trainer_log import reason
from webgym_cli.util.optional import when
from webgym_cli.venvs.locate import Device, own_environ, resolve_device, role_home, role_python, trainer_environ

# Compiles extensions, or loads the cached builds. The environment's ninja comes first, as in a training: another one
# compiles everything again. Torch waits without end for another build's lock: after half an hour this one ends.
BUILD = """
import os, signal, sys
def end(_, frame):
    raise TimeoutError(f"no end after 30 minutes, at {frame.f_code.co_filename}:{frame.f_lineno}")
signal.signal(signal.SIGALRM, end)
signal.alarm(1800)
os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", os.defpath)
from deepspeed.accelerator import get_accelerator
for name in sys.argv[1:]:
    print("compiling", name, flush=True)
    get_accelerator().create_op_builder(name).load()
"""
_HINT = (
    "install g++ (with CUDA also nvcc, of the version of torch's CUDA), or take a configuration without offload: "
    "-s algorithm_config.deepspeed_config_filename=ds_config_h100_zero3.json"
)


def list_ops(deepspeed: dict[str, Any] | None, device: str) -> tuple[str, ...]:
    """Return the builders of the extensions that a training with this DeepSpeed configuration loads."""
    if deepspeed is None:
        return ()
    optimizer = when(is_offloaded(deepspeed, "optimizer"), ("CPUAdamBuilder",))
    return (*optimizer, "ShareMemCommBuilder") if device == "cpu" else optimizer


def read_deepspeed(settings: Settings) -> dict[str, Any] | None:
    """Return the DeepSpeed configuration of trainings with these settings; None without DeepSpeed.

    Raises `SettingsError` that names the file.
    """
    setting = find_backend(settings.train.algorithm).deepspeed_setting
    name = flat_values(settings)[setting] if setting else None
    return read_deepspeed_file(find_deepspeed_file(name, setting) if name else None)


def build_ops(
    settings: Settings, device: Device, report: Callable[[str], None], run: Callable[[Sequence[str], Path], int]
) -> None:
    """Build what trainings with these settings will need, at set-up. Raises `VenvError` if it can't be built."""
    ops = list_ops(read_deepspeed(settings), device)
    if not ops:
        return
    log = role_home() / "logs" / "setup-deepspeed.log"
    log.unlink(missing_ok=True)
    for note in remove_stale_locks(own_environ()):
        report(f"train: {note}")
    report(f"train: compiling DeepSpeed's {', '.join(ops)} unless cached (log: {log})")
    if run((str(role_python(settings, "train")), "-c", BUILD, *ops), log) != 0:
        raise _refuse(ops, log)


async def require_ops(plan: TrainPlan, settings: Settings, log: Path, sink: EventSink) -> None:
    """Build what this training needs. Raises `VenvError` if it can't be built."""
    ops = list_ops(plan.launch.deepspeed, resolve_device(settings.venvs.device))
    if not ops:
        return
    sink({"event": "train_note", "message": f"DeepSpeed loads {', '.join(ops)}: some minutes the first time"})
    env = trainer_environ(plan.launch.python) | plan.launch.env
    if await Job.run([str(plan.launch.python), "-c", BUILD, *ops], env=env, log=log) != 0:
        raise _refuse(ops, log)


def _refuse(ops: Sequence[str], log: Path) -> VenvError:
    return VenvError(f"DeepSpeed can't build {', '.join(ops)}: {reason(log)}; log: {log}", hint=_HINT)


# Below the cache torch has a folder for each version and device, below the variable's folder it has none.
_VARIABLE = "TORCH_EXTENSIONS_DIR"
_LOCKS = ("*/lock", "*/*/lock")


def remove_stale_locks(env: Mapping[str, str]) -> list[str]:
    """Remove our user's locks that no process of this machine holds open; return a note on each. `env`: the trainer's.

    A build keeps its lock open until it ends (torch's `FileBaton`), so a lock that no process has open is stale.
    """
    home = env.get("HOME") or os.path.expanduser("~")  # noqa: PTH111 - there may be no home
    cache = Path(env.get("XDG_CACHE_HOME") or f"{home}/.cache")
    root = Path(env.get(_VARIABLE) or cache / "torch_extensions")
    locks = {path: path.stat().st_ino for pattern in _LOCKS for path in root.glob(pattern) if _is_ours(path)}
    held = _list_open_files() if locks else frozenset()
    stale = [path for path in locks if str(path.resolve()) not in held]
    for path in stale:
        with suppress(FileNotFoundError):
            if path.stat().st_ino == locks[path]:
                path.unlink()
    return [f"{path}: a build was killed and left it; removed" for path in stale]


def _is_ours(path: Path) -> bool:
    return path.is_file() and path.stat().st_uid == os.getuid()


def _list_open_files() -> frozenset[str]:
    """Return the files that our user's processes have open."""
    return frozenset(
        file.path for process in psutil.process_iter(["open_files"]) for file in process.info["open_files"] or ()
    )
