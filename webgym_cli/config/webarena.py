"""Settings of WebArena's sites: where they are, who logs in there and how, what keeps their episodes apart."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from webgym_cli.config.section import ConfigSection
from webgym_cli.records.webarena import WebArenaSite, is_address

Isolation = Literal["parallel", "serial", "reset"]


class SiteSettings(ConfigSection):
    """A site that nobody logs in to."""

    url: str = ""
    """Its address, like `http://host:7770`; empty: there is no such site here. It may be a private one."""
    isolation: Isolation = "serial"
    """`parallel`: any number of episodes at once, for the site keeps nothing that matters; `serial`: one at a time,
    which finds what those before it left; `reset`: one at a time, each after a reset."""
    reset: str = ""
    """What sets the site back: an http(s) address that is sent a POST, or a command line. A command runs without a
    shell, and what it leaves in the background ends with it. The reset is done when the site answers again."""

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, url: str) -> str:
        if url and not is_address(url):
            raise ValueError(f"{url!r} is no http(s) address")
        # Paths are appended with their slash.
        return url.rstrip("/")

    @model_validator(mode="after")
    def _can_be_reset(self) -> SiteSettings:
        if self.isolation == "reset" and not self.reset.strip():
            raise ValueError('isolation "reset" needs reset, a command or an address')
        return self


class AccountSite(SiteSettings):
    """A site with an account. Where something is on a page is told by `label=`, `name=`, `button=` or `text=` and the
    words there, else by a CSS selector."""

    account: str = ""
    """The name that logs in; empty: nobody does."""
    password_env_var: str = ""
    """Name of the environment variable that holds the password; the password itself never stands in settings."""
    login_page: str = ""
    """The page with the login form: what follows `url`."""
    account_field: str = ""
    """Where the account's name is typed."""
    password_field: str = "input[type=password]"
    """Where the password is typed."""
    submit: str = ""
    """What is clicked then; empty: Enter is pressed in the field of the password."""
    proof_page: str = ""
    """A page that only shows itself to who is logged in: what follows `url`."""
    proof: str = ""
    """What that page holds then; empty: it does not lead to the login page, and shows no field for a password."""


class WebArenaSettings(ConfigSection):
    """WebArena's sites. The accounts and the login forms are those of the published images."""

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
    """`auto`: a rollout logs in where a login is missing or the site does not know it any more; `manual`: it refuses to
    start without, and `webgym login` is what makes it."""
    login_hours: float = Field(default=12.0, gt=0)
    """A login that is older counts as expired."""
    auth_folder: str = ""
    """Where the logins are kept, which let anyone in who can read them; empty: `webarena` in webgym's own folder
    (`WEBGYM_HOME`). Runs with the same folder take turns on the sites."""
    reset_timeout: float = Field(default=600.0, gt=0)
    """Deadline of one reset, in seconds, until the site answers again."""

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
