"""Ctrl-C and SIGTERM at a command that is at work: the published code, no process, and a run that goes on."""

import fcntl
import os
import select
import signal
import subprocess
import time
from contextlib import contextmanager

import psutil
import pytest

from tests.cli.runs import WEBGYM, filled
from tests.forked import webgym
from tests.records.builders import shot
from webgym_cli.store.screenshots import ScreenshotStore
from webgym_cli.store.state import read_running_command

SIGNALS = pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=str)
LIMIT = 60


@pytest.fixture
def run(tmp_path):
    return filled(tmp_path)


@contextmanager
def stuck_file(path):
    """Hold a lease on a file: who opens it waits. Gives a function that waits until a process does."""
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    descriptor = os.open(path, os.O_RDWR)
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)

    def read_by(child):
        while fcntl.fcntl(descriptor, fcntl.F_GETLEASE) == fcntl.F_WRLCK:
            assert child.poll() is None, child.stderr.read()
            time.sleep(0.02)

    try:
        yield read_by
    finally:
        os.close(descriptor)
        signal.signal(signal.SIGIO, before)


def stuck_picture(run):
    return stuck_file(ScreenshotStore(run.screenshots).png(shot(1).sha256))


def begun(run, *arguments):
    return subprocess.Popen(
        [*WEBGYM, *map(str, arguments)],
        cwd=run.root.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def ended(child, number):
    """Send a signal, and return the exit code and what was said once the process and all of its own are gone."""
    family = psutil.Process(child.pid).children(recursive=True)
    child.send_signal(number)
    result = child.communicate(timeout=LIMIT)[1]
    assert psutil.wait_procs(family, timeout=LIMIT)[1] == []
    return child.returncode, result


@SIGNALS
def test_prepare_is_taken_up_again(run, number, code):
    with stuck_picture(run) as read_by:
        child = begun(run, "prepare", run.root)
        read_by(child)
        left, output = ended(child, number)
    assert (left, "Traceback" in output) == (code, False), output
    assert "what was finished is stored" in output
    assert read_running_command(run).command == "prepare"
    webgym("resume", run.root, cwd=run.root.parent)
    assert read_running_command(run) is None
    assert (run.dataset / "prepared.json").is_file()


@pytest.mark.parametrize(
    ("number", "code", "form"), [(signal.SIGINT, 130, "hf"), (signal.SIGTERM, 143, "jsonl")], ids=str
)
def test_an_export_leaves_nothing_half_written(run, number, code, form):
    out = run.root.parent / ("sft" if form == "hf" else "sft.jsonl")
    arguments = ("export-sharegpt", run.root, "--format", form, "-o", out)
    with stuck_picture(run) as read_by:
        child = begun(run, *arguments)
        read_by(child)
        left, output = ended(child, number)
    assert (left, "Traceback" in output) == (code, False), output
    assert not [path for path in run.root.parent.iterdir() if "sft" in path.name]
    webgym(*arguments, cwd=run.root.parent)
    assert out.exists()


def test_a_report_is_whole_or_not_there(run):
    run.metrics.write_text("")
    with stuck_file(run.metrics) as read_by:
        child = begun(run, "report", run.root)
        read_by(child)
        left, output = ended(child, signal.SIGINT)
    assert (left, "Traceback" in output) == (130, False), output
    assert not list(run.root.glob("*.html*"))
    webgym("report", run.root, cwd=run.root.parent)


def test_a_page_of_an_episode_is_whole_or_not_there(run):
    with stuck_picture(run) as read_by:
        child = begun(run, "show", run.root, "train-0000-00000", "--html", "x.html")
        read_by(child)
        left, output = ended(child, signal.SIGTERM)
    assert (left, "Traceback" in output, (run.root.parent / "x.html").exists()) == (143, False, False), output


@SIGNALS
def test_serve_ends_its_server(run, number, code):
    fifo, python = run.root.parent / "up", run.root.parent / "python"
    os.mkfifo(fifo)
    python.write_text(f"#!/bin/sh\necho $$ > {fifo}\nexec sleep 600\n")
    python.chmod(0o755)
    count = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    child = begun(run, "serve", run.root, "-s", f"venvs.serve={python}", "-s", "serve.port=0")
    assert select.select([count], [], [], LIMIT)[0], "no server was started"
    server = int(os.read(count, 100))
    os.close(count)
    left, output = ended(child, number)
    assert (left, "Traceback" in output) == (code, False), output
    assert "vLLM is stopped" in output
    assert "stored" not in output
    assert not psutil.pid_exists(server)
    assert read_running_command(run) is None
