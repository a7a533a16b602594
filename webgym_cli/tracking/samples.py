"""A bounded, seeded sample of an iteration's trajectories over all outcomes, as table rows."""

from __future__ import annotations

import io
from collections.abc import Callable
from itertools import islice
from typing import Any

from PIL import Image

from webgym_cli.errors import StoreError
from webgym_cli.records.trajectory import Step, Trajectory
from webgym_cli.store.buffer import read
from webgym_cli.store.index.query import SPLIT_OR_SERVER, open_index
from webgym_cli.store.run import RunDir
from webgym_cli.store.screenshots import ScreenshotStore

# The steps whose screenshots are columns.
PICTURES = ("first", "middle", "last")
COLUMNS = (
    *("iteration", "id", "task", "instruction", "outcome", "reward", "steps", "stop", "answer", "failure"),
    *PICTURES,
)
# Maximum characters of a text.
TEXT = 2000
# Round robin over the outcomes: one of each, then a second one, ...; the seed determines which.
_CHOICE = """
    row_number() OVER (PARTITION BY failure IS NOT NULL, success ORDER BY md5(concat(?, '/', id)), id),
    failure IS NOT NULL, success DESC NULLS LAST
"""

# Creates a table cell from an image and its caption.
Picture = Callable[[Image.Image, str], Any]


def choose_trajectories(run: RunDir, series: str, iteration: int, count: int, seed: int) -> list[Trajectory]:
    """Return at most `count` trajectories with their judgements. Raises `StoreError`.

    `series`: a split, or the series of another server.
    """
    with open_index(run) as index:
        places = index.places(f"{SPLIT_OR_SERVER} = ? AND iteration = ?", [series, iteration, str(seed)], order=_CHOICE)
        return [read(run, place, without=("token_ids", "logprobs")) for place in islice(places, count)]


def build_table_row(trajectory: Trajectory, store: ScreenshotStore, picture: Picture) -> list[Any]:
    """Return the cells of `COLUMNS`; None for a missing image, and for image columns beyond the number of steps."""
    outcome, steps = trajectory.outcome, trajectory.steps
    verdict = (
        "failure" if outcome.failure else {True: "solved", False: "not solved", None: "not judged"}[outcome.success]
    )
    shown = [steps[0], steps[len(steps) // 2], steps[-1]] if len(steps) > len(PICTURES) else list(steps)
    cells = [_show(step, store, picture) for step in shown]
    return [
        trajectory.iteration,
        trajectory.id,
        trajectory.task.id,
        trajectory.instruction[:TEXT],
        verdict,
        outcome.reward,
        len(steps),
        outcome.stop and outcome.stop.value,
        (outcome.answer or "")[:TEXT],
        f"{outcome.failure.value}: {outcome.failure_detail}"[:TEXT] if outcome.failure else "",
        *cells,
        *[None] * (len(PICTURES) - len(cells)),
    ]


def _show(step: Step, store: ScreenshotStore, picture: Picture) -> Any:
    if (shot := step.observation.screenshot) is None:
        return None
    try:
        with Image.open(io.BytesIO(store.get(shot.sha256))) as image:
            pixels = image.convert("RGB")
    except (StoreError, OSError, SyntaxError, ValueError, Image.DecompressionBombError):  # Pillow's for a bad image
        return None
    done = "" if step.action is None else f": {step.action.name}"
    return picture(pixels, f"step {step.index}{done}")
