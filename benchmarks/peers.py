"""BrowserGym as a peer: an environment of its own in the user's cache, made on request and never a part of ours."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from benchmarks.episodes import CLICKS, PAGE
from benchmarks.harness import program, say
from webgym_cli.config.load import load
from webgym_cli.environments.browser.find import find_chromium
from webgym_cli.environments.miniwob_pages import pages_folder
from webgym_cli.errors import JobError

VERSION = "0.14.3"
"""BrowserGym's version."""
_ITSELF = (f"browsergym-core=={VERSION}", f"browsergym-miniwob=={VERSION}")
_ITS_NEEDS = (
    # BrowserGym asks for Playwright 1.44; with a new one it is faster.
    "playwright>=1.60,<1.66",
    "beautifulsoup4>=4.12",
    "gymnasium>=1.2,<2",
    "lxml>=4.9,<6",
    "mcp[cli]>=1.6",
    "numpy>=1.14",
    "pillow>=10.1",
    "psutil>=6,<8",
    "pyparsing>=3",
)
_BROWSER_ARGUMENTS = ("--disable-gpu", "--disable-quic", "--no-first-run", "--disable-component-update")
WAITS_OFF = {"slow_mo": 0, "pre_observation_delay": 0.0}
"""BrowserGym's options without its fixed waits."""


def home() -> Path:
    """Return the folder of BrowserGym's environment."""
    return user_cache_path("webgym") / "benchmarks" / f"browsergym-{VERSION}"


def python() -> Path:
    """Return its interpreter."""
    return home() / "bin" / "python"


def installed() -> bool:
    """Whether its environment is complete."""
    return (home() / "complete").is_file()


def install() -> None:
    """Make BrowserGym's environment, unless it is there. Raises `JobError`."""
    if installed():
        return
    shutil.rmtree(home(), ignore_errors=True)
    say(f"installing BrowserGym {VERSION} into {home()}")
    pip = (str(python()), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    _run((sys.executable, "-m", "venv", str(home())))
    _run((*pip, "--no-deps", *_ITSELF))
    _run((*pip, *_ITS_NEEDS))
    _run((str(python()), "-c", "import psutil, browsergym.miniwob"), MINIWOB_URL="file:///")
    (home() / "complete").touch()


def measure(seeds: Sequence[int], steps: int, concurrency: int, options: dict[str, Any]) -> dict[str, Any]:
    """Run our scripted episodes through BrowserGym. Raises `JobError`."""
    job = {
        "url": f"{pages_folder().as_uri()}/",
        "executable": str(find_chromium(load().browser)),
        "arguments": ["--no-sandbox", *_BROWSER_ARGUMENTS],
        "clicks": CLICKS,
        "page": PAGE,
        "options": options,
        "seeds": list(seeds),
        "steps": steps,
        "concurrency": concurrency,
    }
    return program("browsergym_peer", job, str(python()))


def _run(command: Sequence[str], **environment: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})
    if done.returncode:
        words = (done.stderr or done.stdout).strip().splitlines() or ["it said nothing"]
        raise JobError(f"BrowserGym can't be installed: {words[-1]}", hint="the benchmark runs without --peers, too")
