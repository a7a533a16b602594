"""Resolves the settings: defaults < run < `-c` files < `WEBGYM_SECTION__KEY` < `-s section.key=value`.

Environment variables do not override the frozen settings (`FROZEN_FOR_A_RUN`) of an existing run.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from webgym_cli.config.model import FROZEN_FOR_A_RUN, Settings
from webgym_cli.config.model_defaults import MODEL_DEPENDENT, resolve_model_defaults
from webgym_cli.config.renamed import find_section, rename_keys
from webgym_cli.config.secrets import add_settings_secrets, refuse_keys
from webgym_cli.config.sources import (
    ENVIRONMENT,
    PREFIX,
    Flat,
    flatten,
    known_keys,
    list_truths,
    read_environment,
    read_layers,
    read_run,
    refuse_unknown,
)
from webgym_cli.config.trust import PLACES, remember, require_trust, select_executed
from webgym_cli.errors import SettingsError
from webgym_cli.util.registry import absolute_place, allow_places, import_plugins

BASE_MODEL = "policy_config.base_model"
# Settings that name a folder of a model, or a model on the hub.
_MODELS = (BASE_MODEL, "rl.ref.path", "rl.critic.path")
_EXECUTABLE = "browser.executable"
# Settings that may name a file or a folder, or several.
_PATHS = (
    *(*_MODELS, _EXECUTABLE, "rl.replay.experience"),
    *("algorithm_config.deepspeed_config_filename", "rl.trainer.deepspeed", "tasks.train", "tasks.test"),
    *("browser.auth_folder", "rollout.file_folders", "venvs.serve", "venvs.train"),
)
# Settings that name modules, files or items in them.
CODE = ("plugins", "context_config.prompt_version", "agent.call_format")


def load(
    files: Sequence[str | Path] = (),
    overrides: Sequence[str] = (),
    *,
    run_config: Path | None = None,
    executes: bool = False,
) -> Settings:
    """Return the resolved settings. Raises `SettingsError` that names the source and the nearest known key."""
    return load_with_sources(files, overrides, run_config=run_config, executes=executes)[0]


def load_with_sources(
    files: Sequence[str | Path] = (),
    overrides: Sequence[str] = (),
    *,
    run_config: Path | None = None,
    executes: bool = False,
) -> tuple[Settings, dict[str, str]]:
    """Return the settings and, for each dotted key, where its value came from.

    `executes`: the command does what a run's settings say. Raises `SettingsError` if that run needs trust first.
    """
    layers = list(read_layers(files, overrides, run_config))
    merged = Settings().model_dump(mode="json")  # a nested section that is set in part keeps its other defaults
    usual = flatten(merged)
    sources = dict.fromkeys(usual, "default")
    kept: Flat = {}
    for source, layer in layers:
        layer = rename_keys(layer, source, usual)
        for key, value in layer.items():
            refuse_unknown(key, source)
            if source == ENVIRONMENT and key in kept and is_frozen(key):
                continue
            from_run = source.startswith("run ")
            if not from_run:  # of a stored run an older version may have kept it
                refuse_keys(key, value, source)
            _put(merged, key, value if from_run else absolute_value(key, value))
            sources[key] = source
        kept = layer if source.startswith("run ") else kept
    if kept and not is_same_model(kept.get(BASE_MODEL), merged["policy_config"]["base_model"]):
        for key in MODEL_DEPENDENT:  # the run's values were derived from the previous model
            if sources[key].startswith("run "):
                _put(merged, key, known_keys()[key].default)
    given = _parse(merged, sources)
    if run_config is not None and executes:
        executed = {key: kept[key] for key in select_executed(kept) if sources[key] == layers[0][0]}
        require_trust(run_config.parent, executed)
    # Commands that only read a run execute what their own command line names: not the run's, nor the environment's.
    run = run_config is not None
    import_code(given, {key for key in sources if executes or not run or sources[key].startswith(("-s ", "file "))})
    settings = resolve_model_defaults(given)
    add_settings_secrets(settings)
    known, before = flat_values(settings), flat_values(given)
    sources |= {key: f"model {given.policy_config.base_model}" for key in MODEL_DEPENDENT if known[key] != before[key]}
    return settings, {key: sources.get(key, "default") for key in known}


def trust_run(run_config: Path) -> None:
    """Trust a run with its current settings, from now on."""
    if run_config.is_file():
        remember(run_config.parent, select_executed(rename_keys(read_run(run_config))), own=True)


def import_code(settings: Settings, keys: Collection[str] = CODE) -> None:
    """Import the plugins, which may register what the settings `keys` name, and let stored data name action sets."""
    if "plugins" in keys:
        import_plugins(settings.plugins)
    allow_places(str(attrgetter(key)(settings)) for key in CODE[1:] if key in keys)


def parse_saved(values: Mapping[str, Any]) -> Settings:
    """Parse the saved settings of a run; renamed keys are accepted."""
    merged: dict[str, Any] = {}
    for key, value in rename_keys(flatten(values)).items():
        _put(merged, key, value)
    return Settings.model_validate(merged)


def flat_values(settings: Settings) -> Flat:
    """Return the settings as JSON values by dotted key."""
    return flatten(settings.model_dump(mode="json"))


def changed_frozen_keys(before: Settings, after: Settings) -> list[str]:
    """Return the dotted keys that differ and are frozen for a run. A file that is gone may be named where it is now."""
    old, new = flat_values(before), flat_values(after)
    changed = [
        key for key in new if is_frozen(key) and absolute_value(key, old.get(key)) != absolute_value(key, new[key])
    ]
    same = {key: is_same_model if key == BASE_MODEL else _is_moved for key in changed}
    return [key for key in changed if not same[key](old[key], new[key])]


def _is_moved(old: Any, new: Any) -> bool:
    """Whether a value names a file (or an item in one, or several) by an absolute path at which there is none now."""
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return all(one == other or _is_moved(one, other) for one, other in zip(old, new, strict=True))
    place = str(old).rpartition(":")[0] if ".py:" in str(old) else str(old)
    return Path(place).is_absolute() and not Path(place).exists()


def is_frozen(key: str) -> bool:
    """Whether a setting is frozen for a run."""
    return bool(find_section(key, FROZEN_FOR_A_RUN))


def is_same_model(one: Any, other: Any) -> bool:
    """Whether two names denote the same model: equal text, or two paths of one folder.

    A relative path, saved by an older version, equals an absolute path that ends in it.
    """
    if one == other or not (one and isinstance(one, str) and isinstance(other, str)):
        return bool(one == other)
    try:
        return Path(one).samefile(other)
    except (OSError, ValueError):
        return not Path(one).is_absolute() and Path(other).is_absolute() and f"/{other}".endswith(f"/{one}")


def list_unused_variables(run_config: Path) -> list[str]:
    """Return notes on environment variables that are ignored because the setting is frozen for the run."""
    kept = flat_values(parse_saved(read_run(run_config)))
    return [
        f"{PREFIX}{key.replace('.', '__').upper()}={value} is not used: the run keeps {key}={kept[key]}"
        for key, value in rename_keys(flatten(read_environment())).items()
        if key in kept and is_frozen(key) and str(value) != str(kept[key]) and not is_same_model(value, kept[key])
    ]


def absolute_value(key: str, value: Any) -> Any:
    """Return a value; paths are made absolute, since later commands of a run may start in other folders."""
    if key == "plugins" or key in PLACES:
        return [absolute_place(name) for name in value] if isinstance(value, list) else absolute_place(value)
    if isinstance(value, list) and key in _PATHS:
        return [absolute_value(key, path) for path in value]
    is_path = isinstance(value, str) and (key in _PATHS or key.endswith(".storage_state"))
    if is_path and value.startswith("~/"):  # shells leave the one after `=` as it is
        value = str(Path(value).expanduser())
    if is_path and key == _EXECUTABLE and os.sep not in value:  # a program in PATH
        return value
    is_there = os.path.isdir if key in _MODELS else os.path.exists  # a name is no path
    return str(Path(value).absolute()) if is_path and value and is_there(value) else value


def _put(target: dict[str, Any], key: str, value: Any) -> None:
    *sections, name = key.split(".")
    for section in sections:
        target = target.setdefault(section, {})
        if not isinstance(target, dict):
            raise SettingsError(f"{key}: {key.rpartition('.')[0]} was set to a value that is no mapping")
    target[name] = value


def _parse(values: Flat, sources: Mapping[str, str]) -> Settings:
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        from webgym_cli.config.suggest import explain

        raise _explain(*explain(error, Settings), sources) from None
    for key in list_truths(values, settings.model_dump(mode="json")):
        raise _explain(key, "it should be a number", sources)
    return settings


def _explain(key: str, words: str, sources: Mapping[str, str]) -> SettingsError:
    dotted, names = f"{key}.", reversed(list(sources))
    near = (name for name in names if dotted.startswith(f"{name}.") or f"{name}.".startswith(dotted))
    source = next((sources[name] for name in near), "")
    parts = [part for part in (source, key, words) if part not in ("", "default")]
    # without the place in a list, or the kind of number
    known = find_section(key, known_keys().keys() - {"sites"})
    hint = f"webgym config show | grep -F {known or key or 'KEY'}"
    if source.startswith("-s ") and "should be a list" in words:
        hint = f"-s '{key}=[FIRST, SECOND]'"
    elif source == f"-s {key}" and "valid string" in words:
        hint = f"""-s '{key}="TEXT"': as it is, the value is JSON"""
    return SettingsError(": ".join(parts), hint=hint)
