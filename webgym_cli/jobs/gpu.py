"""Waits until the GPU memory of ended jobs is free, and reports memory held by others. Ends no process itself."""

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

# Timeout for the driver to free the memory of an ended process.
RELEASE_SECONDS = 120.0
# Seconds between two NVML queries.
POLL_SECONDS = 0.5
# Bytes of GPU memory held by another process that trigger a warning.
REPORTED_BYTES = 2**30


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that holds memory of a GPU."""

    pid: int
    gpu: int
    """GPU index, as in `nvidia-smi`."""
    bytes: int
    """Memory held, 0 if the driver does not report it."""

    def __str__(self) -> str:
        """Return the process as text for messages."""
        return f"process {self.pid} ({self.bytes / 2**30:.1f} GiB of GPU {self.gpu})"


class Nvml:
    """NVIDIA's management library (`nvidia-ml-py`)."""

    def __init__(self, library: ModuleType) -> None:
        """Use `open_nvml` instead. `library` must be initialised."""
        self._library = library

    def holders(self) -> list[GpuProcess]:
        """Return the processes that hold GPU memory; a GPU whose query fails counts as unused."""
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


def open_nvml(device: str) -> Nvml | None:
    """Return NVML for jobs on `cuda`; None for others, or if it is not installed or has no driver."""
    if device != "cuda":
        return None
    try:
        library = importlib.import_module("pynvml")
    # `nvidia-ml-py` is optional: without it nothing waits for GPU memory.
    except ImportError:
        return None
    try:
        library.nvmlInit()
    # The library may be installed on a machine without a driver.
    except library.NVMLError:
        return None
    return Nvml(library)


class GpuMemory:
    """GPU memory of one job: call `note` while its processes run, await `freed` after their end."""

    def __init__(self, sink: EventSink, nvml: Nvml | None) -> None:
        """`nvml`: from `open_nvml`; with None, all methods do nothing."""
        self._sink = sink
        self._nvml = nvml
        self._ours: dict[int, str] = {}
        """Start times of the noted processes by id, to detect reused ids."""

    @classmethod
    def of(cls, device: str, sink: EventSink) -> GpuMemory:
        """Return the `GpuMemory` of a job on `cpu` or `cuda`; emit a note if NVML is unavailable on `cuda`."""
        nvml = open_nvml(device)
        if device == "cuda" and nvml is None:
            message = "nvidia-ml-py is not installed, or no driver answers it: nothing waits until GPU memory is free"
            sink(make_event("gpu_memory", pids=[], message=f"{message} (pip install 'webgym[gpu]')"))
        return cls(sink, nvml)

    def note(self, root: int) -> None:
        """Note the processes of a tree that currently hold GPU memory. `root`: the job's process id."""
        for pid in {holder.pid for holder in self._holders_of(root)}:
            self._ours[pid] = start_time(pid) or ""

    def held_gib(self, root: int) -> float | None:
        """Return the memory of a process tree in GiB, on the GPU on which it holds the most.

        None if unknown: without NVML, and in a container whose process ids differ from the driver's.
        """
        by_gpu = Counter[int]()
        for holder in self._holders_of(root):
            by_gpu[holder.gpu] += holder.bytes
        return max(by_gpu.values()) / 2**30 if any(by_gpu.values()) else None

    async def freed(self, *, seconds: float = RELEASE_SECONDS, poll_seconds: float = POLL_SECONDS) -> None:
        """Wait until no noted process holds GPU memory, then warn about memory held by others.

        Raises `JobError`, naming the processes, if the memory is not free after `seconds`.
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
        others = [holder for holder in nvml.holders() if holder.pid not in mine and holder.bytes >= REPORTED_BYTES]
        if others:
            message = f"GPU memory is held by others, which may leave too little: {_words(others)}"
            self._sink(make_event("gpu_memory", pids=sorted({holder.pid for holder in others}), message=message))

    def _holders_of(self, root: int) -> list[GpuProcess]:
        if self._nvml is None:
            return []
        tree = {root, *descendants(root)}
        return [holder for holder in self._nvml.holders() if holder.pid in tree]

    def _is_ours(self, pid: int) -> bool:
        """Whether a process is a noted one, possibly dead, and not a new process with a reused id."""
        return pid in self._ours and start_time(pid) in (None, self._ours[pid])


def _words(holders: list[GpuProcess]) -> str:
    return ", ".join(str(holder) for holder in sorted(holders, key=lambda holder: (holder.gpu, holder.pid)))
