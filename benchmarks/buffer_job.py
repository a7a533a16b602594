"""Does one thing to a run's buffer, as a job that comes in as JSON says, and prints what it took as JSON.

A process of its own for each: its memory is nobody else's. `index` builds the index anew. `draw` picks, reads and
writes a dataset's samples, without the tokenizer and without looking at pictures: what `buffer_baseline` does, too.
`prepare` is the shipped stage with everything that it checks.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import duckdb  # noqa: F401  else its loading would count
import pyarrow.parquet  # noqa: F401

from benchmarks.buffer_baseline import peak_mb
from webgym_cli.agent.prompt import render_step
from webgym_cli.config.model import Settings
from webgym_cli.errors import WebGymError
from webgym_cli.inspect.viewer import EpisodeTable
from webgym_cli.prepare.sft.execute import StepSampler, execute
from webgym_cli.prepare.sft.plan import plan_dataset
from webgym_cli.prepare.sft.sharegpt import dump_json_array, to_sharegpt
from webgym_cli.records.events import Event
from webgym_cli.records.sample import Message, Sample
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.report.facts import gather_facts
from webgym_cli.report.page import render_report
from webgym_cli.store.find_run import open_run
from webgym_cli.store.index.build import rebuild
from webgym_cli.store.index.query import open_index
from webgym_cli.store.run import RunDir
from webgym_cli.store.screenshots import ScreenshotStore
from webgym_cli.util.gc_pause import rare_collections


class PlainConverter:
    """Renders a step and its earlier rounds, and checks nothing."""

    def convert(self, trajectory: Trajectory, index: int) -> Sample:
        """Return the sample of a step."""
        prompt = render_step(trajectory, index)
        return Sample(
            messages=(*prompt.messages, Message(role="assistant", content=trajectory.steps[index].response)),
            images=prompt.images,
            trajectory=trajectory.id,
            step=index,
            iteration=trajectory.iteration,
            reward=trajectory.outcome.reward or 0.0,
        )


def index(run: RunDir, settings: Settings, job: dict[str, Any]) -> dict[str, Any]:
    """Build the index."""
    rebuild(run)
    return {}


@rare_collections()
def draw(run: RunDir, settings: Settings, job: dict[str, Any]) -> dict[str, Any]:
    """Draw the samples and write them."""
    store = ScreenshotStore(run.screenshots)
    with open_index(run) as opened:
        plan = plan_dataset(run, settings, opened)
        samples = StepSampler(plan, run, settings, PlainConverter(), _quiet).execute().samples  # type: ignore[arg-type]
    records = (to_sharegpt(sample, store.locate) for sample in samples)
    Path(job["out"]).write_text(dump_json_array(records), encoding="utf-8")
    return {"samples": len(samples), "eligible": plan.eligible}


def prepare(run: RunDir, settings: Settings, job: dict[str, Any]) -> dict[str, Any]:
    """Run the stage."""
    with open_index(run) as opened:
        plan = plan_dataset(run, settings, opened)
        prepared = execute(plan, run, settings, _quiet)
    return {"samples": prepared.train_samples + prepared.val_samples, "eligible": plan.eligible}


def view(run: RunDir, settings: Settings, job: dict[str, Any]) -> dict[str, Any]:
    """Open the viewer's episodes with their first page, and filter them by words and outcome."""
    begun = time.monotonic()
    with open_index(run) as opened:
        table = EpisodeTable(opened)
        table.list_page(*table.read_filter({}), 0)
        opening = time.monotonic() - begun
        begun = time.monotonic()
        where, values = table.read_filter({"words": "article 1", "outcome": "solved"})
        count = table.count(where, values)
        table.list_page(where, values, 0)
    return {"open": opening, "filter": time.monotonic() - begun, "episodes": table.total, "found": count}


def report(run: RunDir, settings: Settings, job: dict[str, Any]) -> dict[str, Any]:
    """Render the report."""
    with open_index(run) as opened:
        render_report(gather_facts(run, opened, 0, None))
    return {}


JOBS = {"index": index, "draw": draw, "prepare": prepare, "view": view, "report": report}


def _quiet(event: Event) -> None:
    pass


def main() -> int:
    """Read a job from stdin, run it and print the figures."""
    job = json.load(sys.stdin)
    try:
        run, settings = open_run(Path(job["run"]))
        begun = time.monotonic()
        result = JOBS[job["what"]](run, settings, job)
    except WebGymError as error:
        print(f"{error}; {error.hint}" if error.hint else error, file=sys.stderr)
        return error.exit_code
    seconds = time.monotonic() - begun
    print(json.dumps({**result, "seconds": seconds, "peak_mb": peak_mb()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
