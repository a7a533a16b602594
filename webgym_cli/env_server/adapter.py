"""A session as OpenEnv's environment. Imports `openenv`, which is installed on request."""

from __future__ import annotations

import asyncio
import base64
import json
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any, ClassVar

from openenv.core.env_server.interfaces import Environment as OpenEnvironment
from openenv.core.env_server.types import Action as OpenAction
from openenv.core.env_server.types import EnvironmentMetadata
from openenv.core.env_server.types import Observation as OpenObservation
from openenv.core.env_server.types import State as OpenState
from pydantic import ConfigDict, Field

import webgym_cli
from webgym_cli.agent.forms.tools import format_tool_call
from webgym_cli.env_server.host import EpisodeChoice, SessionHost
from webgym_cli.env_server.sessions import ClientSession, Turn
from webgym_cli.errors import UsageError
from webgym_cli.records.task import Task
from webgym_cli.tasks.source import TaskSet

NAME = "webgym"
# Sessions that were used on the current connection, and that end with it.
CONNECTION: ContextVar[set[ClientSession]] = ContextVar("connection")
# Maximum number of tasks that one answer lists; `num_tasks` counts all.
_MAX_LISTED = 1000


class WebAction(OpenAction):  # type: ignore[misc]
    """One action of the policy: its name in the action set, and its arguments beside it."""

    model_config = ConfigDict(extra="allow")
    action: str
    served_schema: ClassVar[dict[str, Any]] = {}
    """JSON schema of the served action set."""

    @classmethod
    def model_json_schema(cls, *args: Any, **options: Any) -> dict[str, Any]:
        """Return the schema of the served action set."""
        return cls.served_schema or super().model_json_schema(*args, **options)


class WebObservation(OpenObservation):  # type: ignore[misc]
    """What the policy sees of a page. `reward` stays null until an episode that is scored has ended."""

    instruction: str = Field(description="The task.")
    screenshot: str = Field(default="", description="PNG in base64; empty when the episode is over, or in a dialog.")
    url: str = ""
    title: str = ""
    elements: list[dict[str, Any]] = Field(default=[], description="The marked elements, with set_of_marks.")
    tree: str = Field(default="", description="The accessibility tree, with context_config.observation=tree.")
    notices: list[str] = Field(default=[], description="Dialogs, downloads and the like since the last observation.")
    tabs: list[dict[str, Any]] = Field(default=[], description="The open tabs, if there is more than one.")
    action_error: str = Field(default="", description="Why the last action could not be read, or not be carried out.")
    stop: str | None = Field(default=None, description="How the episode ended: answered, step_limit, ...")
    success: bool | None = Field(default=None, description="Whether the task was solved; null if unknown.")


class BrowserEnvironment(OpenEnvironment[WebAction, WebObservation, OpenState]):  # type: ignore[misc]
    """The environment of one connection, with a browser context of its own from reset to the end of the episode."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, host: SessionHost, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._host, self._loop = host, loop
        self._session = host.open_session()
        self._state = OpenState()

    async def reset_async(self, episode_id: str | None = None, **choice: Any) -> WebObservation:
        """Start an episode. `choice`: the fields of an `EpisodeChoice`. Raises `WebGymError`."""
        episode = self._host.plan_episode(**choice)
        self._state = OpenState(
            episode_id=str(episode_id or episode.id)[:255],
            split=episode.split,
            task=_describe_task(episode.task),
            seed=episode.seed,
            max_steps=episode.max_steps,
        )
        CONNECTION.get(set()).add(self._session)
        return _observe(await self._host.start_episode(self._session, episode))

    async def step_async(self, action: WebAction, timeout_s: float | None = None, **kwargs: Any) -> WebObservation:
        """Act. Raises `WebGymError` for a failure of the episode, which then has no reward."""
        arguments = action.model_dump(exclude={"metadata"})
        turn = await self._session.step(format_tool_call(self._host.function["name"], arguments))
        self._state.step_count += 1
        return _observe(turn)

    def reset(self, *args: Any, **kwargs: Any) -> WebObservation:
        """Not served: OpenEnv calls the asynchronous methods."""
        raise NotImplementedError

    step = reset

    @property
    def state(self) -> OpenState:
        """The running episode."""
        return self._state

    def close(self) -> None:
        """End the session. OpenEnv calls this in a thread of its own, and in that of the loop: so it never waits."""
        self._loop.call_soon_threadsafe(self._host.close_session, self._session)

    def get_metadata(self) -> EnvironmentMetadata:
        """Return what the server is."""
        what = "Web tasks in a real Chromium: screenshots in, clicks and keys out."
        return EnvironmentMetadata(name=NAME, description=what, version=webgym_cli.__version__)

    @property
    def mcp_server(self) -> BrowserEnvironment:
        """What OpenEnv asks for MCP's tools: `list_tools`."""
        return self

    async def list_tools(self) -> list[SimpleNamespace]:
        """Return MCP's tools: one that starts a task, and the action set's function."""
        start = SimpleNamespace(
            name="start_task",
            description="Starts a task; without index and task_id one that the seed draws.",
            parameters=EpisodeChoice.model_json_schema(),
            fn=self._start_task,
        )
        return [start, SimpleNamespace(**self._host.function, fn=self._call_action)]

    async def _start_task(self, **arguments: Any) -> dict[str, Any]:
        return _write_mcp(await self.reset_async(**arguments))

    async def _call_action(self, **arguments: Any) -> dict[str, Any]:
        return _write_mcp(await self.step_async(WebAction(**arguments)))

    def list_splits(self) -> list[str]:
        """Return the names of the splits."""
        return [*self._host.tasks]

    def num_tasks(self, split: str) -> int:
        """Return the number of a split's tasks. Raises `IndexError`."""
        return len(self._find_tasks(split))

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        """Return a task. Raises `IndexError`."""
        if index < 0:
            raise IndexError(index)
        return self.get_task_range(split, index, index + 1)[0]

    def get_task_range(self, split: str, start: int | None = None, stop: int | None = None) -> list[dict[str, Any]]:
        """Return tasks of a slice, at most `_MAX_LISTED`. Raises `IndexError`."""
        tasks = self._find_tasks(split)
        numbers = range(len(tasks))[start:stop][:_MAX_LISTED]
        read = zip(numbers, tasks.read(numbers), strict=True)
        return [{"index": number, **_describe_task(task)} for number, task in read]

    list_tasks = get_task_range

    def _find_tasks(self, split: str) -> TaskSet:
        try:
            return self._host.find_tasks(split)
        except UsageError as error:
            raise IndexError(str(error)) from None  # what OpenEnv answers with a status of 400


def _describe_task(task: Task) -> dict[str, Any]:
    """Return what a client may know of a task: not its answer, nor what checks it."""
    return task.model_dump(mode="json", include={"id", "instruction", "start_url", "environment", "site", "difficulty"})


def _observe(turn: Turn) -> WebObservation:
    outcome = turn.outcome
    seen = WebObservation(instruction=turn.instruction, action_error=turn.action_error, done=outcome is not None)
    if outcome is not None:
        seen.reward, seen.stop, seen.success = outcome.reward, outcome.stop, outcome.success
    if (view := turn.view) is not None:
        seen.screenshot = base64.b64encode(view.png).decode()
        seen.url, seen.title, seen.tree, seen.notices = view.url, view.title, view.tree, [*view.notices]
        seen.elements = [element.model_dump(mode="json") for element in view.elements]
        seen.tabs = [tab.model_dump(mode="json") for tab in view.tabs]
    return seen


def _write_mcp(observation: WebObservation) -> dict[str, Any]:
    """Return an observation as the result of an MCP tool: a text, and the screenshot as an image."""
    text = json.dumps(observation.model_dump(mode="json", exclude={"screenshot", "metadata"}))
    image = {"type": "image", "data": observation.screenshot, "mimeType": "image/png"}
    return {"content": [{"type": "text", "text": text}, *([image] if observation.screenshot else [])], "isError": False}
