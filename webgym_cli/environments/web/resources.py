"""What the environments of the open web share: the host's browsers behind one egress proxy."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Self

from webgym_cli.agent.actions.action_sets import ACTION_SETS
from webgym_cli.config.model import Settings
from webgym_cli.environments.browser.observe import observe_script, read_script
from webgym_cli.environments.browser.options import SessionOptions, read_credentials
from webgym_cli.environments.browser.pool import BrowserPool
from webgym_cli.environments.sites.accounts import make_gate
from webgym_cli.environments.sites.site_scheduler import SiteScheduler
from webgym_cli.records.action import InteractionMode
from webgym_cli.records.trajectory import PromptVersion

# Scroll distance for text observations, as a fraction of the viewport, as in WebRL.
_SCROLLED_AS_TEXT = 2 / 3


class WebResources:
    """The host's browsers behind one egress proxy, and how pages are shown in them."""

    def __init__(self, settings: Settings, mode: InteractionMode | None = None, *, as_text: bool = False) -> None:
        """`mode`: default that of the settings."""
        browser = settings.browser
        self.mode = mode or settings.context_config.interaction_mode
        observes = ACTION_SETS.find(str(settings.context_config.prompt_version)).observes
        self.as_text = as_text or observes == "text"
        """Whether pages are shown as text."""
        self.has_tree = settings.context_config.observation == "tree"
        """Whether the policy gets the page as an accessibility tree, too."""
        self.released = settings.context_config.prompt_version is PromptVersion.WEBRL_RELEASED
        self.screenshots = browser.screenshots or not self.as_text
        self.max_idle_wait = browser.max_idle_wait
        self.gate = make_gate(settings)
        self.options = SessionOptions.of(
            browser,
            episode_timeout=settings.rollout.episode_timeout,
            context_arguments={"ignore_https_errors": bool(self.gate.unchecked)},
            wait_until="commit",
            watch_traffic=True,
            keep_dialogs=browser.dialogs == "policy",
            scroll_share=_SCROLLED_AS_TEXT if self.as_text else None,
            init_scripts=(read_script("stand_ins"),),
            isolated_script=observe_script(as_text=self.as_text or self.has_tree),
        )
        self.credentials = read_credentials(browser.http_credentials)
        """User and password by host, for HTTP authentication."""
        self.desk = SiteScheduler(settings, lambda: self.browsers, self.gate)
        self.settings = settings
        self.browsers = BrowserPool(browser)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await self._start(stack)
            self._resources = stack.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop the browser, wait until it is gone, and stop the egress proxy."""
        await self._resources.aclose()

    async def _start(self, stack: AsyncExitStack) -> None:
        """Start the shared resources; the stack closes them in reverse order."""
        await stack.enter_async_context(self.gate)
        # A remote browser is started without it: its own network must block private addresses.
        self.browsers = await stack.enter_async_context(BrowserPool(self.settings.browser, self.gate.address))
