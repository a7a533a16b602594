"""What the sessions of an environment server share: tasks, and a pool of environments for each kind of task."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from webgym_cli.agent.actions.action_sets import ACTION_SETS
from webgym_cli.agent.forms.action_forms import WebActions
from webgym_cli.config.model import Settings
from webgym_cli.env_server.sessions import ClientSession, Turn
from webgym_cli.environments.base import EnvironmentPool
from webgym_cli.environments.registry import check_tasks, find_environment, group_by_environment, log_in_to_sites
from webgym_cli.errors import BoundaryError, SettingsError, UsageError
from webgym_cli.records.base import describe_invalid
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.task import Episode, Split, Task
from webgym_cli.rollout.memory_limiter import default_concurrency, free_mb
from webgym_cli.tasks.source import TaskSet, hash_text, open_tasks
from webgym_cli.util.text import replace_surrogates

# Tasks that are read and checked at once.
_CHUNK = 1000
_MAX_SEED = 2**32


class EpisodeChoice(BaseModel):
    """Which episode a client asks for. Without a seed it is drawn; without a task the seed draws one."""

    model_config = ConfigDict(extra="forbid", strict=True)

    split: str = Split.TRAIN.value
    index: int | None = Field(default=None, ge=0)
    task_id: str | None = None
    seed: int | None = Field(default=None, ge=0, lt=_MAX_SEED)


class SessionHost:
    """Opens sessions over shared browsers; an async context manager that leaves no browser running."""

    def __init__(self, settings: Settings) -> None:
        """Raises `UsageError` for a task source that can't be read, or an action set without named arguments."""
        self.settings = settings
        schema = _find_actions(settings).build_schema(settings.context_config.interaction_mode)
        self.function: dict[str, Any] = schema["function"]
        """The actions as one function: its name, description and parameters."""
        sources = {Split.TRAIN: settings.tasks.train, Split.TEST: settings.tasks.test}
        self.tasks: dict[Split, TaskSet] = {split: open_tasks(source) for split, source in sources.items() if source}
        self._pools: dict[str, EnvironmentPool] = {}
        self._sessions: set[ClientSession] = set()
        # More browser contexts at once than a rollout would open start so slowly that all exceed their time limit.
        self._starting = asyncio.Semaphore(default_concurrency(settings.rollout))

    async def __aenter__(self) -> Self:
        """Check all tasks, log in to their sites and start the browsers. Raises `WebGymError`."""
        async with AsyncExitStack() as stack:
            for split, tasks in self._read_tasks():
                groups = group_by_environment(tasks)
                if blind := next((spec.name for spec, _ in groups if not spec.observations), ""):
                    message = f"the environment {blind} has no pages, and is served to nobody"
                    raise UsageError(message, hint="-s tasks.train=FILE with tasks on pages, or sites:all")
                check_tasks(self.settings, tasks, split)
                await log_in_to_sites(self.settings, tasks)
                for spec, own in groups:
                    if (name := own[0].environment) not in self._pools:
                        self._pools[name] = await stack.enter_async_context(spec.make_pool(self.settings))
            self._resources = stack.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """End all sessions, then stop the browsers."""
        open_now = [*self._sessions]
        for session in open_now:
            self.close_session(session)
        for session in open_now:
            await session.stop()
        await self._resources.aclose()

    def open_session(self) -> ClientSession:
        """Return a new session, without a browser until its first reset."""
        session = ClientSession(self.settings)
        self._sessions.add(session)
        return session

    def close_session(self, session: ClientSession) -> None:
        """End a session for good; its browser context closes later."""
        session.close(lambda: self._sessions.discard(session))

    async def start_episode(self, session: ClientSession, episode: Episode) -> Turn:
        """Start an episode of a session once fewer others start. Raises `WebGymError`, also while memory is short.

        A client that waited for memory would wait for other clients, who may think for as long as they like.
        """
        # First: the others that start may wait for a site that its running episode has, and would do so to their end.
        await session.drop_episode()
        async with self._starting:
            reserve, free = self.settings.browser.memory_reserve_mb, free_mb()
            if free < reserve and any(other.is_playing for other in self._sessions - {session}):
                message = f"{free} MiB of memory are free, below browser.memory_reserve_mb={reserve}: try again later"
                kind = FailureKind.ENVIRONMENT_UNAVAILABLE
                raise BoundaryError(kind, f"{kind}: {message}")
            return await session.reset(episode, self._pools[episode.task.environment])

    def plan_episode(self, **given: Any) -> Episode:
        """Return the episode that a client asks for by the fields of `EpisodeChoice`. Raises `UsageError`."""
        try:
            choice = EpisodeChoice.model_validate(given)
        except ValidationError as error:
            raise UsageError(describe_invalid(error)) from None
        tasks, chosen = self.find_tasks(choice.split), Split(choice.split)
        seed = secrets.randbelow(_MAX_SEED) if choice.seed is None else choice.seed
        if choice.task_id is not None:
            wanted = hash_text(replace_surrogates(choice.task_id))
            index = next((at for at in range(len(tasks)) if tasks.id_hash(at) == wanted), len(tasks))
        else:
            index = seed % len(tasks) if choice.index is None else choice.index
        if index >= len(tasks):
            raise UsageError(f"{chosen} has {len(tasks)} tasks, but none of {choice!r}"[:300])
        task = tasks.task(index)
        steps = find_environment(task.environment).max_steps(self.settings, task, chosen)
        # Numbered, a server started anew, or a second one, got the tenants of another one's episodes from a reset hook.
        name = f"{chosen}-client-{secrets.token_hex(8)}"
        return Episode(id=name, split=chosen, iteration=0, task=task, seed=seed, max_steps=steps)

    def find_tasks(self, split: str) -> TaskSet:
        """Return the tasks of a split. Raises `UsageError`."""
        if split not in self.tasks:
            raise UsageError(f"split: one of {', '.join(self.tasks)}, not {split[:100]!r}")
        return self.tasks[Split(split)]

    def _read_tasks(self) -> Iterator[tuple[Split, list[Task]]]:
        for split, tasks in self.tasks.items():
            for first in range(0, len(tasks), _CHUNK):
                yield split, list(tasks.read(range(first, min(first + _CHUNK, len(tasks)))))


def _find_actions(settings: Settings) -> WebActions:
    version = str(settings.context_config.prompt_version)
    more = settings.context_config.more_actions
    action_set = ACTION_SETS.find(version).choose_variant(dialogs=settings.browser.dialogs == "policy", more=more)
    if action_set.actions is None:
        message = f"context_config.prompt_version={version}: its actions have no named arguments, as clients send them"
        raise SettingsError(message, hint="-s context_config.prompt_version=full")
    return action_set.actions
