"""`shaping`: makes a function that turns the stored reward of an episode into the one of a training batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from webgym_cli.errors import UsageError
from webgym_cli.records.task import Task
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.scoring.check import CheckContext
from webgym_cli.scoring.define import RewardResult, parse_reward
from webgym_cli.scoring.registry import task_fields
from webgym_cli.scoring.user_function import UserFunction
from webgym_cli.tools.workers import Workers
from webgym_cli.util.registry import Registry


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
