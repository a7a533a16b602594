"""Trial of the configured sites, as an episode would use them: addresses, logins, resets; refused start pages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable
from itertools import chain

import httpx

from webgym_cli.config.model import Settings
from webgym_cli.config.sites import SiteSettings
from webgym_cli.environments.sites.accounts import LoginStore, explain_unreachable, make_rules, task_sites
from webgym_cli.environments.sites.login_command import LoginStatus, select_logins, visit_sites
from webgym_cli.environments.sites.reset import reset_site
from webgym_cli.errors import WebGymError
from webgym_cli.jobs.workers import gather_or_cancel
from webgym_cli.records.task import Task
from webgym_cli.util.http_client import BoundedClient
from webgym_cli.util.text import format_count
from webgym_cli.venvs.doctor import DoctorCheck

_SECONDS = 20.0


async def diagnose_sites(settings: Settings) -> AsyncIterator[DoctorCheck]:
    """Yield what is seen of each site that has a URL; a reset is run, as for an episode named `doctor`."""
    for name, site in settings.sites.items():
        if not site.url:
            continue
        reached = await check_address(name, site)
        yield reached
        if reached.status != "ok":
            continue
        if site.is_reset:
            yield await _check_reset(settings, name, site)
        if site.accounts:
            for check in await _check_logins(settings, name):
                yield check


async def check_address(name: str, site: SiteSettings, seconds: float = _SECONDS) -> DoctorCheck:
    """Return whether the site answers a request within a time."""
    try:
        verify = not site.ignore_https_errors
        async with BoundedClient(timeout=seconds, trust_env=False, verify=verify) as client:
            response = await client.get(site.url)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        reason = str(error) or type(error).__name__
        fix = f"{explain_unreachable(f'sites.{name}', reason)}: {reason}"
        return DoctorCheck(f"site {name}", "missing", path=site.url, fix=fix)
    status = f"answers with status {response.status_code}"
    if response.status_code >= 500:
        return DoctorCheck(f"site {name}", "missing", status, site.url, f"look at the site's log: {site.url} {status}")
    return DoctorCheck(f"site {name}", "ok", status, site.url)


async def _check_reset(settings: Settings, name: str, site: SiteSettings) -> DoctorCheck:
    values = {"episode": "doctor", "seed": "0", "role": next(iter(site.accounts), "")}
    log = LoginStore.of(settings).folder / f"{name}.doctor.reset.log"
    label = f"reset {name}"
    try:
        start = await reset_site(name, site, log, values)
    except WebGymError as error:
        return DoctorCheck(label, "missing", fix=f"{error}: {error.hint}".rstrip(": "))
    answered = [field for field in type(start).model_fields if getattr(start, field)]
    return DoctorCheck(label, "ok", f"answers with {', '.join(answered)}" if answered else "done, without an answer")


async def _check_logins(settings: Settings, name: str) -> list[DoctorCheck]:
    def describe(entry: LoginStatus) -> DoctorCheck:
        label = f"login {name} {entry.role}"
        if entry.status == "valid":
            return DoctorCheck(label, "ok", entry.account, entry.file)
        return DoctorCheck(label, "missing", entry.account, entry.file, f"{entry.detail}: {entry.hint}".rstrip(": "))

    checks: list[DoctorCheck] = []
    for login in select_logins(settings, [name]):
        try:
            checks += map(describe, await visit_sites(settings, [login], lambda entry: None, check=False))
        except WebGymError as error:
            checks.append(DoctorCheck(f"login {name} {login.role}", "missing", fix=str(error)))
    return checks


# Time limit of the request to a site.
_SITE_SECONDS = 5.0


def list_refused(settings: Settings, tasks: Iterable[Task]) -> list[str]:
    """Return a note on the tasks whose start page the address rules refuse, with the first one's reason.

    An episode may start on any host that its task's site, or the set-up or reset of that, has.
    """
    own = (task.start_url for task in tasks if "://" in task.start_url and not task_sites(task))
    if not (reasons := [*filter(None, map(make_rules(settings).refuse_url, own))]):
        return []
    allow = "allow its host with browser.private_hosts, or name it in sites"
    return [f"{format_count(len(reasons), 'task')} can't start: {reasons[0]} ({allow})"]


async def list_silent(settings: Settings, tasks: Collection[Task]) -> list[str]:
    """Return a note on each site of the tasks that does not answer, unless a reset may start it."""
    names = dict.fromkeys(name for name in chain.from_iterable(map(task_sites, tasks)) if name in settings.sites)
    known = {settings.sites[name].url: name for name in names if not settings.sites[name].is_reset}
    checks = (check_address(name, settings.sites[name], _SITE_SECONDS) for url, name in known.items() if url)
    return [f"{one.name} ({one.path}): {one.fix}" for one in await gather_or_cancel(*checks) if one.status != "ok"]
