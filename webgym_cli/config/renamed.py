"""Former names of settings, and WebGym's: renamed ones, and those without effect. Each is accepted with one note."""

from __future__ import annotations

import json
import warnings
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from webgym_cli.errors import SettingsError, UserNote
from webgym_cli.util.optional import when

# No value of a setting that has no former default is another one.
ANY = object()


class Removed(NamedTuple):
    """A setting, or section, without effect: of an earlier version, a constant now or gone, or of WebGym's files."""

    instead: str
    """What to use instead, or the value that holds."""
    value: Any = ANY
    """The former default, which is what holds now; `ANY`: nothing holds, nor for the keys of a section."""
    refused: bool = False
    """Whether another value is an error, because other data or other weights would result."""


_TABLES = json.loads(Path(__file__).with_name("former_names.json").read_text(encoding="utf-8"))
# Old dotted key or section -> current name.
RENAMED: dict[str, str] = _TABLES["renamed"]
# Dotted key or section -> what holds.
REMOVED = {key: Removed(**about) for key, about in _TABLES["removed"].items()}
_WEBARENA = ("shopping", "shopping_admin", "reddit", "gitlab", "map", "wikipedia", "homepage")
# Settings of all of WebArena's sites together, which each site has now.
SHARED = ("webarena.login", "webarena.login_hours", "webarena.reset_timeout")
# A renamed switch whose new name has the opposite value, and the values as pydantic reads them.
OPPOSITE = "algorithm_config.gradient_checkpointing"
_NEGATED = {
    **dict.fromkeys(("false", "f", "no", "n", "off", "0"), True),
    **dict.fromkeys(("true", "t", "yes", "y", "on", "1"), False),
}
_DEAD = (
    f"{OPPOSITE}=false has no effect: LLaMA-Factory checkpoints anyway, in WebGym too; "
    f"{RENAMED[OPPOSITE]}=true turns it off"
)

_NONE: Mapping[str, Any] = MappingProxyType({})


class RenamedSettingWarning(UserNote):
    """A setting was given under another name, or one that has no effect."""


def current_name(key: str) -> str:
    """Return the current name of a dotted key or section."""
    old = find_section(key, RENAMED)
    return RENAMED[old] + key[len(old) :] if old else key


def find_section(key: str, names: Collection[str]) -> str:
    """Return the longest of `names` that is the dotted key or a section that contains it; empty if there is none."""
    # names are looked up, not tried one by one: each start of a command asks this for hundreds of keys
    while key and key not in names:
        key = key.rpartition(".")[0]
    return key


def rename_keys(flat: Mapping[str, Any], source: str = "", usual: Mapping[str, Any] = _NONE) -> dict[str, Any]:
    """Return settings under their current names; a current name takes precedence over its old name.

    Settings without effect are dropped. `source`: origin of the settings in the notes; empty: no notes. `usual`: the
    defaults, about which a run's settings get no note. Raises `SettingsError` for a removed setting that would have
    other results.
    """
    is_stored = source.startswith("run ")
    notes, flat = _give_to_sites(flat, only_used=is_stored or not source)
    named = ((key, find_section(key, REMOVED)) for key in flat)
    removed = {key: name for key, name in named if name and (key == name or REMOVED[name].value is ANY)}
    renamed = {key: value for key, value in flat.items() if key not in removed and current_name(key) == key}
    ignored, refused = _list_notes({name: flat[key] for key, name in removed.items()}, stored=is_stored)
    if refused and source:
        raise SettingsError(f"{source}: {refused[0]}", hint="leave it out")
    notes += ignored
    for old in flat.keys() - renamed.keys() - removed.keys():
        new, value = current_name(old), flat[old]
        if old == OPPOSITE:
            value = _NEGATED.get(str(value).lower(), value)
            # In WebGym's file nothing reads a false; in the settings of a run it did turn checkpointing off.
            if value is True and source and not is_stored:
                notes.append(_DEAD)
                continue
        if new.startswith("judge.jobs.") and value == "":  # it meant the judge's own
            continue
        if new.startswith("sites.") and (is_stored or not source):
            # Each run had settings for all of WebArena's sites.
            if flat.get(f"webarena.{new.split('.')[1]}.url"):
                renamed.setdefault(new, value)
            continue
        renamed.setdefault(new, value)
        if is_stored and value == usual.get(new, _NONE):
            continue
        notes.append(f"{old} is called {new} now (the old name still works)")
    for note in notes if source else ():
        warnings.warn(f"{source}: {note}", RenamedSettingWarning, stacklevel=2)
    return renamed


def _give_to_sites(flat: Mapping[str, Any], *, only_used: bool) -> tuple[list[str], dict[str, Any]]:
    """Return notes on `SHARED` settings, and the settings with each of those at all sites, or at those with an address.

    A site's own setting takes precedence.
    """
    notes, rest = list[str](), dict(flat)
    sites = [site for site in _WEBARENA if not only_used or flat.get(f"webarena.{site}.url")]
    for key in filter(flat.__contains__, SHARED):
        name, value = key.partition(".")[2], rest.pop(key)
        rest = {f"sites.{site}.{name}": value for site in sites} | rest
        notes.append(f"{key} is sites.NAME.{name} of each of WebArena's sites now (the old name still works)")
    return when(not only_used, notes), rest


def _list_notes(given: dict[str, Any], *, stored: bool) -> tuple[list[str], list[str]]:
    """Return the notes on settings without effect, and the errors.

    `stored`: they are those of a run, which has every setting of its version: only other values are worth a note.
    """
    notes, errors = [], []
    for key, value in given.items():
        removed = REMOVED[key]
        if isinstance(value, str):  # possibly a text of the environment
            with suppress(ValueError):
                value = json.loads(value)
        usual = value == removed.value or removed.value is ANY
        if removed.refused and not usual and not stored:
            errors.append(f"{key} is no setting any more: {removed.instead}")
        elif not (usual and stored):
            notes.append(f"{key} has no effect: {removed.instead}")
    return notes, errors
