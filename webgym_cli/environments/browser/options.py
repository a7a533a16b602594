"""Options of a browser context."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from webgym_cli.config.browser import BrowserSettings
from webgym_cli.errors import SettingsError
from webgym_cli.util.secrets import read_secret

# Settings with an option of the same name.
_SETTINGS = ("width", "height", "action_timeout", "navigation_timeout")
# Lifetime of a context in seconds, unless that of episodes asks for more.
_SHORTEST_LIFE = 3600.0


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """Options of one browser context."""

    width: int
    """Width of the viewport in CSS pixels."""
    height: int
    """Height of the viewport in CSS pixels."""
    action_timeout: float = 15.0
    """Deadline of everything but a page load, in seconds."""
    navigation_timeout: float = 30.0
    """Deadline of a page load, in seconds."""
    life_seconds: float = _SHORTEST_LIFE
    """Maximum lifetime of the context in seconds; it is then closed even if it is in use."""
    wait_until: Literal["load", "commit"] = "load"
    """A page load ends with the `load` event, or once the answer begins: some pages never finish loading."""
    watch_traffic: bool = False
    """Follow navigations and requests, so that an observation can wait for what an action set off."""
    scroll_share: float | None = None
    """Default scroll distance as a fraction of the viewport; None: one viewport less a small overlap."""
    keep_dialogs: bool = False
    """Leave dialogs open until an action answers them, instead of accepting them at once."""
    upload_folder: Path | None = None
    """The only folder whose files can be given to pages."""
    init_scripts: tuple[str, ...] = ()
    """Scripts that run in every document before its own."""
    isolated_script: str = ""
    """Script that runs in an isolated world of each document, as all calls then do; empty: in the page's own world."""
    context_arguments: dict[str, Any] = field(default_factory=dict)
    """More arguments for Playwright's `new_context`."""

    @classmethod
    def of(cls, browser: BrowserSettings, *, episode_timeout: float = 0.0, **options: Any) -> SessionOptions:
        """Return the options from the settings, overridden by `options`; `context_arguments` extend the defaults.

        `episode_timeout`: time limit of an episode in seconds; within half of its life a context takes another one.
        """
        known = {name: getattr(browser, name) for name in _SETTINGS}
        known["life_seconds"] = max(_SHORTEST_LIFE, 2 * episode_timeout)
        arguments = {"locale": "en-US", "accept_downloads": False, **options.pop("context_arguments", {})}
        return cls(**known | options, context_arguments=arguments)

    def authenticate(self, url: str, credentials: Mapping[str, tuple[str, str]]) -> SessionOptions:
        """Return the options with the user and password of an address, which are sent to its origin only."""
        address = urlsplit(url)
        for host in (address.netloc.lower(), address.hostname or ""):  # one with a port is more specific
            if login := credentials.get(host):
                given = {"origin": f"{address.scheme}://{address.netloc}", "username": login[0], "password": login[1]}
                return replace(self, context_arguments=self.context_arguments | {"http_credentials": given})
        return self


def read_credentials(variables: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return user and password by host from the named environment variables. Raises `SettingsError`."""
    credentials = {}
    for host, name in variables.items():
        user, colon, password = read_secret(name).partition(":")
        if not colon:
            raise SettingsError(
                f"browser.http_credentials: {host}: the environment variable {name} holds no user:password",
                hint=f"export {name}=USER:PASSWORD",
            )
        credentials[host.lower()] = (user, password)
    return credentials
