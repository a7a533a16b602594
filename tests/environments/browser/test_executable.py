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


def test_none_is_an_error_with_the_command_to_type_and_the_setting_wins(nowhere: Path):
    with pytest.raises(VenvError) as error:
        find.find_chromium(BrowserSettings())
    assert "webgym setup --role browser" in error.value.hint
    program(nowhere / "bin" / "chromium")
    chosen = program(nowhere / "mine" / "browser")
    assert find.find_chromium(BrowserSettings(executable=str(chosen))) == chosen
    with pytest.raises(VenvError, match=r"browser\.executable"):
        find.find_chromium(BrowserSettings(executable=str(nowhere / "gone")))


def test_the_headless_shell_comes_before_the_full_browser_and_playwrights_own_before_both(nowhere: Path):
    listed = json.loads((files("playwright") / "driver" / "package" / "browsers.json").read_text())["browsers"]
    revision = next(entry["revision"] for entry in listed if entry["name"] == "chromium-headless-shell")
    program(nowhere / "cache" / "chromium_headless_shell-1" / "linux" / "headless_shell")
    for place in (
        "bin/chromium",
        "bin/chromium-headless-shell",
        f"cache/chromium_headless_shell-{revision}/linux/headless_shell",
    ):
        newest = program(nowhere / place)
        assert find.find_chromium(BrowserSettings()) == newest


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
        *(((1024, most), (65536, most)) for most in (10**9, resource.RLIM_INFINITY)),
        *(((limit, limit), None) for limit in (4096, 10**6, resource.RLIM_INFINITY)),
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
    for limit, option in ((resource.RLIMIT_AS, "ulimit -v"), (resource.RLIMIT_FSIZE, "ulimit -f")):
        limits = {limit: (4_000_000, 4_000_000)}
        monkeypatch.setattr(
            resource, "getrlimit", lambda one, limits=limits: limits.get(one, (resource.RLIM_INFINITY,) * 2)
        )
        assert option in find.advise_on_start()
