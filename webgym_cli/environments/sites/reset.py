"""Reset of a site by its hook: a URL that receives a POST request, or a command. It may answer with JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote

import httpx
from pydantic_core import from_json

from webgym_cli.config.sites import SiteSettings
from webgym_cli.environments.episode_start import EpisodeStart, parse_start
from webgym_cli.errors import BoundaryError, JobError
from webgym_cli.jobs.process import Job, last_lines
from webgym_cli.records.failure import FailureKind
from webgym_cli.util.http_client import BoundedClient
from webgym_cli.util.optional import when
from webgym_cli.util.secrets import expand_variables, inherited_environ
from webgym_cli.util.text import split_command

# Seconds between two checks whether the site responds.
_LOOK_AGAIN = 0.5
_GRACE = 5.0
_LONGEST_LOOK = 30.0
_LONGEST_ANSWER = 2**20


async def reset_site(site: str, known: SiteSettings, log: Path, values: Mapping[str, str]) -> EpisodeStart:
    """Run a site's reset hook, wait until the site responds, and return what the hook answered.

    `log`: output of a command, overwritten each time; it is removed if the command answers, since cookies grant access.
    `values`: the placeholders. Raises `BoundaryError` on failure or timeout.
    """
    hook = known.reset.strip()
    try:
        async with asyncio.timeout(known.reset_timeout):
            if hook.startswith(("http://", "https://")):
                address = _fill(hook, {name: quote(value, safe="") for name, value in values.items()})
                answer = await _post(site, known, expand_variables(address))
            else:
                answer = await _run(site, hook, log, values)
            await _answers(known)
    except TimeoutError:
        hint = f"raise sites.{site}.reset_timeout, or fix sites.{site}.reset"
        raise _to_boundary_error(site, f"took longer than {known.reset_timeout:g} s", hint) from None
    if not answer.startswith("{"):
        return EpisodeStart()
    try:
        start = parse_start(from_json(answer), f"the reset of {site}")
    except ValueError as error:
        raise _to_boundary_error(site, f"its answer is not JSON: {error}") from None
    await asyncio.to_thread(log.unlink, missing_ok=True)
    return start


def _fill(text: str, values: Mapping[str, str]) -> str:
    """Return a text with the placeholders filled in; other braces stay, as in a command's own templates."""
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text


async def _post(site: str, known: SiteSettings, address: str) -> str:
    verify = not known.accepts_any_certificate(address)
    try:
        async with BoundedClient(timeout=known.reset_timeout, trust_env=False, verify=verify) as client:
            response = await client.post(address)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise _to_boundary_error(site, f"{address} can't be reached: {error or type(error).__name__}") from error
    if not response.is_success:  # a redirect may lead to a login page, and then nothing was reset
        target = response.headers.get("location", "")
        why = when(target, f" and leads to {target}, which is not followed")
        if response.status_code == HTTPStatus.UNAUTHORIZED:  # browser.http_credentials are the pages' alone
            why = f": it asks for a user and a password; sites.{site}.reset may be http://USER:$VARIABLE@HOST/PATH"
        raise _to_boundary_error(site, f"{address} answers with status {response.status_code}{why}")
    return response.text.strip()


async def _run(site: str, command: str, log: Path, values: Mapping[str, str]) -> str:
    await asyncio.to_thread(log.unlink, missing_ok=True)
    try:
        arguments = [_fill(argument, values) for argument in split_command(command)]
        code = await Job.run(arguments, env=inherited_environ(), log=log, grace=_GRACE)
    except (JobError, ValueError) as error:  # ValueError: an unclosed quotation mark
        raise _to_boundary_error(site, f"{command!r}: {error}") from error
    last_line = "".join(last_lines(log, 1, _LONGEST_ANSWER))
    if code:
        detail = when(last_line, f": {last_line}")
        raise _to_boundary_error(site, f"{command!r} ended with {code}{detail}; log: {log}")
    return last_line.strip()


async def _answers(known: SiteSettings) -> None:
    """Wait until a site responds with a status below 500; returns immediately without a URL."""
    verify = not known.ignore_https_errors
    async with BoundedClient(timeout=_LONGEST_LOOK, trust_env=False, verify=verify) as client:
        while known.url:
            with suppress(httpx.HTTPError):
                if (await client.get(known.url)).status_code < 500:
                    return
            await asyncio.sleep(_LOOK_AGAIN)  # there is no notification


def _to_boundary_error(site: str, what: str, hint: str = "") -> BoundaryError:
    message = f"the reset of {site} failed: {what}"
    return BoundaryError(FailureKind.ENVIRONMENT_ERROR, message, hint=hint or f"fix sites.{site}.reset")
