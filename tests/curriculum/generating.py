"""A run with failed tasks on the web, for the tests of `webgym tasks generate`."""

from pathlib import Path
from typing import Any

from tests.records.builders import SOLVED, UNSOLVED, trajectory
from tests.rewards.cases import seen
from webgym_cli.config.load import load
from webgym_cli.records.task import Task
from webgym_cli.records.trajectory import Outcome, Trajectory
from webgym_cli.store.buffer import append
from webgym_cli.store.run import RunDir, create_or_open

SHOP = "http://shop.test:7770/"
FAILED = ('Find 3 reviews of "Blue hat"', 'Put 2 of "Red coat" into the cart', "Open the wish list")


def task(instruction: str, url: str = SHOP) -> Task:
    """Return a task on the web, named by its words."""
    return Task(id=instruction.replace(" ", "-"), instruction=instruction, start_url=url, environment="web")


def episode(number: int, instruction: str, outcome: Outcome = UNSOLVED, url: str = SHOP, **changes: Any) -> Trajectory:
    """Return an episode of such a task, with its first page."""
    attempt = trajectory(
        number, steps=0, outcome=outcome, task=task(instruction, url), instruction=instruction, **changes
    )
    return attempt.model_copy(update={"steps": (seen(0, 0, title="The shop"),)})


def failed_run(folder: Path, *overrides: str) -> RunDir:
    """Make a run that failed at three tasks of a shop and one of a museum, and solved one of the shop."""
    run = RunDir(folder / "run")
    file = folder / "tasks.jsonl"
    tasks = [*map(task, FAILED), task("Track a parcel"), task("Name the oldest picture", "http://museum.test/")]
    file.write_text("".join(f"{one.model_dump_json()}\n" for one in tasks))
    create_or_open(run, load(overrides=[f"tasks.train={file}", *overrides]))
    for number, instruction in enumerate(FAILED):
        append(run, episode(number, instruction))
    append(run, episode(3, "Log in as Emma", SOLVED))
    append(run, episode(4, "Name the oldest picture", url="http://museum.test/"))
    return run
