"""`check` makes a function that decides, after an episode, how well its task was done.

`shaping` makes one that turns the stored reward of an episode into that of a training batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from webgym_cli.errors import UsageError
from webgym_cli.records.task import Task
from webgym_cli.records.trajectory import FinalState, Score, Trajectory
from webgym_cli.scoring.define import RewardResult, parse_reward
from webgym_cli.scoring.registry import task_fields
from webgym_cli.scoring.user_function import UserFunction, digest_source
from webgym_cli.tools.workers import Workers
from webgym_cli.util.registry import Registry


class NeedsPageError(Exception):
    """A check asks for the live page of an episode that is over: `webgym score --check` can't repeat it."""


# Without slots: with them Python reports an assignment by a TypeError about super().
@dataclass(frozen=True)
class CheckContext:
    """An episode after its last action, for a check."""

    trajectory: Trajectory
    """The episode's record: its steps, and in `outcome` how it ended."""
    live_page: Any = None
    """The open page; None once the episode is stored."""

    @property
    def id(self) -> str:
        """The trajectory's id, which differs between the attempts of an episode."""
        return self.trajectory.id

    @property
    def seed(self) -> int:
        """The episode's seed."""
        return self.trajectory.seed

    @property
    def answer(self) -> str | None:
        """The policy's answer; None if it gave none."""
        return self.trajectory.outcome.answer

    @property
    def state(self) -> Any:
        """What the site's `setup` or `reset` returned as its state."""
        return self._final.state

    @property
    def url(self) -> str:
        """Address of the last page."""
        if not (url := self._final.url):  # every page has one: empty, it would be taken for a wrong page
            raise NeedsPageError("the episode had no page of webgym's, so its address is not known")
        return url

    @property
    def title(self) -> str:
        """Title of the last page."""
        _ = self.text  # read with it
        return self._final.title

    @property
    def text(self) -> str:
        """Visible text of the last page."""
        if (text := self._final.text) is None:
            raise NeedsPageError("title and text of the last page could not be read, or there was no page of webgym's")
        return text

    @property
    def page(self) -> Any:
        """The last page, to read: `locator`, `get_by_role`, `evaluate` and so on, as in Playwright."""
        if self.live_page is None:
            raise NeedsPageError("there is no live page: the episode is over, or its environment has none")
        return self.live_page

    @property
    def _final(self) -> FinalState:
        if self.trajectory.final is None:
            raise NeedsPageError("the episode was stored without the facts of its last page")
        return self.trajectory.final


@dataclass(frozen=True)
class TaskCheck(UserFunction):
    """A function that decides an episode; arguments are passed by name."""

    digest: str = ""
    """SHA-256 of the file that defines it, of its code if there is none: scores of another one are outdated."""

    noun = "check"

    async def score(self, workers: Workers, context: CheckContext, seconds: float) -> Score:
        """Return the score of an episode. Raises `BoundaryError`: a failed check is never a reward of 0."""
        given = {**task_fields(context.trajectory.task), "context": context}
        value = await self.call(workers, given, seconds)
        try:
            result = parse_reward(value)
            if not 0 <= result.reward <= 1:
                raise ValueError(f"{result.reward} is not within 0 and 1")
        except Exception as error:
            raise self.explain(error) from error
        return Score(source="check", value=result.reward, detail=self.name, extras=result.numbers(), digest=self.digest)


CHECKS: Registry[TaskCheck] = Registry(
    noun="check",
    setting="check",
    item_type=TaskCheck,
    usage='from webgym_cli.scoring import check, and put @check("name") over it',
)


def check(name: str, *, timeout: float | None = None) -> Callable[[Callable[..., Any]], TaskCheck]:
    """Register a function, sync or async, under the name that the field `check` of tasks has.

    Arguments are passed by name: `context` (the `CheckContext`), and each field of the task. It returns a number from 0
    to 1, or a mapping with `reward` and other values to store. Raises `UsageError` for a name that is taken.
    """
    if not isinstance(name, str) or not name:
        raise UsageError("a check needs the name that tasks have in their field check", hint='@check("NAME")')

    def decorate(given: Callable[..., Any]) -> TaskCheck:
        task_check = TaskCheck.of(given, name, timeout=timeout)
        return CHECKS.register(name, replace(task_check, digest=digest_source(given)))

    return decorate


def find_check(task: Task) -> TaskCheck:
    """Return the check that a task names. Raises `UsageError` with the names that are loaded."""
    names = CHECKS.names()
    if task.check not in names:  # a task file is data: it can't name code as `file.py:check`
        raise UsageError(
            f"task {task.id}: there is no check {task.check!r}; loaded: {', '.join(names) or 'none'}",
            hint="name the file that defines it in the setting plugins, or install its package",
        )
    return CHECKS.find(task.check)


def list_checks(tasks: Iterable[Task]) -> dict[str, str]:
    """Return the digest of each check that tasks name. Raises `UsageError` for one that is not loaded."""
    return {
        check: find_check(task).digest for check, task in sorted({task.check: task for task in tasks}.items()) if check
    }


def require_checks(tasks: Iterable[Task]) -> None:
    """Raise `UsageError` for the first task whose check is not loaded, or needs a field that the task lacks."""
    for task in tasks:
        if task.check:
            find_check(task).require_fields(task, task_fields(task), f"check {task.check}")


@dataclass(frozen=True)
class Shaping(UserFunction):
    """A function that shapes rewards; arguments are passed by name."""

    noun = "shaping"
    offered = ("context", "reward")

    async def shape(self, workers: Workers, trajectory: Trajectory, seconds: float) -> RewardResult:
        """Return the reward for training, with other numbers.

        Raises `BoundaryError` if the function fails or returns no finite number.
        """
        given = {**task_fields(trajectory.task), "context": CheckContext(trajectory)}
        value = await self.call(workers, {**given, "reward": trajectory.outcome.reward}, seconds)
        try:
            return parse_reward(value)
        except ValueError as error:
            raise self.explain(error) from error


SHAPINGS: Registry[Shaping] = Registry(
    noun="shaping",
    setting="rl.data.shaping",
    package="webgym_cli.scoring",
    item_type=Shaping,
)


def shaping(name: str, *, timeout: float | None = None) -> Callable[[Callable[..., Any]], Shaping]:
    """Register a function, sync or async, under the name that `rl.data.shaping` has.

    Arguments are passed by name: `reward` (the stored one), `context` (the `CheckContext`, without a live page), and
    each field of the task. It returns any finite number, or a mapping with `reward` and other numbers.
    """
    if not isinstance(name, str) or not name:
        raise UsageError("a shaping needs the name that rl.data.shaping has", hint='@shaping("NAME")')
    return lambda given: SHAPINGS.register(name, Shaping.of(given, name, timeout=timeout))


def require_shaping(name: str, tasks: Iterable[Task]) -> None:
    """Raise `UsageError` for a name that is not loaded, or the first task that lacks a field of the function."""
    function = SHAPINGS.find(name)
    for task in tasks:
        function.require_fields(task, task_fields(task), SHAPINGS.setting)
