import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise

import pytest

from tests.executable import alive, file_system, fill, wait_until_gone
from webgym_cli.errors import JobError
from webgym_cli.jobs import process
from webgym_cli.jobs.guard import descendants, start_time
from webgym_cli.jobs.process import Job, last_lines
from webgym_cli.train.trainer_log import trainer_error

FAMILY = """
import os, signal, subprocess, sys, time
code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
kinds = [dict(), dict(start_new_session=True), dict(process_group=0)]
children = [subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE, **kind) for kind in kinds]
for child in children:
    child.stdout.readline()
if os.fork() == 0:  # a daemon: its parent is gone before anybody looks
    os.setsid()
    if os.fork() == 0:
        print("daemon", os.getpid(), flush=True)
        time.sleep(600)
    os._exit(0)
os.wait()
time.sleep(0.2)
print("pids", os.getpid(), *[child.pid for child in children], flush=True)
"""
"""A parent, three children that ignore TERM in as many sessions and groups, and a daemon."""
PARENT = """
import os, sys, time
from pathlib import Path
from webgym_cli.jobs.process import Job
Job.spawn([sys.executable, "-S", "-c", sys.argv[2]], env=dict(os.environ), log=Path(sys.argv[1]), grace=0.2)
time.sleep(600)
"""


@pytest.fixture
def log(tmp_path):
    return tmp_path / "logs" / "job.log"


@pytest.fixture
def spawn(log):
    jobs = []

    def start(code, grace=0.2, **options):
        job = Job.spawn([sys.executable, "-S", "-c", code], env=dict(os.environ), log=log, grace=grace, **options)
        jobs.append(job)
        return job

    yield start
    for job in jobs:
        tree = [job.pid, *descendants(job.pid)]
        for pid in tree if job.poll() is None else []:
            os.kill(pid, signal.SIGKILL)


def seen(log, word, timeout=20):
    """Return what stands behind a word in the log, as numbers, as soon as it does."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        for line in last_lines(log, 50):
            if line.startswith(word):
                return [int(part) for part in line.split()[1:]]
        time.sleep(0.02)
    raise AssertionError(f"no {word!r} in {last_lines(log)}")


def family(log):
    return seen(log, "pids") + seen(log, "daemon")


async def test_a_command_tells_its_exit_status_and_its_output(spawn, log):
    job = spawn("import sys; print('out'); sys.stderr.write('err'); sys.exit(7)")
    assert await job.wait(0.01) == 7
    assert sorted(last_lines(log)) == ["err", "out"]
    assert await job.stop() == 7


async def test_a_command_that_a_signal_ends_and_one_that_is_not_there_have_the_status_of_a_shell(spawn, log):
    assert await spawn("import os; os.kill(os.getpid(), 6)").wait(0.01) == 128 + 6
    assert await Job.spawn(["/no/such/command"], env={}, log=log).wait(0.01) == 127
    assert "can't start /no/such/command" in "".join(last_lines(log))


def test_a_guard_that_can_not_start_is_an_error_of_ours(log, tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(JobError, match="can't start true"):
        Job.spawn(["true"], env={}, log=log, cwd=tmp_path / "none")
    assert len(os.listdir("/proc/self/fd")) == before


async def test_a_command_gets_exactly_its_environment_and_folder(log, tmp_path):
    code = "import os; print(os.getcwd()); print(sorted(set(os.environ) - {'LC_CTYPE'}))"
    job = Job.spawn([sys.executable, "-S", "-c", code], env={"A": "1"}, log=log, cwd=tmp_path)
    assert await job.wait(0.01) == 0
    assert last_lines(log) == [str(tmp_path), "['A']"]


async def test_a_command_is_asked_before_it_is_killed(spawn, log):
    job = spawn(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('asked', flush=True), sys.exit(3)))\n"
        "print('up', flush=True)\ntime.sleep(600)",
        grace=20,
    )
    seen(log, "up")
    assert await job.stop() == 3
    assert last_lines(log, 1) == ["asked"]


async def test_a_command_that_does_not_listen_is_killed(spawn, log):
    job = spawn("import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)")
    seen(log, "up")
    assert await job.stop() == 128 + signal.SIGKILL


async def test_a_run_to_the_end_that_is_cancelled_ends_the_whole_tree_first(log):
    argv = [sys.executable, "-S", "-c", f"{FAMILY}time.sleep(600)"]
    running = asyncio.create_task(Job.run(argv, env=dict(os.environ), log=log, grace=0.2))
    pids = await asyncio.to_thread(family, log)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    assert alive(pids) == []
    assert await Job.run([sys.executable, "-c", "raise SystemExit(7)"], env=dict(os.environ), log=log) == 7


async def test_a_normal_end_takes_what_is_left_with_it(spawn, log):
    assert await spawn(FAMILY).wait(0.01) == 0
    tree = family(log)
    assert len(tree) == 5
    assert alive(tree) == []


def test_nothing_outlives_a_killed_parent(log):
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(log), FAMILY + "time.sleep(600)"])
    try:
        tree = family(log)
        guards = [pid for pid in descendants(parent.pid) if pid not in tree]
        assert len(alive(tree)) == 5
        assert len(guards) >= 1
    finally:
        parent.kill()
        parent.wait()
    assert wait_until_gone([*tree, *guards])


async def test_what_a_killed_guard_leaves_ends_with_the_job_and_nothing_else(spawn, log):
    job, other = spawn(FAMILY + "time.sleep(600)"), await asyncio.create_subprocess_exec("sleep", "600")
    try:
        tree = family(log)
        deadline = time.monotonic() + 20
        while not set(tree) <= job._family.keys() and time.monotonic() < deadline:
            job.poll()
            await asyncio.sleep(0.05)
        job._family[other.pid] = str(int(start_time(other.pid)) - 1)  # the id was another process's before
        os.kill(job.pid, signal.SIGKILL)
        assert await job.wait(0.01) == 128 + signal.SIGKILL
        assert wait_until_gone(tree[:1])  # the kernel ends the command
        assert len(alive(tree)) == 4  # and it alone
        await job.stop()
        assert alive(tree) == []
        assert other.returncode is None
    finally:
        other.kill()
        await other.wait()


async def test_two_jobs_do_not_hold_each_other(tmp_path):
    """The second child must not inherit the first one's lifeline."""
    first, second = (
        Job.spawn(["sleep", "600"], env=dict(os.environ), log=tmp_path / str(number), grace=1) for number in range(2)
    )
    try:
        assert await asyncio.wait_for(first.stop(), 20) == 128 + signal.SIGTERM
        assert second.poll() is None
    finally:
        await second.stop()


async def test_a_stopped_job_holds_no_file(spawn):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        await spawn("pass").wait(0.01)
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_last_lines_of_a_log(tmp_path):
    log = tmp_path / "x.log"
    assert last_lines(log) == []
    log.write_bytes(b"a\n\n  \n10%\r20%\r30%\nb \xff\nend")
    assert last_lines(log, 3) == ["30%", "b \ufffd", "end"]
    log.write_bytes(b"x" * 100_000 + b"\nend\n")
    assert last_lines(log, 2, limit=10) == ["xxxxx", "end"]


async def test_of_a_log_without_end_the_first_and_the_last_lines_are_kept(spawn, log, monkeypatch):
    monkeypatch.setattr(process, "MAX_LOG", 256 * 1000)
    program = "import os; n = 0; os.write(1, b'version 1\\n')\nwhile True: n += 1; os.write(1, b'line %d\\n' % n)"
    job = spawn(program)
    sizes = [0]
    while sum(after < before for before, after in pairwise(sizes)) < 2:
        await asyncio.sleep(0.01)
        assert job.poll() is None
        sizes.append(log.stat().st_size)
    await job.stop()
    first, _, last = log.read_text().partition("\n[what stood here is left out: the log was too long]\n")
    numbers = [[int(line.split()[1]) for line in part.splitlines()[1:-1]] for part in (first, last)]
    assert first.startswith("version 1\n") and numbers[0][:70] == list(range(1, 71))
    assert numbers[1][:60] == list(range(numbers[1][0], numbers[1][0] + 60))
    assert numbers[1][0] > 10_000 and "[" not in last


def test_a_log_on_a_full_disk_tells_why_nothing_more_is_in_it(tmp_path):
    with file_system(tmp_path / "disk", "64k") as disk:
        (disk / "train.log").touch()
        fill(disk)
        error = trainer_error(1, disk / "train.log")
    assert "No space left on device" in str(error) and error.hint.startswith("free disk space")


def test_descendants_are_found_below_a_name_with_brackets(tmp_path):
    """/proc/<pid>/stat holds the name unquoted."""
    odd = tmp_path / "a) S 1 (b"
    odd.symlink_to("/bin/sleep")
    child = subprocess.Popen([str(odd), "600"])
    try:
        assert child.pid in descendants(os.getpid())
    finally:
        child.kill()
        child.wait()
