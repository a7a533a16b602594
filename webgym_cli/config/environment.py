"""The environment as a source of settings: `WEBGYM_SECTION__KEY`."""

from __future__ import annotations

import os
from typing import Any

from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict
from pydantic_settings import SettingsError as SourceError

from webgym_cli.config.model import Settings
from webgym_cli.config.removed import REMOVED
from webgym_cli.config.renamed import current_name, rename_keys
from webgym_cli.config.sources import PREFIX, RESERVED_VARIABLES, refuse_unknown
from webgym_cli.errors import SettingsError


class _Sources(BaseSettings, Settings):
    """Adapts the model to the sources of pydantic-settings; never validated itself."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_nested_delimiter="__", env_parse_none_str="null")


def parse_environment() -> dict[str, Any]:
    """Return the nested values of the environment. Raises `SettingsError`."""
    source = EnvSettingsSource(_Sources)
    variables = dict(source.env_vars)
    for name in os.environ:
        if not name.startswith(PREFIX) or name in RESERVED_VARIABLES:
            continue
        key = name.removeprefix(PREFIX).lower().replace("__", ".")
        is_known = key.split(".")[0] in Settings.model_fields
        # The library reads, and parses as JSON, only fields of the model.
        if current_name(key) != key or (key in REMOVED and not is_known):
            for new, text in rename_keys({key: variables.pop(name.lower())}, f"environment {name}").items():
                variables.setdefault(f"{PREFIX}{new.replace('.', '__')}".lower(), str(text))
        elif not is_known:  # the library silently ignores unknown sections
            refuse_unknown(key, f"environment {name}")
    source.env_vars = variables
    try:
        return source()
    except SourceError as error:
        raise SettingsError(f"environment: {error}") from None
