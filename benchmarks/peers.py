"""Systems that we are compared with: each in an environment of its own in the user's cache, never a part of ours."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from benchmarks.episodes import CLICKS, PAGE
from benchmarks.harness import program, say
from webgym_cli.config.load import load
from webgym_cli.environments.browser.executable import find_chromium
from webgym_cli.environments.miniwob.pages import pages_folder
from webgym_cli.errors import JobError
from webgym_cli.util.files import user_folder
from webgym_cli.venvs import installer

_INSTALLER = (sys.executable, installer.__file__)
_BROWSER_ARGUMENTS = ("--disable-gpu", "--disable-quic", "--no-first-run", "--disable-component-update")
WAITS_OFF = {"slow_mo": 0, "pre_observation_delay": 0.0}
"""BrowserGym's options without its fixed waits."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Another system, with packages that can't be ours."""

    name: str
    """As people write it."""
    version: str
    """The only one that is installed."""
    packages: tuple[tuple[str, ...], ...]
    """What is installed, one request after another."""
    works: str
    """A Python program that runs where all of it is there."""

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    @property
    def home(self) -> Path:
        """The folder of its environment."""
        return user_folder("XDG_CACHE_HOME", ".cache") / "webgym" / "benchmarks" / f"{self.name.lower()}-{self.version}"

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.home / "bin" / "python"

    @property
    def packages_folder(self) -> Path:
        """Where its packages are, for a Python of the same version that has what they need."""
        return Path(sysconfig.get_path("platlib", "venv", {"base": str(self.home), "platbase": str(self.home)}))

    @property
    def installed(self) -> bool:
        """Whether its environment is complete."""
        return self._complete.is_file()

    @property
    def _complete(self) -> Path:
        return self.home / "complete"

    def install(self) -> None:
        """Make its environment, unless it is there; whoever comes meanwhile waits for it. Raises `JobError`."""
        self.home.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(self.home.with_name(f"{self.home.name}.lock")):
            if not self.installed:
                self._make()

    def _make(self) -> None:
        shutil.rmtree(self.home, ignore_errors=True)
        say(f"installing {self} into {self.home}")
        self._run((*_INSTALLER, "venv", sys.executable, str(self.home)))
        for request in self.packages:
            self._run((*_INSTALLER, "install", str(self.python), *request))
        self._run((str(self.python), "-c", self.works))
        self._complete.touch()

    def _run(self, command: Sequence[str]) -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            words = " ".join((done.stderr or done.stdout).split()) or "it said nothing"  # uv breaks its lines
            raise JobError(
                f"{self} can't be installed: {words[-300:]}", hint="it needs pip's index; all else does without it"
            )


_GYM, _VERIFIED, _VERL, _TRL, _OPENENV = "0.14.3", "1.2.3", "0.9.1", "1.16.0", "0.10.0"
BROWSERGYM = Peer(
    "BrowserGym",
    _GYM,
    (
        ("--no-deps", f"browsergym-core=={_GYM}", f"browsergym-miniwob=={_GYM}"),
        (
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
        ),
    ),
    "import os; os.environ['MINIWOB_URL'] = 'file:///'; import psutil, browsergym.miniwob",
)
"""Its MiniWoB environments, beside which the benchmarks run ours."""
VERIFIED = Peer("webarena-verified", _VERIFIED, ((f"webarena-verified=={_VERIFIED}",),), "import webarena_verified.api")
"""WebArena's tasks and a scorer of them by others, beside which the tests run ours."""
OPENENV = Peer(
    "openenv",
    _OPENENV,
    (
        (f"openenv=={_OPENENV}",),
        # Of Harbor only its models of ATIF, which Python 3.11 reads although the package asks for 3.12.
        ("--no-deps", "--python-version", "3.12", "harbor==0.26.0"),
    ),
    "import openenv, harbor.models.trajectories",
)
"""OpenEnv's server, clients and training traces, and Harbor's ATIF, which check what we serve and export."""
VERL = Peer(
    "verl",
    _VERL,
    (
        (
            "--no-deps",
            f"verl=={_VERL}",
            # What its formulas import and the train role lacks: all that it asks for would be another torch.
            "antlr4-python3-runtime==4.9.3",
            "cloudpickle>=3,<4",
            "codetiming>=1.4,<2",
            "hydra-core>=1.3,<1.4",
            "jsonschema>=4.23,<5",
            "jsonschema-specifications>=2024",
            "omegaconf>=2.3,<2.4",
            "pyvers>=0.1",
            "ray>=2.50,<3",
            "referencing>=0.35",
            "rpds-py>=0.20",
            "tensordict>=0.9.1,<=0.10",
        ),
    ),
    "from importlib.metadata import version; version('verl')",
)
"""Estimators and objectives of reinforcement learning, beside which the tests run ours in the train role."""

TRL = Peer("TRL", _TRL, ((f"trl=={_TRL}", "torch==2.13.0"),), "import trl, torch")
"""The trainer beside whose update the benchmarks time ours: LLaMA-Factory admits only an old one in the train role."""


def measure(
    seeds: Sequence[int], steps: int, concurrency: int, options: dict[str, Any], *, marks: bool = False
) -> dict[str, Any]:
    """Run our scripted episodes through BrowserGym, with or without marks on its pictures. Raises `JobError`."""
    job = {
        "url": f"{pages_folder().as_uri()}/",
        "executable": str(find_chromium(load().browser)),
        "arguments": ["--no-sandbox", *_BROWSER_ARGUMENTS],
        "clicks": CLICKS,
        "page": PAGE,
        "options": options,
        "marks": marks,
        "seeds": list(seeds),
        "steps": steps,
        "concurrency": concurrency,
    }
    return program("browsergym_peer", job, str(BROWSERGYM.python))
