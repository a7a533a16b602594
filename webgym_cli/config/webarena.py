"""Settings of WebArena's sites: addresses, logins and the isolation of episodes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from webgym_cli.config.section import ConfigSection
from webgym_cli.records.webarena import WebArenaSite, is_address

Isolation = Literal["parallel", "serial", "reset"]


class SiteSettings(ConfigSection):
    """A site without accounts."""

    url: str = ""
    """Address of the site, like `http://host:7770`, possibly a private one; empty: the site is not available."""
    isolation: Isolation = "serial"
    """Isolation of episodes. `parallel`: any number at once, for sites without relevant state; `serial`: one at a time,
    on the state that earlier ones left; `reset`: one at a time, each after a reset."""
    reset: str = ""
    """Reset of the site: an http(s) address that receives a POST request, or a command line. A command runs without a
    shell, and its background processes are ended with it. A reset is complete when the site responds again."""

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, url: str) -> str:
        if url and not is_address(url):
            raise ValueError(f"{url!r} is no http(s) address")
        # Appended paths begin with a slash.
        return url.rstrip("/")

    @model_validator(mode="after")
    def _can_be_reset(self) -> SiteSettings:
        if self.isolation == "reset" and not self.reset.strip():
            raise ValueError('isolation "reset" needs reset, a command or an address')
        return self


class AccountSite(SiteSettings):
    """A site with an account. Page elements are located by `label=`, `name=`, `button=` or `text=` and a text, or by a
    CSS selector."""

    account: str = ""
    """Account name of the login; empty: no login."""
    password_env_var: str = ""
    """Name of the environment variable that holds the password; passwords are never stored in settings."""
    login_page: str = ""
    """Path of the page with the login form, relative to `url`."""
    account_field: str = ""
    """Locator of the account name field."""
    password_field: str = "input[type=password]"
    """Locator of the password field."""
    submit: str = ""
    """Locator of the submit button; empty: Enter is pressed in the password field."""
    proof_page: str = ""
    """Path of a page that requires a login, relative to `url`."""
    proof: str = ""
    """Locator of an element that proves the login on that page; empty: the page does not redirect to the login page and
    has no password field."""


class WebArenaSettings(ConfigSection):
    """WebArena's sites. The defaults for accounts and login forms are those of the published images."""

    shopping: AccountSite = AccountSite(
        account="emma.lopez@gmail.com",
        password_env_var="WEBARENA_SHOPPING_PASSWORD",
        login_page="/customer/account/login/",
        account_field="name=login[username]",
        password_field="name=login[password]",
        proof_page="/customer/account/",
    )
    shopping_admin: AccountSite = AccountSite(
        account="admin",
        password_env_var="WEBARENA_SHOPPING_ADMIN_PASSWORD",
        account_field="name=login[username]",
        password_field="name=login[password]",
        proof="#menu-magento-backend-dashboard",
    )
    reddit: AccountSite = AccountSite(
        account="MarvelsGrantMan136",
        password_env_var="WEBARENA_REDDIT_PASSWORD",
        login_page="/login",
        account_field="label=Username",
        password_field="label=Password",
        proof_page="/submit",
    )
    gitlab: AccountSite = AccountSite(
        account="byteblaze",
        password_env_var="WEBARENA_GITLAB_PASSWORD",
        login_page="/users/sign_in",
        account_field="name=user[login]",
        password_field="name=user[password]",
        proof_page="/-/profile",
    )
    map: SiteSettings = SiteSettings(isolation="parallel")
    wikipedia: SiteSettings = SiteSettings(isolation="parallel")
    homepage: SiteSettings = SiteSettings(isolation="parallel")
    login: Literal["auto", "manual"] = "auto"
    """`auto`: a rollout logs in if a login is missing or has expired on the site; `manual`: a rollout without a login
    is refused, and `webgym login` creates it."""
    login_hours: float = Field(default=12.0, gt=0)
    """Maximum age of a login, in hours."""
    auth_folder: str = ""
    """Folder of the stored logins, which grant access to anyone who can read them; empty: `webarena` in webgym's own
    folder (`WEBGYM_HOME`). Runs with the same folder take turns on the sites."""
    reset_timeout: float = Field(default=600.0, gt=0)
    """Time limit of one reset, in seconds, until the site responds again."""

    def site(self, site: WebArenaSite) -> SiteSettings:
        """Return the settings of a site."""
        settings: SiteSettings = getattr(self, site)
        return settings

    def addresses(self) -> dict[WebArenaSite, str]:
        """Return the address of each site that has one."""
        return {site: url for site in WebArenaSite if (url := self.site(site).url)}

    def password_variables(self) -> tuple[str, ...]:
        """Return the environment variables that hold the passwords of the sites that have an address."""
        known = (self.site(site) for site in self.addresses())
        return tuple(site.password_env_var for site in known if isinstance(site, AccountSite))
