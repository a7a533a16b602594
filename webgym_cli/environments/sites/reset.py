"""Reset of a site by its hook: a URL that receives a POST request, or a command."""

from __future__ import annotations

import asyncio
import os
import shlex
from contextlib import suppress
from pathlib import Path

import httpx

from webgym_cli.config.webarena import SiteSettings
from webgym_cli.errors import BoundaryError, JobError
from webgym_cli.jobs.process import Job, last_lines
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.webarena import WebArenaSite
from webgym_cli.util.http_client import BoundedClient
from webgym_cli.util.secrets import expand_variables

# Seconds between two checks whether the site responds.
_LOOK_AGAIN = 0.5
_GRACE = 5.0
_LONGEST_LOOK = 30.0


async def reset_site(site: WebArenaSite, known: SiteSettings, seconds: float, log: Path) -> None:
    """Run a site's reset hook and wait until the site responds. Raises `BoundaryError` on failure or timeout.

    `log`: output of a command, overwritten each time.
    """
    hook = known.reset.strip()
    try:
        async with asyncio.timeout(seconds):
            if hook.startswith(("http://", "https://")):
                await _post(site, expand_variables(hook), seconds)
            else:
                await _run(site, hook, log)
            await _answers(known.url)
    except TimeoutError:
        hint = f"raise webarena.reset_timeout, or fix webarena.{site}.reset"
        raise _to_boundary_error(site, f"took longer than {seconds:g} s", hint) from None


async def _post(site: WebArenaSite, address: str, seconds: float) -> None:
    try:
        async with BoundedClient(timeout=seconds, trust_env=False) as client:
            response = await client.post(address)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise _to_boundary_error(site, f"{address} can't be reached: {error or type(error).__name__}") from error
    if response.status_code >= 400:
        raise _to_boundary_error(site, f"{address} answers with status {response.status_code}")


async def _run(site: WebArenaSite, command: str, log: Path) -> None:
    await asyncio.to_thread(log.unlink, missing_ok=True)
    try:
        job = Job.spawn(shlex.split(command), env=os.environ, log=log, grace=_GRACE)
    except (JobError, ValueError) as error:  # ValueError: an unclosed quotation mark
        raise _to_boundary_error(site, f"{command!r}: {error}") from error
    try:
        code = await job.wait()
    finally:
        await job.stop()
    if code:
        last_line = "".join(f": {line}" for line in last_lines(log, 1))
        raise _to_boundary_error(site, f"{command!r} ended with {code}{last_line}; log: {log}")


async def _answers(url: str) -> None:
    """Wait until a site responds with a status below 500; returns immediately without a URL."""
    async with BoundedClient(timeout=_LONGEST_LOOK, trust_env=False) as client:
        while url:
            with suppress(httpx.HTTPError):
                if (await client.get(url)).status_code < 500:
                    return
            await asyncio.sleep(_LOOK_AGAIN)  # there is no notification


def _to_boundary_error(site: WebArenaSite, what: str, hint: str = "") -> BoundaryError:
    message = f"the reset of {site} failed: {what}"
    return BoundaryError(FailureKind.ENVIRONMENT_ERROR, message, hint=hint or f"fix webarena.{site}.reset")
