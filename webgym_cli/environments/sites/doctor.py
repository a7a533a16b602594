"""Trial of the configured sites: their address, logins and reset, as an episode would use them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx

from webgym_cli.config.model import Settings
from webgym_cli.config.sites import SiteSettings
from webgym_cli.environments.sites.accounts import explain_unreachable
from webgym_cli.environments.sites.login_command import LoginStatus, select_logins, visit_sites
from webgym_cli.environments.sites.login_store import LoginStore
from webgym_cli.environments.sites.reset import reset_site
from webgym_cli.errors import WebGymError
from webgym_cli.util.http_client import BoundedClient
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
        return DoctorCheck(label, "missing", fix=f"{error}: {error.hint}")
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
