"""Makes a task file of new tasks from a run's failed ones, with whatever servers that takes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from webgym_cli.agent.chat import require_server
from webgym_cli.config.generate import GenerateSettings
from webgym_cli.config.model import Settings
from webgym_cli.errors import WebGymError
from webgym_cli.loop.pipeline import Pipeline
from webgym_cli.loop.scoring import reachable_orm, with_named_orm
from webgym_cli.records.events import Event
from webgym_cli.rewards.generate_execute import Generation, generate_in_words
from webgym_cli.rewards.generate_journal import Journal
from webgym_cli.rewards.generate_plan import plan_generation
from webgym_cli.store.files import write_atomic
from webgym_cli.store.index.query import open_index
from webgym_cli.testing.judge_server import MODEL, JudgeServer
from webgym_cli.testing.scripted_judge import SCRIPTED


def settled(settings: Settings) -> Settings:
    """Return the settings with the names that servers tell. Raises `SettingsError` without a model to ask."""
    if settings.generate.base_url != SCRIPTED:
        require_server("generate", settings.generate, "model")
    has_orm = settings.orm.model or settings.orm.base_url
    return with_named_orm(settings) if settings.generate.critic != "none" and has_orm else settings


async def generate(pipeline: Pipeline, out: Path) -> Event:
    """Write new tasks into a file, the others with their reasons beside it, and return the summary.

    Raises `WebGymError` when no task is left, and what `Generation` raises.
    """
    run, sink = pipeline.run, pipeline.sink
    with open_index(run, progress=sink) as index:
        plan = plan_generation(run, pipeline.settings, index)
    told = plan.to_json()
    sink({**told, "message": f"{plan.seeds} failed tasks, at most {told['requests']} requests for new ones"})
    for note in plan.notes:
        sink({"event": "note", "message": note})
    needed = plan.critic == "orm"
    async with _generator(pipeline.settings.generate) as how, reachable_orm(pipeline, needed=needed) as orm:
        work = Generation(plan, how, orm, Journal(beside(out, "asked")), sink)
        summary = {**await work.execute(), "out": str(out)}
    found = work.found
    _write(beside(out, "rejected"), (json.dumps(one.to_json(), ensure_ascii=False) for one in found.rejected))
    pipeline.record(summary, generate_in_words(summary))
    if not found.kept:
        raise WebGymError(
            f"{out}: no new task is left of {len(found.candidates)}; why: {beside(out, 'rejected')}",
            hint="-s generate.requests_per_site=… asks more, -s generate.critic_window='[0,1]' lets more through",
        )
    _write(out, (one.task.model_dump_json() for one in found.kept))
    return summary


def beside(out: Path, what: str) -> Path:
    """Return the neighbour of a task file that has what was `rejected`, or `asked`."""
    return out.with_name(f"{out.name}.{what}.jsonl")


@asynccontextmanager
async def _generator(settings: GenerateSettings) -> AsyncIterator[GenerateSettings]:
    """Give the settings by which the model is asked; the scripted one runs for the time of the block."""
    if settings.base_url != SCRIPTED:
        yield settings
        return
    async with JudgeServer() as server:
        yield settings.model_copy(update={"base_url": server.base_url, "model": MODEL})


def _write(path: Path, lines: Iterable[str]) -> None:
    write_atomic(path, "".join(f"{line}\n" for line in lines))
