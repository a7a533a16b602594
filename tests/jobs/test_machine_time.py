"""What a lap counts."""

import subprocess
import sys
import time

from webgym_cli.jobs.machine_time import MachineMeter

BUSY = "import time\nwhile time.process_time() < 0.4: pass\nprint(flush=True)\n"


def test_a_lap_counts_running_and_ended_children_once():
    meter = MachineMeter()
    subprocess.run([sys.executable, "-c", BUSY], check=True, stdout=subprocess.PIPE)
    command = [sys.executable, "-c", f"{BUSY}input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        running.stdout.read(1)
        assert 0.7 <= meter.take_lap()["cpu_seconds"] < 5
        running.communicate(b"\n")
    assert meter.take_lap()["cpu_seconds"] < 0.3


def test_a_slow_measurement_is_not_repeated_at_once():
    meter = MachineMeter(1, _took=1.0)
    assert set(meter.take_lap().values()) == {0.0}
    meter = MachineMeter(1, _took=1.0, _clock=time.monotonic() - 51)
    assert meter.take_lap()["gpu_seconds"] >= 51


def test_gpus_count_by_the_clock():
    meter = MachineMeter(4, _clock=time.monotonic() - 2)
    assert 8 <= meter.take_lap()["gpu_seconds"] < 20
    assert meter.take_lap()["gpu_seconds"] < 8
    assert MachineMeter().take_lap()["gpu_seconds"] == 0
