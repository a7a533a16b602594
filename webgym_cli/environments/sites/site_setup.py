"""`setup`: makes a function that prepares a site for an episode, before its first page."""

from __future__ import annotations

import json
import warnings
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urljoin, urlsplit

from pydantic_core import from_json, to_json

from webgym_cli.config.sites import SiteSettings
from webgym_cli.environments.episode_start import EpisodeStart, parse_start
from webgym_cli.errors import BoundaryError, UsageError, UserNote
from webgym_cli.records.task import Task
from webgym_cli.scoring.registry import task_fields
from webgym_cli.scoring.user_function import UserFunction
from webgym_cli.tools.workers import Workers
from webgym_cli.util.registry import Registry


@dataclass(frozen=True)
class SetupContext:
    """An episode before its first page, for a set-up function."""

    id: str
    """Id of the attempt at the episode, unique among all attempts: `context.id` of its check."""
    seed: int
    """The episode's seed: the same seed should give the same state."""
    url: str
    """Address of the first page."""
    state: Any = None
    """What the site's `reset` returned as its state."""


@dataclass(frozen=True)
class SiteSetup(UserFunction):
    """A function that prepares a site for an episode; arguments are passed by name."""

    noun = "setup"
    hides_fields = True


SETUPS: Registry[SiteSetup] = Registry(
    noun="setup",
    setting="site",
    item_type=SiteSetup,
    usage='from webgym_cli.environments.sites import setup, and put @setup("SITE") over it',
    builtin={},
)


def setup(site: str, *, timeout: float | None = None) -> Callable[[Callable[..., Any]], SiteSetup]:
    """Register a function, sync or async, that prepares the episodes of tasks with this `site`.

    Arguments are passed by name: `context` (the `SetupContext`), and each field of the task. It returns None or a
    mapping with any of `start_url`, `cookies`, `storage_state` and `state`. A generator function yields it instead, and
    goes on once the episode is over.
    """
    if not isinstance(site, str) or not site:
        raise UsageError("a setup needs the site that tasks have in their field site", hint='@setup("SITE")')
    return lambda given: SETUPS.register(site, SiteSetup.of(given, site, timeout=timeout))


def require_tenants(task: Task, site: str, known: SiteSettings) -> None:
    """Raise `UsageError` if a site should have a tenant for each episode, and nothing makes it."""
    if known.isolation == "tenant" and not known.reset.strip() and site not in SETUPS.names():
        raise UsageError(
            f"task {task.id}: sites.{site}.isolation is tenant, and nothing makes a tenant",
            hint=f'-s sites.{site}.reset=COMMAND, or a function with @setup("{site}") in a file of plugins',
        )


def require_setup_fields(task: Task) -> None:
    """Raise `UsageError` for a task that lacks a field which its site's set-up function requires."""
    if task.site in SETUPS.names():
        SETUPS.find(task.site).require_fields(task, task_fields(task), f"setup {task.site}")


async def set_up_site(
    task: Task, episode: str, seed: int, start: EpisodeStart, seconds: float, held: AsyncExitStack
) -> EpisodeStart:
    """Return the start of an episode with what the site's set-up function adds; unchanged without one.

    `held`: runs the rest of a generator function at the episode's end. Raises `BoundaryError` if the function fails,
    or returns anything else.
    """
    if not task.site or task.site not in SETUPS.names():
        return start
    function = SETUPS.find(task.site)
    context = SetupContext(episode, seed, start.start_url, start.state)
    answer = await function.call(Workers(), {**task_fields(task), "context": context}, seconds)
    if isinstance(answer, Generator | AsyncGenerator):
        step = partial(next if isinstance(answer, Generator) else anext, answer)
        # A failure, also the end of its time, is raised in it, so that nothing but its `finally` follows.
        answer = await function.run(Workers(), partial(step, None), seconds)
        held.push_async_callback(_finish, function, step, seconds, episode)
    given = parse_start(answer, f"the setup {task.site}")
    try:  # stored with the episode: a check must get the same later
        state = from_json(to_json(given.state, inf_nan_mode="constants"))
        json.dumps(state, allow_nan=False)  # NaN would be stored as null
    except ValueError as error:
        raise function.explain(error) from error
    address = urljoin(start.start_url, given.start_url)
    here = "{0.scheme}://{0.netloc}".format(urlsplit(address))
    changes = {"start_url": address, "cookies": given.cookies_for(here), "state": state}
    return start.updated_by(given.model_copy(update=changes))


async def _finish(function: SiteSetup, step: Callable[..., Any], seconds: float, episode: str) -> None:
    """Run what a set-up function has after its `yield`. What it raises is shown: the episode has its score by now."""
    try:
        if await function.run(Workers(), partial(step, step), seconds) is not step:  # None is a bare `yield`
            raise function.explain(ValueError("it yielded again: what follows is not run"))
    except BoundaryError as error:
        # With the episode, since a warning of equal text is shown once.
        warnings.warn(f"after the episode {episode} {error}", UserNote, stacklevel=2)
