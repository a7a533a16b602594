"""Keys and the settings: no setting holds one, only the name of a variable that does."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from webgym_cli.config.model import Settings
from webgym_cli.errors import SettingsError
from webgym_cli.util.json_values import as_object, list_leaves
from webgym_cli.util.optional import when
from webgym_cli.util.secrets import (
    add_address_keys,
    find_address_keys,
    find_variables,
    read_secret,
    require_header_value,
)

# Addresses whose `$VARIABLE`s are replaced when they are used.
_EXPANDED = re.compile(r"(^|\.)(\w*base_url|cdp_urls|policy|reset)$")
# Options of programs that we start, and settings of the trainer, that hold a key.
_OPTION = re.compile(r"--[\w-]*(key|token|secret|password)(=.+)?", re.IGNORECASE)
_ENTRY = re.compile(r"(^|_)(hub_token|api_key|secret|password)$", re.IGNORECASE)


def refuse_keys(key: str, value: Any, source: str = "") -> None:
    """Raise `SettingsError` if a setting holds a key or a password. `source`: where its value came from."""
    where = when(source, f"{source}: ")
    if isinstance(value, Mapping):
        for entry, inner in value.items():
            refuse_keys(f"{key}.{entry}", inner, source)
    for text in _list_texts(value):
        if keys := find_address_keys(text):
            place = keys[0][0]
            hint = "leave it out of the address, and set browser.http_credentials where a page asks for it"
            if _EXPANDED.search(key):
                example = "http://USER:$NAME@HOST" if place == "user" else f"http://HOST/?{place}=$NAME"
                hint = f"export NAME=..., then -s '{key}={example}' in single quotes"
            raise SettingsError(f"{where}{key}: an address holds a key ({place}), and settings are stored", hint=hint)
        if option := _OPTION.fullmatch(text):
            raise _refuse(f"{where}{key}: {option[0].partition('=')[0]}")
    for entry, inner in as_object(value).items():
        if _ENTRY.search(str(entry)) and inner:
            raise _refuse(f"{where}{key}.{entry}")


def _refuse(what: str) -> SettingsError:
    hint = "leave it out, and export the variable that the program reads, such as HF_TOKEN or VLLM_API_KEY"
    return SettingsError(f"{what} holds a key, and settings are stored", hint=hint)


def add_settings_secrets(settings: Settings) -> None:
    """Redact from now on the keys that the settings name, or that an older version stored in them."""
    for variable in list_variables(settings):
        if "://" not in os.environ.get(variable, ""):
            read_secret(variable)
    for text in _list_texts(settings.model_dump(mode="json")):
        add_address_keys(text)


def check_secrets(settings: Settings) -> None:
    """Raise `SettingsError` for a variable whose key no HTTP header or form can carry, before anything is started."""
    accounts = chain.from_iterable(site.accounts.values() for site in settings.sites.values())
    typed = {*(known.password_env_var for known in accounts), *settings.browser.http_credentials.values()}
    for variable in list_variables(settings):
        if variable not in typed:
            require_header_value(variable)
        elif any(ord(letter) < 32 for letter in read_secret(variable)):
            raise SettingsError(
                f"environment {variable}: the password holds a control character", hint=f"export {variable} again"
            )


def list_variables(settings: Settings) -> list[str]:
    """Return the names of the environment variables that the settings read keys from."""
    values = settings.model_dump(mode="json")
    named = [text for key, text in _list_entries(values) if key.endswith("_env_var") and text]
    logins = values["browser"]["http_credentials"].values()
    inside = chain.from_iterable(map(find_variables, _list_texts(values)))
    return list(dict.fromkeys([*named, *logins, *inside]))


def _list_entries(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            if value.get("url") != "":  # a site without an address needs no password
                yield from _list_entries(value)
        elif isinstance(value, str):
            yield key, value


def _list_texts(value: Any) -> Iterator[str]:
    return (leaf for leaf in list_leaves(value) if isinstance(leaf, str))
