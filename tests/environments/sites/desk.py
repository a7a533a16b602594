"""A scheduler of sites whose episodes have no values, and the logins of their sites' default role."""

import asyncio

import pytest

from webgym_cli.environments.browser.address_rules import AddressRules
from webgym_cli.environments.browser.egress_proxy import EgressProxy
from webgym_cli.environments.sites.accounts import Login
from webgym_cli.environments.sites.site_scheduler import SiteScheduler


class Desk(SiteScheduler):
    def __init__(self, settings, browsers=lambda: None):
        super().__init__(settings, browsers, EgressProxy(AddressRules()))

    def reserve(self, sites, logins=None, values=None):
        given = [*map(Login, sorted(sites))] if logins is None else logins
        return super().reserve(sites, given, values or {"episode": "", "seed": "", "role": ""})

    async def refuse(self, error, words, *sites, start=None):
        """Return why an episode on these sites, or one that `start` begins, can't begin."""
        with pytest.raises(error, match=words) as caught:
            async with asyncio.timeout(60), start or self.reserve(sites):
                raise AssertionError("the episode began")
        return caught.value
