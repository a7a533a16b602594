"""Finds a Chromium on this machine without starting one."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

from webgym_cli.config.browser import BrowserSettings
from webgym_cli.errors import VenvError
from webgym_cli.util.files import user_folder

# The headless shell comes first: it needs half of the memory and CPU time of the full browser.
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Searched after PATH.
_USUAL_FOLDERS = ("/usr/bin", "/snap/bin")
_PLAYWRIGHT_NAMES = ("chromium-headless-shell", "chromium")
_PLAYWRIGHT_BINARIES = ("chrome-headless-shell", "headless_shell", "chrome")
_VERSION_TIMEOUT = 20.0
# With 64 Chromium starts and crashes at its first page, without a word of the limit.
_FEWEST_OPEN_FILES = 128
# Shells allow 1,024, which hundreds of episodes with a socket to page and policy each exceed. A container may allow
# 10^9, and some programs close that many at each start.
_MOST_OPEN_FILES = 65536
# Bytes of the temporary folder: a browser's profile, of which Chromium ends without a word if there is no room.
_PROFILE = 50_000_000


def find_chromium(settings: BrowserSettings) -> Path:
    """Return the Chromium that episodes will run in.

    The setting wins; then Playwright's own browser, if it was downloaded; then the system's. Raises `VenvError`
    with the installing command when there is none, or when the setting names something that can't be run.
    """
    if settings.executable:
        named = shutil.which(str(Path(settings.executable).expanduser()))
        if named is None:
            raise VenvError(
                f"browser.executable is {settings.executable!r}, which is not a program that can be run",
                hint="correct the setting, or leave it empty to have a browser searched for",
            )
        return Path(named)
    program = _playwright_chromium() or _system_chromium()
    if program is None:
        raise VenvError("no Chromium was found on this machine", hint=_install_hint())
    return program


def raise_open_files() -> None:
    """Raise this process's limit of open files. Raises `VenvError` if no browser can run within what is allowed."""
    limit, highest = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = _MOST_OPEN_FILES if highest == resource.RLIM_INFINITY else min(highest, _MOST_OPEN_FILES)
    if allowed < _FEWEST_OPEN_FILES:
        raise VenvError(
            f"{allowed} open files are allowed, and a browser needs {_FEWEST_OPEN_FILES}",
            hint="ulimit -n 4096, then the same command again",
        )
    if limit != resource.RLIM_INFINITY and limit < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, highest))


def advise_on_start() -> str:
    """Return the hint for a browser that does not start: the limit or the full folder that keeps it from starting."""
    # Chromium and Playwright's driver reserve more addresses than they use, and memory as large files
    for limit, option in ((resource.RLIMIT_AS, "v"), (resource.RLIMIT_FSIZE, "f")):
        if resource.getrlimit(limit)[0] != resource.RLIM_INFINITY:
            return f"ulimit -{option} unlimited, then the same command again"
    folder = Path(os.environ.get("TMPDIR") or "/tmp")
    if not folder.is_dir() or shutil.disk_usage(folder).free < _PROFILE:
        return f"make room in {folder}, or name another folder by TMPDIR, then the same command again"
    return "webgym doctor"


def chromium_version(path: Path) -> str:
    """Return the browser's version, for example `156.0.8078.79`. Raises `VenvError` if it can't be run."""
    try:
        shown = subprocess.run(
            [str(path), "--version"], capture_output=True, text=True, timeout=_VERSION_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise VenvError(f"{path} does not tell its version: {error}", hint=_install_hint()) from error
    version = re.search(r"\d+(?:\.\d+){1,3}", shown.stdout)
    if version is None:
        raise VenvError(
            f"{path} does not tell its version: {(shown.stderr or shown.stdout).strip()[-300:]}", hint=_install_hint()
        )
    return version.group()


def _install_hint() -> str:
    on_debian = "   (on Debian also: apt-get install -y chromium-headless-shell)" if shutil.which("apt-get") else ""
    return f"webgym setup --role browser{on_debian}"


def _system_chromium() -> Path | None:
    for folders in (None, os.pathsep.join(_USUAL_FOLDERS)):
        if program := next(filter(None, (shutil.which(name, path=folders) for name in _NAMES)), None):
            return Path(program)
    return None


def _playwright_chromium() -> Path | None:
    """Return the browser of exactly the revision that the installed Playwright asks for, if it is on disk."""
    try:
        package = Path(str(files("playwright"))) / "driver" / "package"
        listed = json.loads((package / "browsers.json").read_text(encoding="utf-8"))["browsers"]
        revisions = {entry["name"]: entry["revision"] for entry in listed}
    except (ImportError, OSError, ValueError, KeyError, TypeError):
        return None
    for name in _PLAYWRIGHT_NAMES:
        folder = _playwright_cache(package) / f"{name.replace('-', '_')}-{revisions.get(name)}"
        programs = (file for file in sorted(folder.glob("*/**/*")) if file.name in _PLAYWRIGHT_BINARIES)
        if program := next((file for file in programs if file.is_file() and os.access(file, os.X_OK)), None):
            return program
    return None


def _playwright_cache(package: Path) -> Path:
    chosen = os.environ.get("PLAYWRIGHT_BROWSERS_PATH", "")
    if chosen == "0":
        return package / ".local-browsers"
    return Path(chosen) if chosen else user_folder("XDG_CACHE_HOME", ".cache") / "ms-playwright"
