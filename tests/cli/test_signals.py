"""Ctrl-C and SIGTERM at a command that is at work: the published code, no process, and a run that goes on."""

import fcntl
import os
import select
import signal
import sys
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from pathlib import Path

import psutil
import pytest
from pydantic_core import SchemaError, SchemaValidator

import webgym_cli.__main__
import webgym_cli.cli.main as cli_main
from tests.cli.runs import filled
from tests.executable import Command
from tests.forked import webgym
from tests.records.builders import shot
from webgym_cli.store.screenshots import ScreenshotStore
from webgym_cli.store.status import read_running_command
from webgym_cli.util import stopping

SIGNALS = pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=str)
LIMIT = 60
LONGER_THAN_THE_START = 2.0
"""CPU seconds of a command that is within its query."""


@pytest.fixture
def run(tmp_path):
    return filled(tmp_path)


@contextmanager
def stuck_file(path):
    """Hold a lease on a file: who opens it waits. Gives a function that tells whether somebody does."""
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    descriptor = os.open(path, os.O_RDWR)
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    try:
        yield lambda: fcntl.fcntl(descriptor, fcntl.F_GETLEASE) != fcntl.F_WRLCK
    finally:
        os.close(descriptor)
        signal.signal(signal.SIGIO, before)


def stuck_picture(run):
    return stuck_file(ScreenshotStore(run.screenshots).png(shot(1).sha256))


def stopped(is_read, number, code, *arguments):
    """Begin a command, signal it when it reads the file, and return what it said once nothing of it is left."""
    command = Command(Path(arguments[1]).parent, *arguments)
    command.until(is_read)
    assert command.send(number) == code
    assert "Traceback" not in command.err.read_text()
    return command.err.read_text()


class CtrlC(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "webgym_cli.cli.main":
            raise KeyboardInterrupt


def test_ctrl_c_during_the_first_imports_is_no_traceback(monkeypatch):
    monkeypatch.setattr(sys, "meta_path", [CtrlC(), *sys.meta_path])
    monkeypatch.delitem(sys.modules, "webgym_cli.cli.main")
    with pytest.raises(SystemExit) as error:
        webgym_cli.__main__.main()
    assert error.value.code == 130


@SIGNALS
def test_an_error_in_place_of_what_the_handler_raised_is_the_signal(number, code):
    """As pydantic-core raises one for a schema that it builds, and DuckDB for a query."""
    handlers = {one: signal.getsignal(one) for one in stopping.SIGNALS}

    class Interrupted:
        def __repr__(self):
            cli_main._stop(number, None)

    try:
        with pytest.raises(SchemaError) as error:
            SchemaValidator({"type": "literal", "expected": [Interrupted()]})
        assert cli_main._click_error(error.value) == code
    finally:
        for one, handler in handlers.items():
            signal.signal(one, handler)


@SIGNALS
def test_a_query_is_broken_into(run, number, code):
    """DuckDB's other threads went on with it, and the command waited for them."""
    sql = "SELECT count(*) FROM range(10000000000000) numbers(a) WHERE sin(a) > 2"
    command = Command(run.root.parent, "inspect-buffer", run.root, "--sql", sql)
    command.until(lambda: sum(psutil.Process(command.process.pid).cpu_times()[:2]) > LONGER_THAN_THE_START)
    assert command.send(number) == code, command.err.read_text()


@SIGNALS
def test_prepare_is_taken_up_again(run, number, code):
    with stuck_picture(run) as is_read:
        output = stopped(is_read, number, code, "prepare", run.root)
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
    with stuck_picture(run) as is_read:
        stopped(is_read, number, code, *arguments)
    assert not [path for path in run.root.parent.iterdir() if "sft" in path.name]
    webgym(*arguments, cwd=run.root.parent)
    assert out.exists()


def test_a_report_is_whole_or_not_there(run):
    run.metrics.write_text("")
    with stuck_file(run.metrics) as is_read:
        stopped(is_read, signal.SIGINT, 130, "report", run.root)
    assert not list(run.root.glob("*.html*"))
    webgym("report", run.root, cwd=run.root.parent)


def test_a_page_of_an_episode_is_whole_or_not_there(run):
    with stuck_picture(run) as is_read:
        stopped(is_read, signal.SIGTERM, 143, "show", run.root, "train-0000-00000", "--html", "x.html")
    assert not (run.root.parent / "x.html").exists()


@SIGNALS
def test_serve_ends_its_server(run, number, code):
    fifo, python = run.root.parent / "up", run.root.parent / "python"
    os.mkfifo(fifo)
    python.write_text(f"#!/bin/sh\necho $$ > {fifo}\nexec sleep 600\n")
    python.chmod(0o755)
    count = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    command = Command(run.root.parent, "serve", run.root, "-s", f"venvs.serve={python}", "-s", "serve.port=0")
    assert select.select([count], [], [], LIMIT)[0], "no server was started"
    server = int(os.read(count, 100))
    os.close(count)
    assert command.send(number) == code
    output = command.err.read_text()
    assert ("vLLM is stopped" in output, "stored" in output, "Traceback" in output) == (True, False, False), output
    assert not psutil.pid_exists(server)
    assert read_running_command(run) is None
