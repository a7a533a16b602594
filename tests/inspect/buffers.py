"""Runs for the tests of the stage, and what the index says of them."""

from typing import Any

from tests.records.builders import SOLVED, UNSOLVED, new_run, trajectory
from webgym_cli.inspect.overview import build_overview
from webgym_cli.records.task import Split, Task
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.store.buffer import append
from webgym_cli.store.index.query import open_index
from webgym_cli.store.index.selection import TrajectoryQuery
from webgym_cli.store.run import RunDir


def fill_run(root: Any, *trajectories: Trajectory) -> RunDir:
    """Return a run that holds these trajectories; their screenshots are not stored."""
    run = new_run(root)
    for episode in trajectories:
        append(run, episode)
    return run


def attempt(
    number: int, task: str, solved: bool | None, iteration: int = 0, task_text: str = "", **changes: Any
) -> Trajectory:
    """Return a test episode; `solved` None: its reward is not known. Its number is its seed."""
    outcome = SOLVED if solved else UNSOLVED
    if solved is None:
        outcome = UNSOLVED.model_copy(update={"reward": None})
    named = Task(id=task, start_url=f"http://{task}.test/", instruction=task_text)
    return trajectory(
        number, iteration=iteration, **{"split": Split.TEST, "task": named, "outcome": outcome, **changes}
    )


def seen(run: RunDir, query: TrajectoryQuery | None = None, top: int | None = None) -> dict[str, Any]:
    """Return a run's overview."""
    with open_index(run) as index:
        return build_overview(run, index, query or TrajectoryQuery(), top)
