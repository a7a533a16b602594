"""Settings of sites: addresses, accounts by role, logins, and the isolation of episodes."""

from __future__ import annotations

import re
import shlex
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from webgym_cli.config.section import ConfigSection
from webgym_cli.util.urls import is_address

Isolation = Literal["parallel", "serial", "reset", "tenant"]
# Names of sites and of roles are parts of dotted keys and of file names.
_NAME = re.compile(r"^[A-Za-z0-9_-]+$")
# Placeholders of `reset`.
_PLACEHOLDERS = ("{episode}", "{seed}", "{role}")
# Role of a login that is named after its site alone; WebArena's sites have one account each.
DEFAULT_ROLE = "user"


class SiteAccount(ConfigSection):
    """An account of a site: a name with a password, or a stored login."""

    account: str = ""
    """Account name of the login."""
    password_env_var: str = ""
    """Name of the environment variable that holds the password; passwords are never stored in settings."""
    storage_state: str = ""
    """File with Playwright's storage state of a login, for sites without a form that webgym can fill in."""

    @model_validator(mode="after")
    def _can_log_in(self) -> SiteAccount:
        if not self.storage_state and not self.account:
            raise ValueError("a role needs account and password_env_var, or storage_state")
        if self.account and not self.storage_state and not self.password_env_var:
            raise ValueError(f"no variable holds the password of {self.account}: set password_env_var")
        return self


class SiteSettings(ConfigSection):
    """A site. Page elements are located by `label=`, `name=`, `button=` or `text=` and a text, or by a CSS selector."""

    url: str = ""
    """Address of the site, like `http://host:7770`, possibly a private one; empty: the site is not available."""
    isolation: Isolation = "serial"
    """Isolation of episodes. `parallel`: any number at once, for sites without relevant state; `serial`: one at a time,
    on the state that earlier ones left; `reset`: one at a time, each after a reset; `tenant`: any number at once, each
    in its own copy or tenant, which `reset`, or a set-up function, makes."""
    reset: str = ""
    """Reset of the site: an http(s) address that receives a POST request, or a command line. A command runs without a
    shell, and its background processes are ended with it. `{episode}`, `{seed}` and `{role}` are replaced by the id of
    the episode (unique within the run), its seed and its task's role. It may answer, as the response or as the last
    line of its output, with JSON of `start_url`, `cookies`, `storage_state` and `state`. A reset is complete when the
    site responds again."""
    reset_timeout: float = Field(default=600.0, gt=0)
    """Time limit of one reset, in seconds, until the site responds again."""
    accounts: dict[str, SiteAccount] = Field(default_factory=dict)
    """Accounts by role: the `role` of a task starts its episodes logged in."""
    login_page: str = ""
    """Path of the page with the login form, relative to `url`."""
    account_field: str = ""
    """Locator of the account name field; empty: the form asks for a password alone."""
    password_field: str = "input[type=password]"
    """Locator of the password field."""
    submit: str = ""
    """Locator of the submit button; empty: Enter is pressed in the password field."""
    proof_page: str = ""
    """Path of a page that requires a login, relative to `url`."""
    proof: str = ""
    """Locator of an element that proves the login on that page; empty: the page does not redirect to the login page and
    has no password field."""
    login: Literal["auto", "manual"] = "auto"
    """`auto`: a rollout logs in if a login is missing or has expired on the site; `manual`: a rollout without a login
    is refused, and `webgym login` creates it."""
    login_hours: float = Field(default=12.0, gt=0)
    """Maximum age of a login, in hours."""
    ignore_https_errors: bool = False
    """Accept any certificate of the site's host, such as a self-signed one. Those of other hosts are checked."""

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, url: str) -> str:
        if url and not is_address(url):
            raise ValueError(f"{url!r} is no http(s) address")
        if "?" in url or "#" in url:
            raise ValueError(f"{url!r}: paths are appended to it, so it has no ? and no #")
        # Appended paths begin with a slash.
        return url.rstrip("/")

    @field_validator("reset")
    @classmethod
    def _has_known_placeholders(cls, reset: str) -> str:
        if not is_address(reset.strip()):
            shlex.split(reset)  # ValueError: an unclosed quotation mark
        # Left as it is, `{episodes}` would be one tenant for all episodes. `${NAME}` and `{{.ID}}` are a command's own.
        written = re.findall(r"(?<![{$])\{[a-z_]+\}(?!\})", reset)
        if unknown := [name for name in written if name not in _PLACEHOLDERS]:
            raise ValueError(f"{unknown[0]} is no placeholder; there are: {', '.join(_PLACEHOLDERS)}")
        return reset

    @field_validator("login_page", "proof_page")
    @classmethod
    def _is_a_path(cls, page: str) -> str:
        # Appended to `http://localhost`, `@elsewhere.example` or `.elsewhere.example` would be another host.
        return page if not page or page.startswith(("/", "?", "#")) else f"/{page}"

    @model_validator(mode="after")
    def _can_be_reset(self) -> SiteSettings:
        if self.isolation == "reset" and not self.reset.strip():
            raise ValueError('isolation "reset" needs reset, a command or an address')
        return self

    def accepts_any_certificate(self, url: str) -> bool:
        """Whether the certificate of an address is not checked."""
        return self.ignore_https_errors and urlsplit(url).hostname == urlsplit(self.url).hostname

    @property
    def is_reset(self) -> bool:
        """Whether each episode starts after a reset."""
        return self.isolation in ("reset", "tenant") and bool(self.reset.strip())

    @property
    def is_shared(self) -> bool:
        """Whether any number of episodes may use it at once."""
        return self.isolation in ("parallel", "tenant")


def list_site_keys(key: str) -> list[str]:
    """Return the keys of settings that may be meant by a key below `sites`: those of its site, and of its role."""
    site, *rest = key.split(".")[1:]
    if not all(_NAME.fullmatch(part) for part in (site, *rest)):
        return []
    known = [f"sites.{site}", *(f"sites.{site}.{name}" for name in SiteSettings.model_fields)]
    if rest[:1] == ["accounts"] and len(rest) > 1:
        account = f"sites.{site}.accounts.{rest[1]}"
        known += [account, *(f"{account}.{name}" for name in SiteAccount.model_fields)]
    return known
