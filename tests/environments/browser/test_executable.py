"""Where a browser is looked for."""

import json
import resource
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace

import pytest

from webgym_cli.config.browser import BrowserSettings
from webgym_cli.environments.browser import executable as find
from webgym_cli.errors import VenvError


def program(path: Path, text: str = "exit 0") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path / "cache"))
    monkeypatch.setattr(find, "_USUAL_FOLDERS", ())
    return tmp_path


def test_none_is_an_error_with_the_command_to_type(nowhere: Path):
    with pytest.raises(VenvError) as error:
        find.find_chromium(BrowserSettings())
    assert "webgym setup --role browser" in error.value.hint


def test_the_setting_wins(nowhere: Path):
    program(nowhere / "bin" / "chromium")
    chosen = program(nowhere / "mine" / "browser")
    assert find.find_chromium(BrowserSettings(executable=str(chosen))) == chosen
    with pytest.raises(VenvError, match=r"browser\.executable"):
        find.find_chromium(BrowserSettings(executable=str(nowhere / "gone")))


def test_the_headless_shell_comes_before_the_full_browser(nowhere: Path):
    full = program(nowhere / "bin" / "chromium")
    assert find.find_chromium(BrowserSettings()) == full
    shell = program(nowhere / "bin" / "chromium-headless-shell")
    assert find.find_chromium(BrowserSettings()) == shell


def test_playwrights_own_browser_comes_before_the_systems(nowhere: Path):
    program(nowhere / "bin" / "chromium-headless-shell")
    listed = json.loads((files("playwright") / "driver" / "package" / "browsers.json").read_text())["browsers"]
    revision = next(entry["revision"] for entry in listed if entry["name"] == "chromium-headless-shell")
    program(nowhere / "cache" / "chromium_headless_shell-1" / "linux" / "headless_shell")
    own = program(nowhere / "cache" / f"chromium_headless_shell-{revision}" / "linux" / "headless_shell")
    assert find.find_chromium(BrowserSettings()) == own


def test_version(tmp_path: Path):
    assert find.chromium_version(program(tmp_path / "a", "echo Chromium 156.0.1.2 built")) == "156.0.1.2"
    with pytest.raises(VenvError, match="does not tell its version: no display"):
        find.chromium_version(program(tmp_path / "b", "echo no display >&2; exit 1"))
    with pytest.raises(VenvError):
        find.chromium_version(tmp_path / "missing")


@pytest.mark.parametrize(
    ("limits", "raised"),
    [
        ((1024, 4096), (4096, 4096)),
        ((1024, 10**9), (65536, 10**9)),
        ((1024, resource.RLIM_INFINITY), (65536, resource.RLIM_INFINITY)),
        ((4096, 4096), None),
        ((10**6, 10**6), None),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), None),
    ],
)
def test_the_limit_of_open_files_is_raised(monkeypatch, limits, raised):
    calls = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _, values: calls.append(values))
    find.raise_open_files()
    assert calls == [raised] * bool(raised)


def test_too_few_open_files_are_named(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 64))
    with pytest.raises(VenvError, match="64 open files") as error:
        find.raise_open_files()
    assert "ulimit -n" in error.value.hint


def test_what_keeps_a_browser_from_starting_is_named(monkeypatch, tmp_path):
    assert find.advise_on_start() == "webgym doctor"
    monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))
    assert str(tmp_path / "missing") in find.advise_on_start()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1000))
    assert str(tmp_path) in find.advise_on_start()
    monkeypatch.setattr(resource, "getrlimit", lambda _: (4_000_000, 4_000_000))
    assert "ulimit -v" in find.advise_on_start()
