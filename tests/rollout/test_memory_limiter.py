"""How many episodes run at once: by cores and by free memory."""

import asyncio
import os
from types import SimpleNamespace

import psutil
import pytest

from webgym_cli.config.rollout import RolloutSettings
from webgym_cli.rollout import memory_limiter as admission
from webgym_cli.rollout.memory_limiter import MemoryLimiter, default_concurrency, free_mb


@pytest.fixture
def memory(monkeypatch):
    """The machine's free memory in MiB, set by hand."""
    free = {"mb": 100_000}
    monkeypatch.setattr(admission, "free_mb", lambda: free["mb"])
    monkeypatch.setattr(admission, "_LOOK_AGAIN", 0.01)
    return free


def test_what_is_set_is_kept(memory):
    memory["mb"] = 1
    assert default_concurrency(RolloutSettings(concurrency=100)) == 100


@pytest.mark.parametrize(("mb", "expected"), [(100_000, 8), (150, 1), (0, 1), (450, 3)])
def test_cores_and_memory_bound_it(memory, monkeypatch, mb, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    memory["mb"] = mb
    assert default_concurrency(RolloutSettings()) == expected


def test_free_memory_is_a_number_of_mebibytes():
    assert 0 < free_mb() < 2**30


GROUP_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
GROUP_2 = ("memory.max", "memory.current", "")


@pytest.mark.parametrize(
    ("own", "folder", "files", "limit", "expected"),
    [
        ("0::/job/step", "job/step", GROUP_2, "1000", 1000 - 700 + 150),
        ("0::/job/step", "job", GROUP_2, "1000", 450),
        ("0::/of/the/host", "", GROUP_2, "1000", 450),
        ("0::/", "", GROUP_2, "1000", 450),
        ("0::/../..", "", GROUP_2, "1000", 450),
        ("4:memory:/slurm/job", "memory/slurm", GROUP_1, "1000", 450),
        ("4:memory:/docker/1", "memory", GROUP_1, "1000", 450),
        ("0::/job", "job", GROUP_2, "500", -50),
        ("0::/job", "job", GROUP_2, "max", 100_000),
        ("4:cpu:/job", "job", GROUP_2, "1000", 100_000),
        ("0::/job", "other", GROUP_2, "1000", 100_000),
    ],
)
def test_the_limit_of_a_container_or_job_counts(tmp_path, monkeypatch, own, folder, files, limit, expected):
    group = tmp_path / "cgroup" / folder
    group.mkdir(parents=True)
    (tmp_path / "own").write_text(f"7:cpuset:/\n{own}\n")
    maximum, usage, prefix = files
    (group / maximum).write_text(f"{int(limit) << 20 if limit.isdigit() else limit}\n")
    (group / usage).write_text(f"{700 << 20}\n")
    (group / "memory.stat").write_text(f"cache 1\n{prefix}active_file {50 << 20}\n{prefix}inactive_file {100 << 20}\n")
    monkeypatch.setattr(admission, "_OWN_GROUPS", tmp_path / "own")
    monkeypatch.setattr(admission, "_GROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=100_000 << 20))
    assert free_mb() == expected


async def test_one_may_always_run_and_the_next_waits_for_memory(memory):
    gate = MemoryLimiter(reserve_mb=1000)
    memory["mb"] = 10
    await gate.enter()
    waiting = [asyncio.create_task(gate.enter()) for _ in range(3)]
    cancelled = asyncio.create_task(gate.enter())  # it takes no room
    await asyncio.sleep(0.05)
    assert not any(task.done() for task in waiting) and gate.running == 1
    cancelled.cancel()
    gate.leave()
    done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED, timeout=10)
    await asyncio.sleep(0.05)
    assert (len(done), gate.running) == (1, 1)
    memory["mb"] = 2000
    await asyncio.wait_for(asyncio.gather(*waiting), 10)
    assert gate.running == 3


async def test_what_has_just_begun_is_still_to_take_its_memory(memory, monkeypatch):
    gate = MemoryLimiter(reserve_mb=1000)
    memory["mb"] = 1300  # room for two beside the first
    waiting = [asyncio.create_task(gate.enter()) for _ in range(9)]
    await asyncio.sleep(0.05)
    assert gate.running == 3
    monkeypatch.setattr(admission, "_START_SECONDS", 0.0)
    await asyncio.wait_for(asyncio.gather(*waiting), 10)
    assert gate.running == 9


@pytest.mark.parametrize(("mb", "most"), [(0, 1), (100_000, 4)])
async def test_a_rollout_runs_as_many_at_once_as_memory_and_settings_allow(world, memory, mb, most):
    memory["mb"] = mb
    world.load("rollout.concurrency=4", "browser.memory_reserve_mb=1000")
    summary = await world.roll(12)
    assert (summary["episodes"], world.pool.most) == (12, most)
    assert summary["stages"]["admission"]["count"] == 12
