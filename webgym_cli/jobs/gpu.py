"""Waits until the GPU memory of processes that we ended is free, and names what others hold. Ends nothing itself."""

from __future__ import annotations

import asyncio
import importlib
import os
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from types import ModuleType

from webgym_cli.errors import JobError
from webgym_cli.jobs.guard import descendants, start_time
from webgym_cli.records.events import EventSink, make_event

# How long the driver may take to give back the memory of a process that has ended.
RELEASE_SECONDS = 120.0
# Seconds between two NVML queries.
POLL_SECONDS = 0.5
# Bytes of GPU memory in the hands of others that are worth a warning.
MUCH = 2**30


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that holds memory of a GPU."""

    pid: int
    gpu: int
    """The GPU's number, as `nvidia-smi` counts."""
    bytes: int
    """0 where the driver doesn't tell."""

    def __str__(self) -> str:
        """Say it in words."""
        return f"process {self.pid} ({self.bytes / 2**30:.1f} GiB of GPU {self.gpu})"


class Nvml:
    """NVIDIA's management library (`nvidia-ml-py`)."""

    def __init__(self, library: ModuleType) -> None:
        """Use `open_nvml`. `library` is initialised."""
        self._library = library

    def holders(self) -> list[GpuProcess]:
        """Return the processes that hold memory now; a GPU that doesn't answer counts as unused."""
        processes: dict[tuple[int, int], GpuProcess] = {}
        for gpu in range(self._library.nvmlDeviceGetCount()):
            # One failing GPU must not hide the processes of the others.
            with suppress(self._library.NVMLError):
                for device in self._parts(self._library.nvmlDeviceGetHandleByIndex(gpu)):
                    with suppress(self._library.NVMLError):
                        for process in self._library.nvmlDeviceGetComputeRunningProcesses(device):
                            holder = GpuProcess(int(process.pid), gpu, int(process.usedGpuMemory or 0))
                            processes[holder.pid, gpu] = holder
        return list(processes.values())

    def _parts(self, device: object) -> list[object]:
        """Return a GPU and its MIG instances: some drivers list processes only there."""
        parts = [device]
        with suppress(self._library.NVMLError):
            for number in range(self._library.nvmlDeviceGetMaxMigDeviceCount(device)):
                with suppress(self._library.NVMLError):
                    parts.append(self._library.nvmlDeviceGetMigDeviceHandleByIndex(device, number))
        return parts


def open_nvml() -> Nvml | None:
    """Return the library, or None where it is not installed or no driver answers."""
    try:
        library = importlib.import_module("pynvml")
    # `nvidia-ml-py` is optional: without it the GPU memory is not awaited.
    except ImportError:
        return None
    try:
        library.nvmlInit()
    # The library is installed on machines without a driver, too.
    except library.NVMLError:
        return None
    return Nvml(library)


class GpuMemory:
    """The GPU memory of one job: `note` its processes while they run, await `freed` after their end."""

    def __init__(self, sink: EventSink, nvml: Nvml | None) -> None:
        """`nvml`: from `open_nvml`; without it nothing is known, and nothing waited for."""
        self._sink = sink
        self._nvml = nvml
        self._ours: dict[int, str] = {}
        """Process ids with their start times."""

    @classmethod
    def of(cls, device: str, sink: EventSink) -> GpuMemory:
        """Return what watches the memory of a job on this device, `cpu` or `cuda`; says so where nothing can."""
        nvml = open_nvml() if device == "cuda" else None
        if device == "cuda" and nvml is None:
            message = "nvidia-ml-py is not installed, or no driver answers it: nothing waits until GPU memory is free"
            sink(make_event("gpu_memory", pids=[], message=f"{message} (pip install 'webgym[gpu]')"))
        return cls(sink, nvml)

    def note(self, root: int) -> None:
        """Remember which processes of a tree hold GPU memory now. `root` is the job's process id."""
        for pid in {holder.pid for holder in self._holders_of(root)}:
            self._ours[pid] = start_time(pid) or ""

    def held_gib(self, root: int) -> float | None:
        """Return the GiB that a process tree holds on the GPU where it holds most.

        None where that can't be told: without NVML, and in a container whose process numbers the driver doesn't know.
        """
        by_gpu = Counter[int]()
        for holder in self._holders_of(root):
            by_gpu[holder.gpu] += holder.bytes
        return max(by_gpu.values()) / 2**30 if any(by_gpu.values()) else None

    async def freed(self, *, seconds: float = RELEASE_SECONDS, poll_seconds: float = POLL_SECONDS) -> None:
        """Wait until none of the noted processes holds GPU memory, then warn of much that others hold.

        Raises `JobError` that names the processes when the memory is not free after `seconds`.
        """
        if (nvml := self._nvml) is None:
            return
        began = time.monotonic()
        while left := [holder for holder in nvml.holders() if self._is_ours(holder.pid)]:
            if time.monotonic() - began >= seconds:
                raise JobError(
                    f"GPU memory was not given back {seconds:.0f} s after its job had ended: {_words(left)}",
                    hint=f"end what is left (kill -9 {' '.join(str(pid) for pid in sorted({h.pid for h in left}))}), "
                    "then run the same command again",
                )
            await asyncio.sleep(poll_seconds)
        mine = {os.getpid(), *descendants(os.getpid())}
        others = [holder for holder in nvml.holders() if holder.pid not in mine and holder.bytes >= MUCH]
        if others:
            message = f"GPU memory is held by others, which may leave too little: {_words(others)}"
            self._sink(make_event("gpu_memory", pids=sorted({holder.pid for holder in others}), message=message))

    def _holders_of(self, root: int) -> list[GpuProcess]:
        if self._nvml is None:
            return []
        tree = {root, *descendants(root)}
        return [holder for holder in self._nvml.holders() if holder.pid in tree]

    def _is_ours(self, pid: int) -> bool:
        """Tell whether a process is a noted one, or its remains; not another one that got its number."""
        return pid in self._ours and start_time(pid) in (None, self._ours[pid])


def _words(holders: list[GpuProcess]) -> str:
    return ", ".join(str(holder) for holder in sorted(holders, key=lambda holder: (holder.gpu, holder.pid)))
