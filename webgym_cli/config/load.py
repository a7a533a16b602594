"""Resolves the settings: defaults < run < `-c` files < `WEBGYM_SECTION__KEY` < `-s section.key=value`.

Environment variables do not override the frozen settings (`FROZEN_FOR_A_RUN`) of an existing run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict
from pydantic_settings import SettingsError as SourceError

from webgym_cli.config.model import FROZEN_FOR_A_RUN, Settings
from webgym_cli.config.model_defaults import MODEL_DEPENDENT, resolve_model_defaults
from webgym_cli.config.renamed import RENAMED, current_name, rename_keys
from webgym_cli.config.secrets import add_settings_secrets, refuse_keys
from webgym_cli.config.shipped import find_config_file
from webgym_cli.config.suggest import explain, keys_of, suggest
from webgym_cli.config.trust import PLACES, remember, require_trust, select_executed
from webgym_cli.errors import SettingsError
from webgym_cli.util.registry import absolute_place, allow_places, import_plugins
from webgym_cli.util.yaml_text import load_yaml

PREFIX = "WEBGYM_"
# Environment variables with webgym's prefix that are not settings.
RESERVED_VARIABLES = frozenset({"WEBGYM_HOME"})
BASE_MODEL = "policy_config.base_model"
UPGRADE = "pip install -U webgym"

# Source name of environment variables.
ENVIRONMENT = "environment"
# Settings that are mappings with keys of their own.
FREE_FORM = frozenset({"train.extra", "tasks.difficulty_ratio", "tasks.pool_shares", "browser.http_credentials"})
# Dotted key -> value.
Flat = dict[str, Any]


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
    layers = list(_layers(files, overrides, run_config))
    merged = Settings().model_dump(mode="json")  # a nested section that is set in part keeps its other defaults
    sources = dict.fromkeys(flat_values(Settings()), "default")
    kept: Flat = {}
    for source, layer in layers:
        layer = rename_keys(layer, source)
        for key, value in layer.items():
            _refuse_unknown(key, source)
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
    try:
        given = Settings.model_validate(merged)
    except ValidationError as error:
        raise _explain(error, sources) from None
    if run_config is not None and executes:
        executed = {key: kept[key] for key in select_executed(kept) if sources[key] == layers[0][0]}
        require_trust(run_config.parent, executed)
    _import_code(given, sources, run=run_config is not None, executes=executes)
    settings = resolve_model_defaults(given)
    add_settings_secrets(settings)
    known, before = flat_values(settings), flat_values(given)
    sources |= {key: f"model {given.policy_config.base_model}" for key in MODEL_DEPENDENT if known[key] != before[key]}
    return settings, {key: sources.get(key, "default") for key in known}


def trust_run(run_config: Path) -> None:
    """Trust a run with its current settings, from now on."""
    if run_config.is_file():
        remember(run_config.parent, select_executed(rename_keys(_read(run_config))), own=True)


def _import_code(settings: Settings, sources: Mapping[str, str], *, run: bool, executes: bool) -> None:
    """Import the plugins, which may register what a setting names, and allow stored data to name action sets."""
    values = flat_values(settings)
    # Commands that only read a run execute what their own command line names: not the run's, nor the environment's.
    named = {key for key in values if executes or not run or sources.get(key, "").startswith(("-s ", "file "))}
    import_plugins(settings.plugins if "plugins" in named else ())
    allow_places(str(values[key]) for key in ("context_config.prompt_version", "agent.call_format") if key in named)


def parse_saved(values: Mapping[str, Any]) -> Settings:
    """Parse the saved settings of a run; renamed keys are accepted."""
    merged: dict[str, Any] = {}
    for key, value in rename_keys(flatten(values)).items():
        _put(merged, key, value)
    return Settings.model_validate(merged)


def flatten(values: Mapping[str, Any], prefix: str = "") -> Flat:
    """Return nested sections as dotted keys; a free-form mapping (`train.extra`) stays one value."""
    flat: Flat = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if name in _sections() and value is None:  # a section in a file whose lines are all commented out
            continue
        if isinstance(value, Mapping) and name not in FREE_FORM:
            flat.update(flatten(value, f"{name}."))
        else:
            flat[name] = value
    return flat


def flat_values(settings: Settings) -> Flat:
    """Return the settings as JSON values by dotted key."""
    return flatten(settings.model_dump(mode="json"))


def changed_frozen_keys(before: Settings, after: Settings) -> list[str]:
    """Return the dotted keys that differ and are frozen for a run."""
    old, new = flat_values(before), flat_values(after)
    changed = [
        key for key in new if is_frozen(key) and absolute_value(key, old.get(key)) != absolute_value(key, new[key])
    ]
    return [key for key in changed if key != BASE_MODEL or not is_same_model(old[key], new[key])]


def is_frozen(key: str) -> bool:
    """Whether a setting is frozen for a run."""
    return any(key == name or key.startswith(f"{name}.") for name in FROZEN_FOR_A_RUN)


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
    kept = flat_values(parse_saved(_read(run_config)))
    return [
        f"{PREFIX}{key.replace('.', '__').upper()}={value} is not used: the run keeps {key}={kept[key]}"
        for key, value in rename_keys(flatten(_environment())).items()
        if key in kept and is_frozen(key) and str(value) != str(kept[key]) and not is_same_model(value, kept[key])
    ]


class _Sources(BaseSettings, Settings):
    """Adapts the model to the sources of pydantic-settings; never validated itself."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_nested_delimiter="__", env_parse_none_str="null")


def _layers(
    files: Sequence[str | Path], overrides: Sequence[str], run_config: Path | None
) -> Iterator[tuple[str, Flat]]:
    if run_config is not None and run_config.is_file():
        yield f"run {run_config}", _read(run_config)
    for file in files:
        path = find_config_file(file)
        yield f"file {path}", _read(path)
    yield ENVIRONMENT, flatten(_environment())
    for override in overrides:
        key, separator, text = override.partition("=")
        if not separator or not key.strip():
            raise SettingsError(f"-s takes section.key=value, got {override!r}", hint="webgym config show")
        yield f"-s {key.strip()}", flatten({key.strip(): _value(text)})


def _environment() -> dict[str, Any]:
    source = EnvSettingsSource(_Sources)
    variables = dict(source.env_vars)
    for name in os.environ:
        if not name.startswith(PREFIX) or name in RESERVED_VARIABLES:
            continue
        key = name.removeprefix(PREFIX).lower().replace("__", ".")
        if current_name(key) != key:  # the library reads, and parses as JSON, only fields of the model
            for new, text in rename_keys({key: variables.pop(name.lower())}, f"environment {name}").items():
                variables.setdefault(f"{PREFIX}{new.replace('.', '__')}".lower(), str(text))
        elif key.split(".")[0] not in Settings.model_fields:  # the library silently ignores unknown sections
            _refuse_unknown(key, f"environment {name}")
    source.env_vars = variables
    try:
        return source()
    except SourceError as error:
        raise SettingsError(f"environment: {error}") from None


def _read(path: Path) -> Flat:
    try:
        if path.suffix == ".json":  # YAML would fold odd line ends and take 1e-06 for text
            return flatten(json.loads(path.read_text(encoding="utf-8")))
        values = flatten(load_yaml(path.read_text(encoding="utf-8")) or {})
        json.dumps(values, default=str, check_circular=False)  # a YAML alias may refer to its own parent
        return values
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: can't be read: {error}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise SettingsError(f"{path}{line}: not YAML: {getattr(error, 'problem', None) or error}") from None
    except (TypeError, ValueError, AttributeError):
        raise SettingsError(f"{path}: the settings must be a mapping of sections", hint="webgym config show") from None
    except RecursionError:
        raise SettingsError(f"{path}: nested too deeply, or in itself", hint="webgym config show") from None


def absolute_value(key: str, value: Any) -> Any:
    """Return a value; the paths of a local model and of Python files are made absolute."""
    if key == "plugins" or key in PLACES:
        return [absolute_place(name) for name in value] if isinstance(value, list) else absolute_place(value)
    local = key == BASE_MODEL and isinstance(value, str) and os.path.isdir(value)  # noqa: PTH112 - a name is no path
    return str(Path(value).absolute()) if local else value


def _value(text: str) -> Any:
    """Parse a value as JSON or as a YAML list (`[calculator]`), else keep it as text."""
    with suppress(json.JSONDecodeError, RecursionError):
        return json.loads(text)
    with suppress(yaml.YAMLError, RecursionError):
        if text.startswith("["):
            return load_yaml(text)
    return text


def _put(target: dict[str, Any], key: str, value: Any) -> None:
    *sections, name = key.split(".")
    for section in sections:
        target = target.setdefault(section, {})
        if not isinstance(target, dict):
            raise SettingsError(f"{key}: {key.rpartition('.')[0]} was set to a value that is no mapping")
    target[name] = value


def known_keys() -> dict[str, Any]:
    """Return every dotted key with its field, without sections."""
    return keys_of(Settings)


@cache
def _sections() -> frozenset[str]:
    keys = (key.split(".")[:-1] for key in known_keys())
    known = {".".join(parts[:depth]) for parts in keys for depth in range(1, len(parts) + 1)}
    return frozenset(known | {old for old in RENAMED if "." not in old})


def _refuse_unknown(key: str, source: str) -> None:
    keys = known_keys()
    if key in keys or any(key.startswith(f"{free}.") for free in FREE_FORM):
        return
    if source.startswith("run "):
        raise SettingsError(f"{source}: unknown setting {key!r}: a newer webgym wrote it", hint=UPGRADE)
    near, words = suggest(key, keys)
    hint = "webgym config show"
    if near and source.startswith(f"environment {PREFIX}"):
        variable = near.upper().replace(".", "__")
        hint = f"{PREFIX}{variable}: two underscores stand where the key has a dot"
    raise SettingsError(f"{source}: unknown setting {key!r}{words}", hint=hint)


def _explain(error: ValidationError, sources: Mapping[str, str]) -> SettingsError:
    key, words = explain(error, Settings)
    source = next((sources[name] for name in sources if f"{key}.".startswith(f"{name}.")), "")
    where = f"{source}: " if source and source != "default" else ""
    what = f"{key}: " if key else ""
    return SettingsError(f"{where}{what}{words}", hint=f"webgym config reference | grep -F {key or 'KEY'}")
