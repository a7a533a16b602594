"""Runs uv with pip's configuration: index, extra index, find-links, certificates, constraints, proxy, timeout.

The Makefile runs this file as a script before webgym is installed: it imports the standard library only.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from itertools import chain
from typing import Any

# pip's options and uv's variables; the separator of several values, where uv's is not pip's blank.
_VARIABLES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "constraint": "UV_CONSTRAINT",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "proxy": "ALL_PROXY",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
}
_SEPARATORS = {"UV_FIND_LINKS": ","}
# The sections of `pip config list`, the one that wins last.
_SECTIONS = ("global", "install", ":env:")
_PIP_TIMEOUT = 30.0
_PIP_OPTIONS = ("--disable-pip-version-check", "--no-input", "--progress-bar=off")
_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_TRUE = ("1", "true", "yes", "on")
# Not the project of the current folder, whose `[tool.uv]` may pin another torch.
_NO_PROJECT = ("--project", "/")
_DEFAULTS = {
    # pip takes the best version of all indexes; uv's default, the first index that knows the name, takes other ones
    "UV_INDEX_STRATEGY": "unsafe-best-match",
    "UV_SYSTEM_CERTS": "1",
    "UV_PYTHON_DOWNLOADS": "never",
    "UV_NO_PROGRESS": "1",
}


def build_command(action: str, python: str, arguments: Sequence[str], options: Mapping[str, str]) -> list[str]:
    """Return uv's command, or venv's and pip's where there is no uv for this platform.

    `action`: `venv` makes an environment with the interpreter `python`; `install` installs for that interpreter.
    """
    if not (program := _find_uv()):
        module = ["venv"] if action == "venv" else ["pip", "install", *_PIP_OPTIONS]
        return [python, "-m", *module, *arguments]
    uv = [program, *_NO_PROJECT]
    if action == "venv":
        return [*uv, "venv", "--python", python, *arguments]
    command = [*uv, "pip", "install", "--python", python, *arguments]
    return [*command, "--no-index"] if options.get("no-index", "").lower() in _TRUE else command


def find_interpreter(versions: Sequence[tuple[int, int]]) -> str:
    """Return an installed Python of the newest of these versions that uv finds, outside of environments; else empty."""
    if not (program := _find_uv()):
        return ""
    for major, minor in sorted(versions, reverse=True):
        command = [program, *_NO_PROJECT, "python", "find", "--system", f"{major}.{minor}"]
        done = subprocess.run(command, capture_output=True, text=True, env=build_environ({}, os.environ), check=False)
        if done.returncode == 0:
            return str(done.stdout.strip())
    return ""


def read_pip_options(listing: str) -> dict[str, str]:
    """Return pip's options from the output of `pip config list`."""
    options: dict[str, dict[str, str]] = {section: {} for section in _SECTIONS}
    for line in listing.splitlines():
        key, _, quoted = line.partition("=")
        section, _, option = key.rpartition(".")
        if section in options:
            options[section][option] = str(ast.literal_eval(quoted))  # pip prints repr()
    return dict(chain.from_iterable(options[section].items() for section in _SECTIONS))


def build_environ(options: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which uv installs from where pip would; a variable of the user's own wins."""
    known = {_VARIABLES[option]: value.split() for option, value in options.items() if option in _VARIABLES}
    variables = {name: _SEPARATORS.get(name, " ").join(values) for name, values in known.items()}
    return _DEFAULTS | variables | dict(environ)


def describe_progress(log: str) -> str:
    """Return what uv has done and is doing; empty before it knows. `log`: its output, without a terminal.

    uv names the packages of at least 1 MiB and those that it builds; the others count when all are there.
    """
    resolved = _find(r"^Resolved (\d+) packages?", log)
    if not resolved:
        return ""
    sizes = {
        name: float(size) * _UNITS[unit]
        for name, size, unit in _find(r"^Downloading (\S+) \(([\d.]+)([KMG]?i?B)\)", log)
    }
    downloaded, built = set(_find(r"^ Downloaded (\S+)", log)), set(_find(r"^ +Built (\S+)", log))
    is_prepared = bool(_find(r"^Prepared (\d+) packages?", log))
    text = f"{resolved[0] if is_prepared else len(downloaded | built)} of {resolved[0]} packages"
    if sizes:
        done = sum(size for name, size in sizes.items() if name in downloaded)
        text = f"{text}, {_describe_size(done)} of {_describe_size(sum(sizes.values()))}"
    if waiting := sorted(set(sizes) - downloaded):
        return f"{text}: downloading {', '.join(waiting)}"
    if building := sorted(set(_find(r"^ +Building (\S+)", log)) - built):
        return f"{text}: building {', '.join(building)}"
    return f"{text}: installing" if is_prepared else text


def _describe_size(size: float) -> str:
    unit = next((unit for unit in ("GiB", "MiB") if size >= _UNITS[unit]), "KiB")
    return f"{size / _UNITS[unit]:.1f} {unit}"


def _find(pattern: str, log: str) -> list[Any]:
    return re.findall(pattern, log, re.MULTILINE)


def _find_uv() -> str | None:
    if find_spec("uv") is None:
        return shutil.which("uv")
    from uv import find_uv_bin

    return str(find_uv_bin())


def _list_pip_config() -> str:
    pip = [sys.executable, "-m", "pip"] if find_spec("pip") else ["pip3"]
    command = [*pip, "config", "list"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PIP_TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def main(action: str, python: str, *arguments: str) -> None:
    """Replace this process by uv, or by venv or pip."""
    options = read_pip_options(_list_pip_config())
    command = build_command(action, python, arguments, options)
    os.execve(command[0], command, build_environ(options, os.environ))


if __name__ == "__main__":
    main(*sys.argv[1:])
