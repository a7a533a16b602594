"""Trial of tasks: each start page is opened as an episode opens it, and its check is run before any work."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from webgym_cli.config.model import Settings
from webgym_cli.environments.base import EnvironmentPool
from webgym_cli.environments.registry import check_tasks, group_by_environment, log_in_to_sites
from webgym_cli.errors import BoundaryError
from webgym_cli.jobs.workers import gather_or_cancel
from webgym_cli.records.task import Split, Task
from webgym_cli.records.trajectory import Outcome, PromptSpec, Trajectory
from webgym_cli.rollout.runner import check_trajectory
from webgym_cli.store.run import now
from webgym_cli.tools.workers import Workers
from webgym_cli.util.optional import when

# Pages that are open at once.
_CONCURRENCY = 4


async def try_tasks(settings: Settings, tasks: Sequence[Task]) -> AsyncIterator[tuple[Task, str]]:
    """Yield each task with its problem, empty if there is none: set-up, login, start page, and its check.

    Raises `WebGymError` for tasks that a rollout would refuse.
    """
    check_tasks(settings, tasks)
    for spec, own in group_by_environment(tasks):
        await log_in_to_sites(settings, own)
        async with spec.make_pool(settings) as pool:
            for first in range(0, len(own), _CONCURRENCY):
                some = own[first : first + _CONCURRENCY]
                trials = (_try_task(settings, pool, task, number) for number, task in enumerate(some, first))
                for task, problem in zip(some, await gather_or_cancel(*trials), strict=True):
                    yield task, problem


async def _try_task(settings: Settings, pool: EnvironmentPool, task: Task, number: int) -> str:
    environment = pool.new()
    environment.episode = f"trial-{number:05d}"
    try:
        instruction, _ = await environment.reset(task, settings.seed)
        begun = Trajectory(
            id=environment.episode,
            episode=environment.episode,
            split=Split.TEST,
            iteration=0,
            task=task,
            instruction=instruction,
            seed=settings.seed,
            policy="nobody",
            prompt=PromptSpec(),
            outcome=Outcome(),
            started_at=now(),
        )
        checked = await check_trajectory(begun, environment, settings, Workers())
    except BoundaryError as error:
        return f"{error.kind}: {error}"
    finally:
        await environment.close()
    if checked.outcome.failure:
        return f"{checked.outcome.failure}: {checked.outcome.failure_detail}"
    return when(checked.outcome.success, f"the check {task.check} gives a success before any work")
