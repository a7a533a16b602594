"""The browser."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from webgym_cli.config.section import ConfigSection


class BrowserSettings(ConfigSection):
    """The browser that episodes run in."""

    executable: str = ""
    """Path of a Chromium; empty: Playwright's own, else chromium-headless-shell or chromium on this machine."""
    args: tuple[str, ...] = ()
    """More command-line arguments for Chromium."""
    sandbox: Literal["auto", "on", "off"] = "auto"
    """Chromium's sandbox; `auto`: off for root, where it can't start."""
    webgl: Literal["auto", "on", "off"] = "auto"
    """WebGL, drawn by the CPU; `auto`: off for MiniWoB, whose pages use none. Off takes some 30 MB less a process."""
    device_scale_factor: float = Field(default=1.0, gt=0, le=4)
    """Screenshot pixels per CSS pixel."""
    action_timeout: float = Field(default=15.0, gt=0)
    """Deadline of one action or observation, in seconds."""
    navigation_timeout: float = Field(default=30.0, gt=0)
    """Deadline of one page load, in seconds."""
    width: int = Field(default=1280, ge=64, le=8192)
    """Width of the viewport of web pages in CSS pixels (MiniWoB pages have their own)."""
    height: int = Field(default=768, ge=64, le=8192)
    """Height of the viewport of web pages in CSS pixels."""
    max_idle_wait: float = Field(default=3.0, ge=0, le=60)
    """How long an observation waits at most for a page that still loads or moves."""
    screenshots: bool = True
    """`webarena`: take a picture of every page, for judges and reports; the policy is never sent it."""
    processes: int = Field(default=1, ge=1, le=8)
    """Chromium processes that share the episodes; two help from some dozens of episodes on."""
    contexts_per_process: int = Field(default=400, ge=1)
    """A Chromium process is replaced after so many browser contexts."""
    process_minutes: float = Field(default=120.0, gt=0)
    """A Chromium process takes no new episode after so long, and is replaced."""
    context_minutes: float = Field(default=60.0, gt=0)
    """Hard cap on a browser context's life: then it is closed, whatever its episode does."""
    memory_reserve_mb: int = Field(default=1024, ge=0)
    """No further episode starts while the machine has less free memory than this."""
    cdp_urls: tuple[str, ...] = ()
    """Remote browsers by their CDP addresses (http:// or ws://) in place of local ones."""
    private_hosts: tuple[str, ...] = ()
    """Private addresses (`10.1.2.3`, `10.0.0.0/8`) or host names that pages may reach all the same."""
