"""Conversion of WebArena's and WebRL's task files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from webgym_cli.config.model import Settings
from webgym_cli.environments.webarena.tasks import read_config
from webgym_cli.errors import UsageError
from webgym_cli.records.webarena import WebArenaSite
from webgym_cli.tasks.convert import convert_records
from webgym_cli.tasks.registry import ConversionResult, TaskFormat


def convert_configurations(path: Path, settings: Settings, sites: Sequence[str]) -> ConversionResult:
    """Return the tasks of WebArena's records; `sites` (`NAME=URL`) override the configured URLs.

    Raises `UsageError` for an invalid URL, and as `convert_webarena`.
    """
    known = {site: settings.sites[site].url for site in WebArenaSite if site in settings.sites}
    return convert_webarena(path, {**known, **_read_addresses(sites)})


def convert_webarena(path: Path, sites: Mapping[WebArenaSite, str]) -> ConversionResult:
    """Return the tasks of a file or folder of files, also of webarena-verified. Raises `UsageError`."""
    return convert_records(path, lambda value, _: read_config(value, sites))


def _read_addresses(given: Sequence[str]) -> dict[WebArenaSite, str]:
    addresses: dict[WebArenaSite, str] = {}
    for text in given:
        name, _, url = text.partition("=")
        if name not in list(WebArenaSite) or not url.startswith(("http://", "https://")):
            hint = f"--site shopping=http://host:7770; there are: {', '.join(WebArenaSite)}"
            raise UsageError(f"--site: {text!r} is no site with its address", hint=hint)
        addresses[WebArenaSite(name)] = url
    return addresses


WEBARENA = TaskFormat(convert_configurations)
