"""What a run's settings execute and where they send keys, and whose runs may: those made here, and those trusted once.

Anyone can write the settings of a run. What this user made or trusts is therefore recorded outside of runs, by the
inode and change time of `run.json`: no copy and no archive keeps both, whoever owns its files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from webgym_cli.config.model_servers import is_model_server
from webgym_cli.config.renamed import find_section
from webgym_cli.errors import SettingsError, StoreError
from webgym_cli.util.files import read_json, user_folder, write_json
from webgym_cli.util.json_values import as_object
from webgym_cli.util.urls import is_loopback


def _is_elsewhere(value: Any) -> bool:
    """Whether an address is on another machine: keys and passwords of this user are sent there."""
    address = str(value or "")
    try:
        host = urlsplit(address).hostname or ""
    except ValueError:  # an unclosed bracket: what is no address is refused where it is used
        return True
    # A browser takes `\` for `/`, which ends the host: http://elsewhere.example\@127.0.0.1
    return bool(address) and not is_model_server(address) and ("\\" in address or not is_loopback(host))


def _names_server_elsewhere(value: Any) -> bool:
    """Whether a mapping of endpoints, or a part of it, has an address on another machine."""
    if isinstance(value, Mapping):
        return any(map(_names_server_elsewhere, value.values()))
    return "://" in str(value) and _is_elsewhere(value)


# Also an option of commands, whose note in a run is its author's too.
POLICY = "rollout.policy"
# Settings that may name a registered item by its location.
PLACES = (
    *("agent.tools", "agent.reward_name", "agent.call_format", "context_config.prompt_version", "judge.protocol"),
    *("train.algorithm", "loop.demonstration_algorithm", "rl.data.shaping"),
)
# Settings that execute code that the writer chose, or send keys to an address of the writer's -> whether a value does.
_EXECUTED: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(PLACES, lambda value: ":" in str(value)),  # a location (`file.py:attribute`), or one of several
    **dict.fromkeys(
        ("plugins", "venvs.serve", "venvs.train", "browser.executable", "browser.args", "rollout.agent"), bool
    ),
    # A remote browser sees logins, and its address may name a variable with a key, as credentials do. Pages of the
    # author reach what private hosts serve, and get files from other folders.
    **dict.fromkeys(
        ("browser.cdp_urls", "browser.http_credentials", "browser.private_hosts", "rollout.file_folders"), bool
    ),
    POLICY: lambda policy: any(map(_names_server_elsewhere, str(policy).split(","))),
    # LLaMA-Factory and vLLM load code that their arguments name; Ray's client unpickles what the cluster sends
    **dict.fromkeys(
        ("policy_config.trust_remote_code", "train.extra", "serve.extra_args", "rollout.ray_address"), bool
    ),
    "sites.NAME.reset": lambda value: (
        not str(value).strip().startswith(("http://", "https://")) and bool(str(value).strip())
    ),
    "sites.NAME.url": _is_elsewhere,
    "sites.NAME.accounts.ROLE.storage_state": bool,  # a login of this user, to any site
    "judge.jobs": _names_server_elsewhere,
    **dict.fromkeys(("judge.base_url", "orm.base_url", "generate.base_url", "rl.replay.base_url"), _is_elsewhere),
}


def select_executed(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings, by dotted key, whose values execute a program or code, or send keys elsewhere."""
    return {key: value for key, value in flat.items() if _find_rule(key)(value)}


def _find_rule(key: str) -> Callable[[Any], bool]:
    if key.startswith("sites."):
        key = re.sub(r"^sites\.[^.]+\.(reset$|url$|accounts\.)", r"sites.NAME.\1", key)
        key = re.sub(r"(?<=^sites\.NAME\.accounts\.)[^.]+", "ROLE", key)
    # a free-form mapping may be given by the key of one entry
    return _EXECUTED.get(find_section(key, _EXECUTED), lambda value: False)


def is_own(run: Path) -> bool:
    """Whether the run in a folder was made here by this user, or is trusted as if."""
    return _read_record(run).get("own") is True


def remember(run: Path, executed: Mapping[str, Any], *, own: bool = False) -> None:
    """Record that this user gave a run these settings; `own`: made it, or trusts all that is in it."""
    before = _read_record(run)
    record = {"run": str(run), "own": own or before.get("own") is True, "executed": dict(executed)}
    if (file := _record_file(run)) is None or record == before or not (own or executed or before):
        return
    # a home that can't be written: `--trust` is then needed each time
    with suppress(OSError, StoreError):
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_json(file, record)


def require_trust(run: Path, executed: Mapping[str, Any]) -> None:
    """Raise `SettingsError` if this user neither gave a run these settings nor trusts it."""
    known = _read_record(run).get("executed", {})
    if untrusted := [key for key, value in executed.items() if key not in known or known[key] != value]:
        raise refuse_foreign(run, f"its settings execute or address what its author chose ({', '.join(untrusted)})")


def refuse_foreign(run: Path, danger: str) -> SettingsError:
    """Return the error for a command that would execute something of a run that was made elsewhere."""
    return SettingsError(
        f"{run}: was not made here, and {danger}",
        hint=f"webgym config show --run {run} shows its settings; --trust executes them, from now on",
    )


def _record_file(run: Path) -> Path | None:
    """Return the file of a run's record; None without a run."""
    for name in ("run.json", "config.json"):  # runs whose provenance was lost
        with suppress(OSError):
            status = (run / name).stat()
            record = f"{status.st_ino:x}-{status.st_ctime_ns:x}.json"
            return user_folder("XDG_STATE_HOME", ".local/state") / "webgym/runs" / record
    return None


def _read_record(run: Path) -> dict[str, Any]:
    file = _record_file(run)
    if file is None or not file.is_file():
        return {}
    return as_object(read_json(file))
