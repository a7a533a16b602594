"""What every environment is: `reset`, `step`, `close`, and an expert where the environment can solve itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from webgym_cli.errors import UsageError
from webgym_cli.records.task import Task
from webgym_cli.records.trajectory import Element, Score, Tab
from webgym_cli.records.webrl import AnyAction
from webgym_cli.tools.toolbox import CallResult


@dataclass(frozen=True, slots=True)
class RawObservation:
    """What an environment shows: an observation whose image is still bytes."""

    url: str
    title: str
    png: bytes = b""
    """The screenshot, with marks drawn in set_of_marks mode; empty where there is no browser."""
    elements: tuple[Element, ...] = ()
    """The marked elements, ids 0..n-1 in document order; empty in coordinates mode."""
    notices: tuple[str, ...] = ()
    """What the browser told beside the picture since the view before."""
    results: tuple[CallResult, ...] = ()
    """What came of the calls of tools since the view before."""
    html: str = ""
    """The page as simplified HTML, where that is what the policy is shown."""
    tabs: tuple[Tab, ...] = ()
    """The open tabs, where there are several."""


@dataclass(frozen=True, slots=True)
class EnvironmentStep:
    """What an action led to."""

    view: RawObservation | None
    """The next observation; None when the episode is over."""
    done: bool = False
    """Whether the environment declared the episode over."""
    score: Score | None = None
    """The environment's own score, once it is over."""
    action_error: str | None = None
    """Why a well-formed action was not carried out (no such element, address not allowed). Not a failure."""
    answer: str | None = None
    """The answer, where the action that ended the episode gave one."""


class Environment(Protocol):
    """One episode's world. All methods raise `BoundaryError` when infrastructure fails, within their deadlines.

    What has a body here is for environments that derive from this class and have nothing else to say.
    """

    @property
    def tools(self) -> tuple[dict[str, Any], ...] | None:
        """The schemas of the tools that can be called; None: the world is a page, and is acted on as on the web."""
        return None

    async def reset(self, task: Task, seed: int) -> tuple[str, RawObservation]:
        """Start the episode and return its instruction and the first view. The same seed gives the same episode."""
        ...

    def resolve_task(self, task: Task) -> Task:
        """Return the task with what only the running episode knows: its facts and answer, where they are drawn."""
        return task

    async def step(self, action: AnyAction) -> EnvironmentStep:
        """Carry out one action (never `answer`, which ends the episode without the environment's help)."""
        ...

    async def answer(self, text: str) -> Score | None:
        """Score an answered episode; None when the environment has no opinion."""
        return None

    async def out_of_steps(self) -> Score | None:
        """Score an episode that has used all its steps; None where nothing can be scored."""
        return None

    async def expert_action(self) -> AnyAction:
        """Return the expert's next action in the current interaction mode. Raises `UsageError` without an expert."""
        raise UsageError("this environment has no expert", hint="--policy vllm, or tasks of miniwob: or sites:")

    async def close(self) -> None:
        """Release everything; safe to call twice and after a failure."""
        ...


class EnvironmentPool(Protocol):
    """Makes environments over shared browsers. An async context manager that leaves no process behind."""

    async def __aenter__(self) -> EnvironmentPool:
        """Start what the environments share."""
        ...

    async def __aexit__(self, *exc: object) -> None:
        """Stop it and wait until it is gone."""
        ...

    def new(self) -> Environment:
        """Return a fresh, isolated environment. A broken browser is replaced by the next `reset`."""
        ...
