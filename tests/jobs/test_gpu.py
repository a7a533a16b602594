"""The management library is scripted here; its processes are real ones of this test."""

import os
import subprocess
import sys
import types

import pytest

from webgym_cli.errors import JobError
from webgym_cli.jobs.gpu import GpuMemory, GpuProcess, Nvml, open_nvml
from webgym_cli.jobs.guard import start_time

GIB = 2**30
GONE = 2**22 + 1
"""No process has this number: it is above the kernel's limit."""


class Scripted:
    """Answers with one list of holders after the other; the last one stays."""

    def __init__(self, *answers):
        self._answers = list(answers)
        self.queries = 0

    def holders(self):
        self.queries += 1
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


def noted(ours, nvml, sink=lambda event: None):
    """The memory of processes that were noted, by their start times."""
    memory = GpuMemory(sink, nvml)
    memory._ours.update(ours)
    return memory


@pytest.fixture
def child():
    command = [sys.executable, "-S", "-c", "print(flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        yield process
        process.stdin.close()


async def test_waits_until_the_memory_of_an_ended_process_is_given_back():
    ours = GpuProcess(GONE, 0, 70 * GIB)
    nvml, events = Scripted([ours], [ours], []), []
    await noted({GONE: "123"}, nvml, events.append).freed(poll_seconds=0)
    assert nvml.queries == 4
    assert events == []


async def test_names_the_processes_that_keep_it():
    nvml = Scripted([GpuProcess(GONE + 1, 1, GIB), GpuProcess(GONE, 0, 70 * GIB)])
    with pytest.raises(JobError) as caught:
        await noted({GONE: "1", GONE + 1: "2"}, nvml).freed(seconds=0, poll_seconds=0)
    assert f"process {GONE} (70.0 GiB of GPU 0), process {GONE + 1} (1.0 GiB of GPU 1)" in str(caught.value)
    assert f"kill -9 {GONE} {GONE + 1}" in caught.value.hint
    assert caught.value.exit_code == 4


async def test_memory_of_others_is_named_and_not_waited_for():
    nvml, events = Scripted([GpuProcess(GONE, 2, 5 * GIB), GpuProcess(GONE + 1, 2, GIB - 1)]), []
    await noted({}, nvml, events.append).freed()
    assert [event["pids"] for event in events] == [[GONE]]
    assert f"process {GONE} (5.0 GiB of GPU 2)" in events[0]["message"]


async def test_our_own_processes_are_no_others(child):
    events = []
    nvml = Scripted([GpuProcess(os.getpid(), 0, GIB), GpuProcess(child.pid, 0, GIB)])
    await noted({}, nvml, events.append).freed()
    assert events == []


async def test_another_process_that_got_the_number_is_not_waited_for(child):
    nvml = Scripted([GpuProcess(child.pid, 0, GIB)])
    await noted({child.pid: "an earlier start"}, nvml).freed()
    with pytest.raises(JobError, match=str(child.pid)):
        await noted({child.pid: start_time(child.pid)}, nvml).freed(seconds=0)


async def test_a_job_is_noted_while_it_runs_and_waited_for_after(child):
    held = [GpuProcess(child.pid, 0, GIB), GpuProcess(GONE, 1, 2 * GIB)]
    nvml, events = Scripted(held, held, []), []
    memory = GpuMemory(events.append, nvml)
    memory.note(os.getpid())  # the child is of this tree, the other one is not
    child.stdin.close()
    child.wait()
    await memory.freed()
    assert events == []
    assert nvml.queries == 4


async def test_without_the_library_nothing_is_waited_for():
    memory = GpuMemory(lambda event: None, None)
    memory.note(os.getpid())
    await memory.freed()


class NVMLError(Exception):
    pass


def library(**functions):
    """A module as `pynvml` is, as far as it is used."""
    return types.SimpleNamespace(NVMLError=NVMLError, **functions)


def refuse(*_):
    raise NVMLError


def process(pid, used):
    return types.SimpleNamespace(pid=pid, usedGpuMemory=used)


def test_the_library_is_asked_about_every_gpu_and_its_instances():
    running = {"a": [process(1, 5)], "a/0": [process(1, 5), process(2, None)], "b": None}

    def processes(device):
        return running[device] if running[device] is not None else refuse()

    def instances(device):
        return 7 if device == "a" else refuse()

    def instance(device, number):
        return f"{device}/{number}" if number == 0 else refuse()

    gpu_processes = Nvml(
        library(
            nvmlDeviceGetCount=lambda: 2,
            nvmlDeviceGetHandleByIndex=lambda number: "ab"[number],
            nvmlDeviceGetComputeRunningProcesses=processes,
            nvmlDeviceGetMaxMigDeviceCount=instances,
            nvmlDeviceGetMigDeviceHandleByIndex=instance,
        )
    ).holders()
    assert gpu_processes == [GpuProcess(1, 0, 5), GpuProcess(2, 0, 0)]


def test_no_library_and_no_driver(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert open_nvml("cuda") is None
    events = []
    GpuMemory.of("cpu", events.append)
    assert events == []
    GpuMemory.of("cuda", events.append)
    assert "webgym[gpu]" in events[0]["message"]
    monkeypatch.setitem(sys.modules, "pynvml", library(nvmlInit=refuse))
    assert open_nvml("cuda") is None
    monkeypatch.setitem(sys.modules, "pynvml", library(nvmlInit=lambda: None))
    assert isinstance(open_nvml("cuda"), Nvml)
    assert open_nvml("cpu") is None


def test_the_real_library_names_what_we_call():
    pynvml = pytest.importorskip("pynvml")
    used = ["nvmlInit", "NVMLError", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex"]
    used += ["nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetMaxMigDeviceCount"]
    assert all(hasattr(pynvml, name) for name in [*used, "nvmlDeviceGetMigDeviceHandleByIndex"])
