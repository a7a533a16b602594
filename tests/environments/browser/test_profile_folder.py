"""What a browser leaves in the folder for temporary files, also where its run was killed."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from webgym_cli.config.model import Settings
from webgym_cli.environments.browser.options import SessionOptions
from webgym_cli.environments.browser.pool import BrowserPool
from webgym_cli.environments.browser.profile_folder import ProfileFolder

HOLD = """
from webgym_cli.environments.browser.profile_folder import ProfileFolder
folder = ProfileFolder()
(folder.path / "profile").mkdir()
print(folder.path, flush=True)
input()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def test_the_folder_of_a_killed_process_is_removed_by_the_next(temporary):
    held = subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with held:
        theirs = Path(held.stdout.readline().strip())
        ours = ProfileFolder()
        assert theirs.is_dir() and ours.path.is_dir()
        held.send_signal(signal.SIGKILL)
    again = ProfileFolder()
    assert sorted(temporary.iterdir()) == sorted([ours.path, again.path])
    ours.remove()
    again.remove()
    assert list(temporary.iterdir()) == []


@pytest.mark.browser
async def test_a_browser_leaves_nothing_behind(chromium, temporary):
    async with BrowserPool(Settings().browser) as pool:
        session = await pool.session(SessionOptions(width=200, height=200))
        (folder,) = temporary.glob("webgym-browser-*")
        assert any(name.startswith("playwright") for name in os.listdir(folder))
        await session.close()
    assert list(temporary.glob("*browser*")) == []
