"""Resolves the Weights & Biases mode from settings and environment, without importing wandb."""

from __future__ import annotations

import netrc
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from webgym_cli.config.model import Settings
from webgym_cli.errors import SettingsError
from webgym_cli.util.optional import when

Mode = Literal["online", "offline", "disabled"]

_NAMED: dict[str, Mode] = {"online": "online", "run": "online", "shared": "online", "offline": "offline"}
_NAMED |= {"dryrun": "offline", "disabled": "disabled"}
"""What `WANDB_MODE` and `log_config.tracking` can say; any other word says nothing."""
_STRICT: tuple[Mode, ...] = ("disabled", "offline", "online")
_SERVER = "https://api.wandb.ai"


def wandb_mode(settings: Settings, environ: Mapping[str, str]) -> tuple[Mode, str]:
    """Return the mode and why: the stricter of `log_config.tracking` and `WANDB_MODE`; else what a key allows."""
    words = {"log_config.tracking": settings.log_config.tracking, "WANDB_MODE": environ.get("WANDB_MODE", "").lower()}
    modes = {name: _NAMED[word] for name, word in words.items() if word in _NAMED}
    if modes:
        name = min(modes, key=lambda name: _STRICT.index(modes[name]))
        return modes[name], f"{name}={words[name]}"
    key = key_source(settings, environ)
    return ("online", f"key: {key}") if key else ("offline", f"{settings.log_config.wandb_key_env_var} is not set")


def key_source(settings: Settings, environ: Mapping[str, str]) -> str:
    """Return where a key is: a variable's name or the netrc file; empty without one."""
    for name in (settings.log_config.wandb_key_env_var, "WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE"):
        if environ.get(name, "").strip():
            return name
    file = Path(os.path.expanduser(environ.get("NETRC") or "~/.netrc"))  # noqa: PTH111 - there may be no home
    host = urlsplit(environ.get("WANDB_BASE_URL") or _SERVER).netloc
    try:
        return when(host in netrc.netrc(file).hosts, str(file))
    except (OSError, netrc.NetrcParseError):
        return ""


def wandb_environment(mode: Mode, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that make wandb work in this mode, its start bounded; never the key."""
    env: dict[str, str] = {"WANDB_MODE": mode}
    if mode == "offline":
        env["WANDB_ERROR_REPORTING"] = "false"  # wandb would send its own error reports
    if "WANDB_INIT_TIMEOUT" not in environ:
        env["WANDB_INIT_TIMEOUT"] = "300"
    return env


def wandb_run_variables(settings: Settings, run_id: str | None) -> dict[str, str]:
    """Return the variables that name the wandb run. Raises `SettingsError` for a name that no variable can hold."""
    log = settings.log_config
    values = {"WANDB_PROJECT": log.project_name, **when(log.entity_name, {"WANDB_ENTITY": log.entity_name})}
    values |= {"WANDB_RUN_NAME": log.run_name, "WANDB_RESUME": "allow", **when(run_id, {"WANDB_RUN_ID": run_id or ""})}
    for name, value in values.items():
        if "\0" in value:
            raise SettingsError(f"log_config: {name} can't contain a NUL character")
    return values


def with_key(environ: Mapping[str, str], settings: Settings) -> dict[str, str]:
    """Return an environment in which wandb finds the key, which settings know under a name of their own."""
    key = os.environ.get(settings.log_config.wandb_key_env_var, "").strip()
    return {**environ, "WANDB_API_KEY": key} if key else dict(environ)
