"""The sources of settings: files, the environment, `-s`. Each becomes values by dotted key."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, get_origin

from webgym_cli.config.model import Settings
from webgym_cli.config.renamed import REMOVED, RENAMED, SHARED, current_name, rename_keys
from webgym_cli.config.section import keys_of
from webgym_cli.config.shipped import find_config_file
from webgym_cli.config.sites import list_site_keys
from webgym_cli.errors import UPGRADE, SettingsError, StoreError
from webgym_cli.util.files import read_json

PREFIX = "WEBGYM_"
# Environment variables with webgym's prefix that are not settings.
RESERVED_VARIABLES = frozenset({"WEBGYM_HOME", "WEBGYM_TRACEBACK"})
# Source name of environment variables.
ENVIRONMENT = "environment"
# Settings that are mappings with keys of their own.
FREE_FORM = frozenset(key for key, field in keys_of(Settings).items() if get_origin(field.annotation) is dict) - {
    "sites"  # a table of sections, which is merged key by key
}
# Dotted key -> value.
Flat = dict[str, Any]


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


def read_layers(
    files: Sequence[str | Path], overrides: Sequence[str], run_config: Path | None
) -> Iterator[tuple[str, Flat]]:
    """Yield each source with its values, from the weakest to the strongest. Raises `SettingsError`."""
    if run_config is not None and run_config.is_file():
        yield f"run {run_config}", read_run(run_config)
    for file in files:
        path = find_config_file(file)
        yield f"file {path}", read_file(path)
    yield ENVIRONMENT, flatten(read_environment())
    for override in overrides:
        key, separator, text = override.partition("=")
        if not separator or not key.strip():
            raise SettingsError(f"-s takes section.key=value, got {override!r}", hint="webgym config show")
        yield f"-s {key.strip()}", flatten({key.strip(): _value(text)})


def read_environment() -> dict[str, Any]:
    """Return the nested values of the environment. Raises `SettingsError`."""
    if not any(name.upper().startswith(PREFIX) and name not in RESERVED_VARIABLES for name in os.environ):
        return {}
    # slow to import
    from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict
    from pydantic_settings import SettingsError as SourceError

    class Sources(BaseSettings, Settings):  # never validated itself
        model_config = SettingsConfigDict(env_prefix=PREFIX, env_nested_delimiter="__", env_parse_none_str="null")

    source = EnvSettingsSource(Sources)
    variables = dict(source.env_vars)
    for name in os.environ:
        if not name.startswith(PREFIX) or name in RESERVED_VARIABLES:
            continue
        key = name.removeprefix(PREFIX).lower().replace("__", ".")
        is_known = key.split(".")[0] in Settings.model_fields
        # The library reads, and parses as JSON, only fields of the model.
        if current_name(key) != key or key in SHARED or (key in REMOVED and not is_known):
            for new, text in rename_keys({key: variables.pop(name.lower())}, f"environment {name}").items():
                variables.setdefault(f"{PREFIX}{new.replace('.', '__')}".lower(), str(text))
        elif not is_known:  # the library silently ignores unknown sections
            refuse_unknown(key, f"environment {name}")
    source.env_vars = variables
    try:
        return source()
    except SourceError as error:
        hint = f"""a section and a list are JSON there: {PREFIX}PLUGINS='["sites.py"]'"""
        raise SettingsError(f"environment: {error}", hint=hint) from None


def read_run(path: Path) -> Flat:
    """Return the values of a run's `config.json`. Raises `StoreError` if it is damaged."""
    if not isinstance(values := read_json(path), dict):
        raise StoreError(f"{path}: not a mapping of sections", hint=f"restore {path} from a copy")
    return flatten(values)


def read_file(path: Path) -> Flat:
    """Return the values of a YAML or JSON file. Raises `SettingsError`."""
    try:
        if path.suffix == ".json":  # YAML would fold odd line ends
            return flatten(json.loads(path.read_text(encoding="utf-8")))
        from webgym_cli.util.yaml_text import read_yaml  # a run's settings are JSON

        return flatten(read_yaml(path, SettingsError) or {})
    except OSError as error:
        raise SettingsError(f"{path}: can't be read: {error.strerror}") from None
    except ValueError as error:  # not UTF-8, not JSON, a number of 5,000 digits
        raise SettingsError(f"{path}: can't be read: {error}") from None
    except (TypeError, AttributeError):
        raise SettingsError(f"{path}: the settings must be a mapping of sections", hint="webgym config show") from None
    except RecursionError:
        raise SettingsError(f"{path}: nested too deeply", hint="webgym config show") from None


def _value(text: str) -> Any:
    """Parse a value as JSON or as a YAML list (`[calculator]`), else keep it as text."""
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    if text.startswith("["):
        import yaml

        from webgym_cli.util.yaml_text import load_yaml

        with suppress(yaml.YAMLError, ValueError, RecursionError):
            return load_yaml(text)
    return text


def list_truths(given: object, parsed: object, key: str = "") -> Iterator[str]:
    """Yield the dotted keys of the truth values that pydantic has parsed as numbers, 0 and 1."""
    if isinstance(given, dict) and isinstance(parsed, dict):
        for name, one in given.items():
            yield from list_truths(one, parsed.get(name), f"{key}.{name}")
    elif isinstance(given, list) and isinstance(parsed, list):
        for place, (one, other) in enumerate(zip(given, parsed, strict=False)):
            yield from list_truths(one, other, f"{key}.{place}")
    elif isinstance(given, bool) and isinstance(parsed, int | float) and not isinstance(parsed, bool):
        yield key.removeprefix(".")


def known_keys() -> dict[str, Any]:
    """Return every dotted key with its field, without sections."""
    return keys_of(Settings)


@cache
def _sections() -> frozenset[str]:
    keys = (key.split(".")[:-1] for key in known_keys())
    known = {".".join(parts[:depth]) for parts in keys for depth in range(1, len(parts) + 1)}
    return frozenset(known | {"sites"} | {old for old in RENAMED if "." not in old})


def refuse_unknown(key: str, source: str) -> None:
    """Raise `SettingsError` with the nearest name for a key that is no setting."""
    keys: Collection[str] = known_keys()
    if key in keys or any(key.startswith(f"{free}.") for free in FREE_FORM):
        return
    if key.startswith("sites."):
        keys = list_site_keys(key)
        if key in keys:
            return
        if not keys:
            words = f"{source}: {key!r}: names of sites and of roles are letters, digits, - and _"
            raise SettingsError(words, hint="give it another name, here and in the tasks")
    if source.startswith("run "):
        raise SettingsError(f"{source}: unknown setting {key!r}: a newer webgym wrote it", hint=UPGRADE)
    from webgym_cli.config.suggest import suggest

    near, words = suggest(key, keys)
    hint = "webgym config show"
    if near and source.startswith(ENVIRONMENT):
        variable = near.upper().replace(".", "__")
        hint = f"{PREFIX}{variable}: two underscores stand where the key has a dot"
    raise SettingsError(f"{source}: unknown setting {key!r}{words}", hint=hint)
