"""A build of torch's that was killed leaves its lock; one that is at work keeps it."""

import os
import sys

import pytest

from webgym_cli.config.model import Settings
from webgym_cli.train.deepspeed_ops import build_ops, remove_stale_locks


@pytest.fixture
def build(tmp_path):
    """Make the folder of one build and its lock, and return the lock."""

    def make(*folders):
        folder = tmp_path.joinpath(*folders)
        folder.mkdir(parents=True)
        (folder / "main.cpp").touch()
        (folder / "lock").touch()
        return folder / "lock"

    return make


@pytest.mark.parametrize(
    ("env", "folders"),
    [
        ({"TORCH_EXTENSIONS_DIR": "{}/own"}, ("own", "cpu_adam")),
        ({"XDG_CACHE_HOME": "{}"}, ("torch_extensions", "py311_cpu", "cpu_adam")),
        ({"HOME": "{}"}, (".cache", "torch_extensions", "py311_cpu", "cpu_adam")),
    ],
)
def test_a_lock_that_nobody_holds_is_removed_and_nothing_else(tmp_path, build, env, folders):
    lock = build(*folders)
    (note,) = remove_stale_locks({name: path.format(tmp_path) for name, path in env.items()})
    assert note.startswith(f"{lock}: ")
    assert [path.name for path in lock.parent.iterdir()] == ["main.cpp"]


def test_the_lock_of_a_build_at_work_stays(tmp_path, build):
    stale, held = build("a"), build("b")
    descriptor = os.open(held, os.O_CREAT)  # as torch holds it
    try:
        assert len(remove_stale_locks({"TORCH_EXTENSIONS_DIR": str(tmp_path)})) == 1
    finally:
        os.close(descriptor)
    assert held.exists() and not stale.exists()
    assert remove_stale_locks({"TORCH_EXTENSIONS_DIR": str(tmp_path / "missing")}) == []


def test_a_set_up_removes_the_lock_of_a_set_up_that_was_killed(tmp_path, build, monkeypatch):
    lock = build("deepspeed_shm_comm")
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    monkeypatch.setenv("WEBGYM_HOME", str(tmp_path / "home"))
    settings, seen = Settings(venvs={"train": sys.executable}), []
    build_ops(settings, "cpu", seen.append, lambda argv, log: seen.append(lock.exists()) or 0)
    assert str(lock) in seen[0]
    assert seen[-1] is False
