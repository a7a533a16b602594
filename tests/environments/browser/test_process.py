"""Drivers that start at the same time: each has its own folder, and our environment is as it was."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from webgym_cli.environments.browser.process import start_driver
from webgym_cli.util.secrets import inherited_environ

pytestmark = pytest.mark.browser


async def test_what_starts_beside_a_driver_gets_none_of_its_variables(tmp_path):
    before, lent = dict(os.environ), set()
    starting = asyncio.ensure_future(start_driver(TMPDIR=str(tmp_path)))
    while not starting.done():
        assert inherited_environ() == before
        lent.add(os.environ.get("TMPDIR"))
        await asyncio.sleep(0)
    await (await starting).stop()
    assert str(tmp_path) in lent


async def test_drivers_that_start_at_once_leave_our_environment_as_it_was(tmp_path):
    before, ours = dict(os.environ), psutil.Process()
    children = set(ours.children())
    folders = [tmp_path / name for name in "abc"]
    drivers = await asyncio.gather(*(start_driver(TMPDIR=str(folder)) for folder in folders))
    try:
        assert dict(os.environ) == before
        started = [process.environ() for process in set(ours.children()) - children]
        assert sorted(Path(environment["TMPDIR"]) for environment in started) == folders
        assert all("--max-semi-space-size=1" in environment["NODE_OPTIONS"] for environment in started)
    finally:
        for driver in drivers:
            await driver.stop()


def test_a_driver_that_was_killed_leaves_no_error_that_nothing_reads():
    code = """
import asyncio, psutil
from playwright.async_api import Error
from webgym_cli.environments.browser.process import start_driver

async def main():
    driver = await start_driver()
    psutil.Process().children()[0].kill()
    try:
        await driver.request.new_context()
    except Error as error:
        print(error)
    asyncio.get_running_loop().call_exception_handler({"message": "another one"})

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "closed" in done.stdout
    assert done.stderr.splitlines() == ["another one"]
