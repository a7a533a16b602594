"""Temporary folders: what a killed process leaves is removed, and nothing else."""

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from webgym_cli.errors import StoreError
from webgym_cli.util.temporary_folder import TemporaryFolder

HOLD = """
from webgym_cli.util.temporary_folder import TemporaryFolder
folder = TemporaryFolder("test")
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
    run = temporary / "webgym-tmp-mine"
    run.mkdir()
    (run / "lock").touch()  # a user's run, by chance under the same prefix
    with held:
        theirs = Path(held.stdout.readline().strip())
        ours = TemporaryFolder("test")
        assert theirs.is_dir() and ours.path.is_dir()
        held.send_signal(signal.SIGKILL)
    again = TemporaryFolder("test")
    assert sorted(temporary.iterdir()) == sorted([ours.path, again.path, run])
    ours.remove()
    again.remove()
    assert list(temporary.iterdir()) == [run]


def test_no_place_for_temporary_files_is_named(temporary, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(temporary / "gone"))
    with pytest.raises(StoreError, match="TMPDIR"):
        TemporaryFolder("test")
