"""Script evaluation and screenshots of one page over its CDP session."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from webgym_cli.environments.browser.cdp import CDPConnection, CDPSender, CDPSession
from webgym_cli.environments.browser.failures import has_sign
from webgym_cli.environments.browser.page_activity import DOMAINS, EVENTS, PageActivity
from webgym_cli.environments.browser.worlds import IsolatedWorlds
from webgym_cli.jobs.workers import race

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Page

# Parameters of a screenshot. Fast compression saves 6 ms of CPU time for 1280x768 pixels, a seventh of a step; files of
# nine pages were 1.4 to 3 times as large.
SCREENSHOT = {"format": "png", "optimizeForSpeed": True}
# Chrome's messages if there is nothing to draw at the moment, between two documents.
_NOT_NOW = ("unable to capture screenshot", "not attached to an active page")
_PAUSE = 0.05
# Seconds for a picture to come after its document was replaced: mostly it does.
_LAST_CHANCE = 0.3


@dataclass(frozen=True, slots=True)
class PageConnection:
    """Connection to one page. Its methods raise the errors of the CDP session and have no deadline."""

    channel: CDPSender
    traffic: PageActivity
    context: str
    """Chrome's id of the page's context."""
    worlds: IsolatedWorlds
    """Where our scripts run."""

    @property
    def is_open(self) -> bool:
        """Whether the page is open, by the events received so far."""
        return not isinstance(self.channel, CDPSession) or self.channel.is_open

    async def capture_screenshot(self) -> bytes:
        """Return the viewport as PNG bytes.

        A document that is replaced may take the picture's request with it: then the next one is asked.
        """
        while True:

            def is_replaced(before: int = self.traffic.documents) -> bool:
                return self.traffic.documents > before

            drawing = self.channel.send("Page.captureScreenshot", SCREENSHOT)
            try:
                async with race(drawing, self.traffic.until(is_replaced)) as (drawn, _):
                    if drawn.done() or (await asyncio.wait((drawn,), timeout=_LAST_CHANCE))[0]:
                        return base64.b64decode(drawn.result()["data"])
            except Exception as error:
                if not has_sign(error, _NOT_NOW) or not self.is_open:
                    raise
                await asyncio.sleep(_PAUSE)

    async def stop_loading(self) -> None:
        """Cancel the pending navigation. Between two documents there is none that could be."""
        try:
            await self.channel.send("Page.stopLoading")
        except Exception as error:  # a page that never stays is mostly in between
            if not has_sign(error, _NOT_NOW) or not self.is_open:
                raise
        self.traffic.stop()


async def connect_page(
    context: BrowserContext, page: Page, direct: CDPConnection | None, script: str, *, watch: bool
) -> PageConnection:
    """Return the connection to a page: direct where there is one to its browser, else through the driver.

    `script` runs in its isolated worlds. `watch` follows its traffic. Raises `CDPError`, or Playwright's own error.
    """
    session = await context.new_cdp_session(page)
    about = (await session.send("Target.getTargetInfo"))["targetInfo"]
    traffic = PageActivity(about["targetId"])
    channel: CDPSender = session
    if direct is not None:
        await session.detach()
        channel = await direct.attach(about["targetId"], traffic)
    else:
        for event in EVENTS:
            session.on(event, partial(traffic.note, event))
    for domain in DOMAINS if watch else ():
        await channel.send(f"{domain}.enable")
    worlds = IsolatedWorlds(channel, about["targetId"], script, direct, traffic)
    return PageConnection(channel, traffic, about.get("browserContextId", ""), worlds)
