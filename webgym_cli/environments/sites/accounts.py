"""Sites and their accounts in the settings, and the names of logins."""

from __future__ import annotations

from urllib.parse import urlsplit

from webgym_cli.config.model import Settings
from webgym_cli.config.sites import DEFAULT_ROLE, SiteAccount, SiteSettings
from webgym_cli.errors import SettingsError, UsageError
from webgym_cli.records.webarena import WebArenaSite
from webgym_cli.util.optional import when
from webgym_cli.util.secrets import read_secret


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


def list_site_hosts(settings: Settings) -> tuple[str, ...]:
    """Return the hosts of the sites, which may be reached although they are private."""
    hosts = (urlsplit(site.url).hostname for site in settings.sites.values())
    return tuple(dict.fromkeys(host for host in hosts if host))


def list_unchecked_hosts(settings: Settings) -> set[str]:
    """Return the hosts whose certificates are not checked. Raises `SettingsError` if others could not be checked."""
    unchecked = {urlsplit(site.url).hostname or "" for site in settings.sites.values() if site.ignore_https_errors}
    if unchecked and settings.browser.cdp_urls:
        raise SettingsError(
            "sites: ignore_https_errors: a remote browser would accept the certificates of all hosts",
            hint="unset browser.cdp_urls, or give the remote browser's machine the site's certificate",
        )
    return unchecked


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
