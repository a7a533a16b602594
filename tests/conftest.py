"""What all tests share."""

import contextlib
import functools
import gc
import importlib
import os
import signal
import ssl
from pathlib import Path

import hypothesis.internal.observability  # noqa: F401  its plugin imports it last, when Python 3.11 may refuse to
import pytest
from hypothesis import HealthCheck, settings

from tests.records.builders import new_run

pytest_plugins = ["tests.stack_fixtures"]

# How long an example takes is the machine's affair: other work runs beside the tests.
settings.register_profile("webgym", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("webgym")


@pytest.fixture
def run(tmp_path):
    """A new run with the usual settings."""
    return new_run(tmp_path / "run")


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """The folder of a model with a tokenizer and without weights."""
    from tests.prepare.rl_builders import build_model  # few tests take it

    return build_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session", autouse=True)
def untracked():
    """Nothing goes to Weights & Biases; the tests of that say otherwise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "disabled")
        yield


@pytest.fixture(scope="session", autouse=True)
def own_state(tmp_path_factory):
    """The records of runs made by the tests are not the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session", autouse=True)
def no_fsync():
    """Make `os.fsync` do nothing: waiting for the disk took a fifth of the tests' time, and a kill loses no page."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    """No setting of the person who runs the tests reaches them, and no key of another test."""
    monkeypatch.setattr("webgym_cli.util.secrets._forms", {})
    monkeypatch.setattr("webgym_cli.util.secrets._variables", set())
    for name in list(os.environ):
        if name.startswith("WEBGYM_") and name != "WEBGYM_HOME":
            monkeypatch.delenv(name)


@pytest.fixture(scope="session", autouse=True)
def one_certificate_store():
    """Every HTTP client reads the certificates anew, 40 ms each time; none of the tests' servers has one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", functools.cache(ssl.create_default_context))
        yield


def pytest_configure(config):
    gc.disable()  # while ten thousand tests are collected there is no garbage, and to look for it takes seconds
    # Commands inherit that SIGINT is ignored, as it is under `nohup make test &` in a script.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if os.environ.get("SECONDS_OF_TESTS") and not hasattr(config, "workerinput"):
        from tests.shares import Stopwatch

        config.pluginmanager.register(Stopwatch())


def pytest_collection(session):
    """Let each of `make test`'s processes import the files from another one on: what one compiles the others read."""
    worker, folder = getattr(session.config, "workerinput", None), Path(__file__).parent
    if worker is None or [Path(name).absolute() for name in session.config.args] != [folder]:
        return
    files = sorted(file.relative_to(folder.parent).with_suffix("") for file in folder.rglob("test_*.py"))
    first = len(files) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    for file in files[first:] + files[:first]:
        with contextlib.suppress(pytest.skip.Exception):  # of the whole file: its collection tells that
            importlib.import_module(".".join(file.parts))


def pytest_collection_finish(session):
    gc.freeze()  # no test's garbage is among what all tests share
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Say which of several processes (`-n 2`) runs which tests."""
    from tests.shares import Shares

    return Shares(config, log)


def pytest_terminal_summary(terminalreporter):
    """A test that needs a second try has a fault, and only its first failure shows which."""
    for report in terminalreporter.getreports("rerun"):
        terminalreporter.section(f"first try of {report.nodeid}")
        terminalreporter.line(report.longreprtext)
