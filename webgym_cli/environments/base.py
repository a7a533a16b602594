"""The environment protocol: `reset`, `step`, `close`, and optionally an expert policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from webgym_cli.errors import UsageError
from webgym_cli.records.task import Task
from webgym_cli.records.trajectory import Element, PageState, Score, Tab
from webgym_cli.records.webrl import AnyAction
from webgym_cli.tools.toolbox import CallResult

if TYPE_CHECKING:
    from playwright.async_api import Page


@dataclass(frozen=True, slots=True)
class RawObservation:
    """A raw observation of an environment: its screenshot is not yet stored."""

    url: str
    title: str
    png: bytes = b""
    """PNG screenshot, with marks drawn in set_of_marks mode; empty without a browser."""
    elements: tuple[Element, ...] = ()
    """The marked elements, ids 0..n-1 in document order; empty in coordinates mode."""
    nodes: tuple[str, ...] = ()
    """The identity of each of them, the same in all observations of a document; empty if unknown."""
    notices: tuple[str, ...] = ()
    """Browser notices (dialogs, downloads, ...) since the previous observation."""
    results: tuple[CallResult, ...] = ()
    """Results of the tool calls since the previous observation."""
    html: str = ""
    """The page as simplified HTML, if the policy observes text."""
    tabs: tuple[Tab, ...] = ()
    """The open tabs, if there is more than one."""
    tree: str = ""
    """The page as an accessibility tree, if the policy gets one."""
    state: PageState | None = None


@dataclass(frozen=True, slots=True)
class EnvironmentStep:
    """Result of one action."""

    view: RawObservation | None
    """The next observation; None when the episode is over."""
    done: bool = False
    """Whether the environment declared the episode over."""
    score: Score | None = None
    """The environment's own score, once the episode is over."""
    action_error: str | None = None
    """Why a well-formed action was not carried out (no such element, address not allowed). Not a failure."""
    answer: str | None = None
    """The answer, if the action that ended the episode contains one."""


@dataclass(frozen=True, slots=True)
class AgentAccess:
    """What an agent with a browser of its own needs for an episode."""

    instruction: str
    start_url: str
    proxy: str
    """Address of the HTTP proxy through which its browser reaches the episode's sites, and no private address."""
    storage_state: dict[str, Any]
    """Playwright's storage state with which its browser starts: the episode's cookies and logins."""
    require_reached: Callable[[str], None]
    """Raises `BoundaryError` if a URL's server did not answer when it was last asked through the proxy."""


class Environment(Protocol):
    """The environment of one episode. Methods raise `BoundaryError` within their deadlines if infrastructure fails.

    Methods with a body here are defaults for subclasses.
    """

    episode: str = ""
    """Id of the attempt at an episode, set before `reset`; it is unique among all attempts."""
    responses: Sequence[str] = ()
    """The policy's responses so far, whole, set before `step`, `answer` and `out_of_steps`."""
    har: Path | None = None
    """Where the episode's requests are recorded, set before `reset`; None: they are not."""

    @property
    def tools(self) -> tuple[dict[str, Any], ...] | None:
        """JSON schemas of the callable tools; None for a page that is operated with web actions."""
        return None

    @property
    def page(self) -> Page | None:
        """The current page, for checks; None without one."""
        return None

    async def reset(self, task: Task, seed: int) -> tuple[str, RawObservation]:
        """Start the episode and return its instruction and the first view. The same seed gives the same episode."""
        ...

    async def open_to_agent(self, task: Task, seed: int) -> AgentAccess:
        """Start the episode for an agent with a browser of its own, in place of `reset`. Raises `UsageError`."""
        raise UsageError(
            f"task {task.id}: the environment {task.environment} is not open to other agents",
            hint="tasks of sites: or of the web, or leave rollout.agent empty",
        )

    def resolve_task(self, task: Task) -> Task:
        """Return the task with the facts and answer of the running episode, if they are sampled at `reset`."""
        return task

    async def step(self, action: AnyAction) -> EnvironmentStep:
        """Execute one action. `answer` actions end the episode without a call of `step`."""
        ...

    async def answer(self, text: str) -> Score | None:
        """Score an answered episode; None if the environment does not score answers."""
        return None

    async def out_of_steps(self) -> Score | None:
        """Score an episode that has used all its steps; None if it cannot be scored."""
        return None

    def find_outage(self) -> str:
        """Return why the current page's network can't be reached, if it is no fault of this page; else empty."""
        return ""

    async def expert_action(self) -> AnyAction:
        """Return the expert's next action in the current interaction mode. Raises `UsageError` without an expert."""
        raise UsageError("this environment has no expert", hint="--policy vllm, or tasks of miniwob: or sites:")

    async def close(self) -> None:
        """Release everything; safe to call twice and after a failure."""
        ...


class EnvironmentPool(Protocol):
    """Factory of environments over shared browsers; an async context manager that leaves no process running."""

    async def __aenter__(self) -> EnvironmentPool:
        """Start the shared resources."""
        ...

    async def __aexit__(self, *exc: object) -> None:
        """Stop the shared resources and wait until they are gone."""
        ...

    def new(self) -> Environment:
        """Return a fresh, isolated environment. A broken browser is replaced by the next `reset`."""
        ...
