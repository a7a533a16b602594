"""The browser."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from webgym_cli.config.section import ConfigSection


class BrowserSettings(ConfigSection):
    """The browser of the episodes."""

    executable: str = ""
    """Path of a Chromium; empty: Playwright's own, else the system's chromium-headless-shell or chromium."""
    args: tuple[str, ...] = ()
    """Additional command-line arguments of Chromium."""
    sandbox: Literal["auto", "on", "off"] = "auto"
    """Chromium's sandbox; `auto`: off for root, for whom it cannot start."""
    action_timeout: float = Field(default=15.0, gt=0)
    """Time limit of one action or observation, in seconds."""
    navigation_timeout: float = Field(default=30.0, gt=0)
    """Time limit of one page load, in seconds."""
    width: int = Field(default=1280, ge=64, le=8192)
    """Viewport width of web pages, in CSS pixels (MiniWoB pages have their own)."""
    height: int = Field(default=768, ge=64, le=8192)
    """Viewport height of web pages, in CSS pixels."""
    max_idle_wait: float = Field(default=3.0, ge=0, le=60)
    """Maximum wait of an observation for a page that is still loading or moving, in seconds."""
    dialogs: Literal["accept", "policy"] = "accept"
    """Handling of a page's dialogs (alert, confirm, prompt, "leave page?"). `accept`: accepted at once, except that the
    first attempt to leave a page with unsaved changes is cancelled; `policy`: open until the policy accepts or
    dismisses them (prompt versions `full`, `full_vanilla`, `computer_use`, `ui_tars`; environments `web`, `sites`)."""
    screenshots: bool = True
    """`webarena`: take a screenshot of every page, for judges and reports; it is not part of the policy's prompt."""
    record_har: bool = False
    """`web`, `sites`, `webarena`: record the requests of each episode in `RUN/har`, for scorers of requests: addresses,
    forms and answers of the sites, without cookies and logins of the headers."""
    processes: int = Field(default=1, ge=1, le=8)
    """Number of Chromium processes that share the episodes; a second one pays off from several dozen concurrent
    episodes."""
    memory_reserve_mb: int = Field(default=1024, ge=0)
    """Minimum free memory for starting an episode, in MB."""
    cdp_urls: tuple[str, ...] = ()
    """CDP addresses (http:// or ws://) of remote browsers that replace the local ones."""
    http_credentials: dict[str, str] = Field(default_factory=dict)
    """Environment variables with `user:password` for HTTP authentication, by `host` or `host:port` of a task's start
    page: `{"wiki.example": "WIKI_LOGIN"}`. They are sent to that page's origin only and never stored."""
    auth_folder: str = ""
    """Folder of the stored logins of `sites`, which grant access to anyone who can read them; empty: `logins` in
    webgym's own folder (`WEBGYM_HOME`). Runs with the same folder take turns on the sites."""
    private_hosts: tuple[str, ...] = ()
    """Private addresses (`10.1.2.3`, `10.0.0.0/8`) or host names that pages may reach, besides those of `sites`."""
