"""What a lap counts."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from webgym_cli.jobs import machine_time
from webgym_cli.jobs.guard import children_by_parent, read_stat
from webgym_cli.jobs.machine_time import MachineMeter, measure_cpu


def stat(*ticks):
    return ["S", *["0"] * 10, *map(str, ticks), "0"]


@pytest.mark.parametrize(
    ("readings", "laps"),
    [
        ((100, 160, 160, 230.5), (60, 0, 70.5)),
        # A subtree left without being waited for: the second reading of a lap is low, too.
        ((0, 100, 60, 60, 90, 130), (100, 0, 30, 40)),
        # A child ended between the reading of its parent and its own.
        ((0, 100, 60, 101, 103), (100, 1, 2)),
    ],
)
def test_a_lap_counts_what_passed_since_the_one_before(monkeypatch, readings, laps):
    left = iter(readings)
    monkeypatch.setattr(machine_time, "measure_cpu", lambda: float(next(left)))
    meter = MachineMeter(_cpu=next(left))
    monkeypatch.setattr(machine_time, "_PAUSE", 0)
    assert [meter.take_lap()["cpu_seconds"] for _ in laps] == list(laps)


def test_running_ended_and_waiting_descendants_count(monkeypatch):
    second, me = os.sysconf("SC_CLK_TCK"), os.getpid()
    stats = {me: stat(second, second, 4 * second, 0), 2: stat(0, 8 * second, 0, 16 * second), 3: stat(32 * second)}
    monkeypatch.setattr(machine_time, "children_by_parent", lambda *, zombies: {me: [2], 2: [3, 4]})
    monkeypatch.setattr(machine_time, "read_stat", lambda pid, *, zombies: stats.get(pid, []))  # 4 is gone
    assert measure_cpu() == 62


def test_a_child_that_nobody_waited_for_yet_can_be_read():
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        assert read_stat(ended.pid) == []
        assert read_stat(ended.pid, zombies=True)[0] == "Z"
        assert ended.pid not in children_by_parent().get(os.getpid(), [])
        assert ended.pid in children_by_parent(zombies=True)[os.getpid()]


def set_clock(monkeypatch, *readings):
    monkeypatch.setattr(machine_time, "time", SimpleNamespace(monotonic=iter(readings).__next__))


def test_a_slow_measurement_is_not_repeated_at_once(monkeypatch):
    set_clock(monkeypatch, 50.0, 60.0, 60.5, 84.0)
    meter = MachineMeter(1, _took=1.0, _clock=9.0)
    assert set(meter.take_lap().values()) == {0.0}
    assert meter.take_lap()["gpu_seconds"] == 51
    assert set(meter.take_lap().values()) == {0.0}  # the last one took half a second, 24 seconds ago


def test_gpus_count_by_the_clock(monkeypatch):
    set_clock(monkeypatch, 12.0, 12.0, 12.5, 12.5, 99.0, 99.0)
    meter = MachineMeter(4, _clock=10.0)
    assert [meter.take_lap()["gpu_seconds"] for _ in range(2)] == [8, 2]
    assert MachineMeter(_clock=10.0).take_lap()["gpu_seconds"] == 0
