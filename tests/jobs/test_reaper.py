"""The reaper ends what it was told to, once whoever told it is gone, and nothing else."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from webgym_cli.jobs import guard
from webgym_cli.jobs.guard import start_time

SLEEPER = "import time; print('up', flush=True); time.sleep(600)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEPER


@pytest.fixture
def sleeper():
    """Start a process that sleeps, and wait until it does."""
    started = []

    def start(code=SLEEPER):
        process = subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout.readline() == b"up\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait(20)
        process.stdout.close()


@pytest.fixture
def reap():
    """Start a reaper and name processes to it."""
    started = []

    def start(*lines):
        process = subprocess.Popen([sys.executable, "-I", "-S", guard.__file__, "reap"], stdin=subprocess.PIPE)
        started.append(process)
        process.stdin.write("".join(f"{line}\n" for line in lines).encode())
        process.stdin.flush()
        return process

    yield start
    for process in started:
        process.kill()
        process.wait(20)


def named(process):
    return f"{process.pid} {start_time(process.pid)}"


def test_it_waits_for_the_end_of_its_input_and_then_ends_what_was_named(sleeper, reap):
    one, two, other = sleeper(), sleeper(), sleeper()
    process = reap(named(one), named(two))
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.3)
    assert one.poll() is two.poll() is None
    process.stdin.close()
    assert (one.wait(20), two.wait(20)) == (-signal.SIGTERM, -signal.SIGTERM)
    assert process.wait(20) == 0
    assert other.poll() is None


def test_what_does_not_listen_is_killed(sleeper, reap):
    stubborn = sleeper(STUBBORN)
    reap(named(stubborn)).stdin.close()
    assert stubborn.wait(guard.GRACE + 20) == -signal.SIGKILL


def test_a_pid_that_stands_for_another_process_now_is_left_alone(sleeper, reap):
    other = sleeper()
    process = reap(f"{other.pid} {int(start_time(other.pid)) - 1}", "999999999 1")
    process.stdin.close()
    assert process.wait(20) == 0
    assert other.poll() is None


def test_signals_to_it_change_nothing(sleeper, reap):
    one = sleeper()
    process = reap(named(one))
    deadline = time.monotonic() + 20
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    mask = sum(1 << (number - 1) for number in numbers)  # all: under nohup SIGHUP is ignored from the start
    while int(_status(process.pid, "SigIgn"), 16) & mask != mask and time.monotonic() < deadline:
        time.sleep(0.01)
    for number in numbers:
        os.kill(process.pid, number)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.3)
    process.stdin.close()
    assert one.wait(20) == -signal.SIGTERM
    assert process.wait(20) == 0


def test_it_acts_when_its_writer_is_killed(sleeper):
    victim = sleeper()
    code = (
        "import subprocess, sys, time\n"
        f"reaper = subprocess.Popen([sys.executable, '-I', '-S', {guard.__file__!r}, 'reap'], stdin=subprocess.PIPE,"
        " start_new_session=True)\n"
        f"reaper.stdin.write(b'{named(victim)}\\n'); reaper.stdin.flush()\n" + SLEEPER
    )
    writer = sleeper(code)
    writer.kill()
    assert victim.wait(20) == -signal.SIGTERM


def test_the_start_time_tells_processes_apart(sleeper):
    one = sleeper()
    began = start_time(one.pid)
    assert began is not None and began.isdecimal() and start_time(one.pid) == began
    assert start_time(os.getpid()) != began
    one.kill()
    while psutil.Process(one.pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    assert start_time(one.pid) is None, "a zombie needs no end"
    one.wait(20)
    assert start_time(one.pid) is None


def _status(pid, name):
    with open(f"/proc/{pid}/status") as file:
        return next(line.split()[1] for line in file if line.startswith(f"{name}:"))
