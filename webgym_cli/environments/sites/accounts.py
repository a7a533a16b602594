"""Sites and their accounts in the settings, logins by name, and their stored states.

These are Playwright's storage states, one file per login, readable by their owner only.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from webgym_cli.config.model import Settings
from webgym_cli.config.sites import DEFAULT_ROLE, SiteAccount, SiteSettings
from webgym_cli.environments.browser.address_rules import AddressRules
from webgym_cli.environments.browser.egress_proxy import EgressProxy
from webgym_cli.environments.fixture_hosts import SITE_HOSTS
from webgym_cli.errors import SettingsError, StoreError, UsageError
from webgym_cli.records.task import Task
from webgym_cli.records.webarena import WebArenaSite
from webgym_cli.util.files import read_json, write_atomic
from webgym_cli.util.optional import when
from webgym_cli.util.secrets import read_secret
from webgym_cli.venvs.locate import role_home


class Login(str):
    """Name of a login to a site in a role: `SITE@ROLE`, or `SITE` for the role `user`."""

    __slots__ = ()

    @classmethod
    def of(cls, site: str, role: str) -> Login:
        """Return the name of a role's login."""
        return cls(site if role == DEFAULT_ROLE else f"{site}@{role}")

    @property
    def site(self) -> str:
        """The site's name."""
        return self.partition("@")[0]

    @property
    def role(self) -> str:
        """The account's role."""
        return self.partition("@")[2] or DEFAULT_ROLE

    @property
    def site_key(self) -> str:
        """The site's key in the settings."""
        return f"sites.{self.site}"

    @property
    def account_key(self) -> str:
        """The account's key in the settings."""
        return f"{self.site_key}.accounts.{self.role}"

    @property
    def command(self) -> str:
        """The command that logs in."""
        return f"webgym login {self.replace('@', ' --role ')}"


def make_rules(settings: Settings) -> AddressRules:
    """Return the address rules of the settings; the hosts of the sites may be reached although they are private."""
    hosts = (urlsplit(site.url).hostname for site in settings.sites.values())
    return AddressRules.of(settings.browser.private_hosts).with_names(filter(None, hosts))


def make_gate(settings: Settings) -> EgressProxy:
    """Return the proxy of the settings, not yet started.

    Raises `SettingsError` for a site with any certificate, if those of other hosts could not be checked.
    """
    unchecked = {urlsplit(site.url).hostname or "" for site in settings.sites.values() if site.ignore_https_errors}
    if unchecked and settings.browser.cdp_urls:
        raise SettingsError(
            "sites: ignore_https_errors: a remote browser would accept the certificates of all hosts",
            hint="unset browser.cdp_urls, or give the remote browser's machine the site's certificate",
        )
    return EgressProxy(make_rules(settings), unchecked)


def explain_unreachable(key: str, reason: str) -> str:
    """Return what to do about a site, named by its key in the settings, that can't be opened."""
    if " is a private address" in reason:  # as of a sign-on on another host
        return f"-s 'browser.private_hosts=[\"{reason.split()[0]}\"]', if its pages may be reached"
    if "CERT" in reason.upper():
        return f"trust its certificate on this machine, or -s {key}.ignore_https_errors=true"
    return f"start the site, or fix {key}.url"


def find_site(settings: Settings, name: str, whose: str = "") -> SiteSettings:
    """Return the settings of a site with an address. Raises `SettingsError`. `whose`: start of its message."""
    known = settings.sites.get(name)
    if known is None or not known.url:
        preset = when(known is None and name in list(WebArenaSite), "-c webarena ")
        raise SettingsError(
            f"{whose}sites.{name}.url is empty: where is the site {name}?",
            hint=f"{preset}-s sites.{name}.url=http://HOST:PORT",
        )
    return known


def find_account(settings: Settings, login: Login) -> tuple[SiteSettings, SiteAccount]:
    """Return the settings of a login's site and of its account. Raises `UsageError` without them."""
    known = find_site(settings, login.site)
    if login.role not in known.accounts:
        there = f"its roles are {', '.join(known.accounts)}" if known.accounts else "it has no accounts"
        raise UsageError(
            f"{login.site_key}.accounts: nobody logs in as {login.role}: {there}",
            hint=f"-s {login.account_key}.account=NAME -s {login.account_key}.password_env_var=NAME",
        )
    return known, known.accounts[login.role]


def describe_renewal(login: Login, account: SiteAccount) -> str:
    """Return what a user does to make a login valid: run a command, or save it anew."""
    given = account.storage_state
    return f"save Playwright's storage state of a login in {given}" if given else login.command


def read_password(login: Login, known: SiteAccount) -> str:
    """Return an account's password. Raises `UsageError` if its variable is not set."""
    name = known.password_env_var
    if not (secret := read_secret(name)):
        raise UsageError(
            f"{login.account_key}.password_env_var: the variable {name} is not set: "
            f"{login} needs the password of {known.account}",
            hint=f"export {name}=...",
        )
    return secret


_END = "_state.json"
_NO_STATE = (
    "no storage state of Playwright: its cookies have name, value, domain, path, and sameSite (Strict, Lax, None)"
)
_COOKIE = ("name", "value", "domain", "path")
_SAME_SITE = ("Strict", "Lax", "None")
_PRIVATE = 0o600


@dataclass(frozen=True, slots=True)
class LoginStore:
    """Logins in one folder."""

    folder: Path
    sites: Mapping[str, SiteSettings]
    """Settings of the sites by name."""

    @classmethod
    def of(cls, settings: Settings) -> LoginStore:
        """Return the store of the settings."""
        named = settings.browser.auth_folder
        folder = Path(named).expanduser().absolute() if named else role_home() / "logins"
        return cls(folder, settings.sites)

    def path(self, logins: Sequence[str]) -> Path:
        """Return the file of one login, or of several merged ones."""
        given = self._given(Login(logins[0])) if len(logins) == 1 else ""
        return Path(given).expanduser().absolute() if given else self.folder / f"{'.'.join(logins)}{_END}"

    def fault(self, login: str) -> str:
        """Return the problem of a login according to its file: `missing`, `expired`, or of another form; else empty."""
        path = self.path((login,))
        if not path.is_file():
            return "missing"
        try:
            state = read_json(path)
        except StoreError:
            return _NO_STATE
        cookies = state.get("cookies") if isinstance(state, dict) else None
        if not isinstance(cookies, list) or not all(map(_is_cookie, cookies)):
            return _NO_STATE
        age, known = time.time() - path.stat().st_mtime, self.sites.get(Login(login).site, SiteSettings())
        is_old = age > known.login_hours * 3600 and not self._given(Login(login))
        return when(is_old, f"expired ({age / 3600:.1f} hours old)")

    def _given(self, login: Login) -> str:
        """Return the file of a login that the settings name, which webgym only reads; else empty."""
        account = self.sites.get(login.site, SiteSettings()).accounts.get(login.role)
        return account.storage_state if account else ""

    def save(self, login: str, state: dict[str, Any]) -> None:
        """Store a login. Raises `StoreError`."""
        self._write(self.path((login,)), state)

    def join(self, logins: Sequence[str]) -> Path:
        """Return the file with these merged logins, updated if it is older than one of them.

        Raises `StoreError` if one can't be read, `UsageError` if two logins conflict.
        """
        path, parts = self.path(logins), [self.path((login,)) for login in logins]
        if len(logins) > 1 and not _is_newest(path, parts):
            self._write(path, _merge(dict(zip(logins, map(read_json, parts), strict=True))))
        return path

    @staticmethod
    def _write(path: Path, state: dict[str, Any]) -> None:
        write_atomic(path, json.dumps(state, indent=2, ensure_ascii=False) + "\n", mode=_PRIVATE)


def task_sites(task: Task) -> tuple[str, ...]:
    """Return the sites of a task, in the locking order: its `site`, or those of a WebArena task."""
    if task.site:
        return (task.site,)
    if task.environment != "webarena" or is_fixture(task):
        return ()
    return sort_sites(map(str, task.extra.get("sites") or ()))


def login_sites(task: Task) -> tuple[Login, ...]:
    """Return the logins with which a task starts: of its `role`, or of a WebArena task's `storage_state`.

    Raises `UsageError` for a state that is not named after sites, and for a role without a site.
    """
    if task.site and task.role:
        return (Login.of(task.site, task.role),)
    if task.role:
        raise UsageError(f"task {task.id}: role: {task.role!r} is the role of an account, and the task has no site")
    is_known = task.environment == "webarena" and not is_fixture(task)
    state = task.extra.get("storage_state") if is_known else None
    if not state:
        return ()
    name = Path(str(state)).name
    if not name.endswith(_END):
        raise UsageError(f"task {task.id}: storage_state: {name!r} is not named like shopping{_END}")
    return tuple(map(Login, name.removesuffix(_END).split(".")))


def sort_sites(sites: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct sites in the global locking order."""
    return tuple(sorted(set(sites)))


def is_fixture(task: Task) -> bool:
    """Whether a WebArena task starts on the fixture sites, which the running process serves."""
    starts = task.extra.get("start_urls") or [task.start_url]
    return task.environment == "webarena" and all(urlsplit(str(url)).hostname in SITE_HOSTS for url in starts)


def _is_cookie(cookie: object) -> bool:
    if not isinstance(cookie, dict) or cookie.get("sameSite", "Lax") not in _SAME_SITE:
        return False
    return all(isinstance(cookie.get(name), str) for name in _COOKIE)


def _is_newest(path: Path, parts: Iterable[Path]) -> bool:
    if not path.is_file():
        return False
    written_at = path.stat().st_mtime_ns
    return all(part.is_file() and part.stat().st_mtime_ns < written_at for part in parts)


def _merge(states: dict[str, Any]) -> dict[str, Any]:
    """Return the merged logins. Raises `UsageError` if two sites of one host use a cookie with the same name."""
    cookies: dict[tuple[str, str, str], tuple[str, Any]] = {}
    origins: dict[str, Any] = {}
    for site, state in states.items():
        for cookie in state.get("cookies", ()):
            key = (cookie["name"], cookie["domain"], cookie["path"])
            other, known = cookies.setdefault(key, (site, cookie))
            if known["value"] != cookie["value"]:
                raise UsageError(
                    f"{other} and {site} keep their logins in the same cookie {key[0]!r} of the host {key[1]}",
                    hint=f"give them different host names: {Login(other).site_key}.url and {Login(site).site_key}.url",
                )
        origins |= {origin["origin"]: origin for origin in state.get("origins", ())}
    return {"cookies": [cookie for _, cookie in cookies.values()], "origins": list(origins.values())}
