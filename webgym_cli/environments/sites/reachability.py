"""Addresses that episodes would not reach, before the first episode: refused start pages, and sites without answer."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import chain

from webgym_cli.config.model import Settings
from webgym_cli.environments.browser.address_rules import AddressRules
from webgym_cli.environments.sites.accounts import list_site_hosts
from webgym_cli.environments.sites.doctor import check_address
from webgym_cli.environments.sites.login_store import task_sites
from webgym_cli.jobs.workers import gather_or_cancel
from webgym_cli.records.task import Task
from webgym_cli.util.text import format_count

# Time limit of the request to a site.
_SECONDS = 5.0


def list_refused(settings: Settings, tasks: Iterable[Task]) -> list[str]:
    """Return a note on the tasks whose start page the address rules refuse, with the first one's reason.

    An episode may start on any host that its task's site, or the set-up or reset of that, has.
    """
    rules = AddressRules.of(settings.browser.private_hosts).with_names(list_site_hosts(settings))
    own = (task.start_url for task in tasks if "://" in task.start_url and not task_sites(task))
    if not (reasons := [*filter(None, map(rules.refuse_url, own))]):
        return []
    allow = "allow its host with browser.private_hosts, or name it in sites"
    return [f"{format_count(len(reasons), 'task')} can't start: {reasons[0]} ({allow})"]


async def list_silent(settings: Settings, tasks: Collection[Task]) -> list[str]:
    """Return a note on each site of the tasks that does not answer, unless a reset may start it."""
    names = dict.fromkeys(name for name in chain.from_iterable(map(task_sites, tasks)) if name in settings.sites)
    known = {settings.sites[name].url: name for name in names if not settings.sites[name].is_reset}
    checks = (check_address(name, settings.sites[name], _SECONDS) for url, name in known.items() if url)
    return [f"{one.name} ({one.path}): {one.fix}" for one in await gather_or_cancel(*checks) if one.status != "ok"]
