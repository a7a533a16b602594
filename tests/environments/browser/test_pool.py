"""The browser pool: isolated sessions, deadlines, named errors, and no process left behind."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from webgym_cli.config.browser import BrowserSettings
from webgym_cli.environments.browser.options import SessionOptions
from webgym_cli.environments.browser.pool import BrowserPool
from webgym_cli.environments.browser.session import BrowserSession
from webgym_cli.errors import BoundaryError, SettingsError, VenvError
from webgym_cli.jobs.guard import read_stat
from webgym_cli.records.failure import FailureKind

pytestmark = pytest.mark.browser

SMALL = SessionOptions(width=200, height=150, action_timeout=1.0, navigation_timeout=5.0)


def alive(pids: list[int]) -> list[int]:
    # not psutil: between its two questions, whether there is a process and in which state, the process may end
    return [pid for pid in pids if read_stat(pid)]


async def failure_of(doing) -> FailureKind:
    with pytest.raises(BoundaryError) as failure:
        await doing
    return failure.value.kind


async def test_errors_are_named(browsers: BrowserPool):
    session = await browsers.session(SMALL)
    assert session.is_pristine
    assert await failure_of(session.goto("http://127.0.0.1:9/")) is FailureKind.NAVIGATION_FAILED
    assert not session.is_pristine
    assert await failure_of(session.evaluate("() => new Promise(() => {})")) is FailureKind.PAGE_TIMEOUT
    assert await failure_of(session.evaluate("() => { throw new Error('no'); }")) is FailureKind.PAGE_ERROR
    await session.close()
    assert await failure_of(session.screenshot()) is FailureKind.BROWSER_CRASHED


async def test_a_crashed_page_is_named(browsers: BrowserPool):
    session = await browsers.session(SMALL)
    inspector = await session.page.context.new_cdp_session(session.page)
    crash = asyncio.create_task(inspector.send("Page.crash"))
    assert await failure_of(session.evaluate("() => new Promise(() => {})")) is FailureKind.BROWSER_CRASHED
    assert await failure_of(session.screenshot()) is FailureKind.BROWSER_CRASHED
    crash.cancel()
    await session.close()
    session = await browsers.session(SMALL)
    assert await session.evaluate("() => 1 + 1") == 2
    await session.close()


async def test_a_driver_that_dies_is_replaced(chromium: str):
    async with BrowserPool(BrowserSettings()) as pool:
        session: BrowserSession = await pool.session(SMALL)
        first = pool.processes()
        driver = next(pid for pid in first if psutil.Process(pid).ppid() == os.getpid())
        os.kill(driver, signal.SIGKILL)
        assert await failure_of(session.goto("about:blank")) is FailureKind.BROWSER_CRASHED
        session = await pool.session(SMALL)
        assert await session.evaluate("() => 3") == 3
        everything = pool.processes()
    assert alive([*first, *everything]) == []


PARENT = """
import asyncio, sys
from webgym_cli.config.browser import BrowserSettings
from webgym_cli.environments.browser.pool import BrowserPool
from webgym_cli.environments.browser.options import SessionOptions

async def main():
    async with BrowserPool(BrowserSettings()) as pool:
        await pool.session(SessionOptions(width=100, height=100))
        print(*pool.processes(), flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.parametrize("how", ["kill", "kill with the driver", "interrupt"])
def test_nothing_outlives_a_killed_parent(chromium: str, how: str):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert parent.stdout is not None
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) > 3
    # An interrupt from a terminal reaches the whole process group, a kill only the parent.
    if how == "interrupt":
        os.killpg(parent.pid, signal.SIGINT)
    elif how == "kill":
        os.kill(parent.pid, signal.SIGKILL)
    else:
        drivers = [pid for pid in pids if psutil.Process(pid).ppid() == parent.pid]
        for pid in (parent.pid, *drivers):
            os.kill(pid, signal.SIGKILL)
    parent.wait(30)
    deadline = time.monotonic() + 120
    while alive(pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert alive(pids) == []
    parent.stdout.close()


async def test_a_browser_that_can_not_start(tmp_path: Path):
    broken = tmp_path / "chromium"
    broken.write_text("#!/bin/sh\necho 'missing library' >&2\nexit 3\n")
    broken.chmod(0o755)
    with pytest.raises(VenvError, match=r"can't be started: .*missing library.* exitCode=3,"):
        async with BrowserPool(BrowserSettings(executable=str(broken))):
            raise AssertionError("it started")


@pytest.mark.parametrize("argument", ["--proxy-server=http://proxy.example:3128", "--proxy-bypass-list=10.0.0.1"])
async def test_arguments_that_lead_past_the_gate_are_refused(argument):
    with pytest.raises(SettingsError) as raised:
        async with BrowserPool(BrowserSettings(args=("--mute-audio", argument)), "http://127.0.0.1:1"):
            raise AssertionError("it started")
    assert argument.partition("=")[0] in str(raised.value) and "https_proxy" in raised.value.hint


async def test_a_browser_leaves_no_folder_behind(chromium, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    async with BrowserPool(BrowserSettings()) as pool:
        session = await pool.session(SMALL)
        (folder,) = tmp_path.glob("webgym-tmp-browser-*")
        assert any(name.startswith("playwright") for name in os.listdir(folder))
        await session.close()
    assert list(tmp_path.glob("*webgym*")) == []
