"""Preparation of training data: a dataset for imitation, or a batch for policy gradients."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from itertools import chain, groupby
from pathlib import Path
from typing import Any

from webgym_cli.agent.client.chat import require_address
from webgym_cli.agent.client.prompt_logprobs import ClientFactory, PromptLogprobs
from webgym_cli.config.model import Settings
from webgym_cli.errors import JobError, VenvError
from webgym_cli.jobs.signals import interruptible
from webgym_cli.jobs.workers import race
from webgym_cli.loop.context import StageContext
from webgym_cli.loop.training import current_data
from webgym_cli.prepare.data import DataPlan, Plan, PreparedData
from webgym_cli.prepare.rl import attempts
from webgym_cli.prepare.rl.drop_reasons import MaskReason
from webgym_cli.records.batch import BatchGroup, BatchSelection, DroppedGroup, TrainingBatch
from webgym_cli.records.dataset import PreparedRecord
from webgym_cli.records.events import Event, EventSink, make_event
from webgym_cli.records.task import Split
from webgym_cli.rollout.plan import RolloutPlan
from webgym_cli.store.checkpoints import policy_name
from webgym_cli.store.index.query import Index, open_index
from webgym_cli.store.metrics import append_batch, append_event, is_async, measure_ends, read_events, require_turns
from webgym_cli.store.run import RunDir, now
from webgym_cli.train.registry import current_backend
from webgym_cli.util.optional import group_by


def plan_preparation(run: RunDir, settings: Settings, index: Index) -> DataPlan:
    """Return the plan of the training data of the current iteration.

    Raises the errors of the kind of data: see `PreparedData.plan`.
    """
    require_turns(run)
    plan: DataPlan = current_data(run, settings).plan(run, settings, index)
    return plan


def is_up_to_date(run: RunDir, settings: Settings, index: Index) -> bool:
    """Whether `prepare` would leave the written data as it is; true for data that was made by other means."""
    data = current_data(run, settings)
    prepared = data.find_written(run)
    if prepared is None or not prepared.plan_digest or not run.list_iterations(Split.TRAIN) or is_async(run):
        return True
    return _find_made(data, plan_preparation(run, settings, index), run) is not None


def count_missing_episodes(run: RunDir, settings: Settings, plan: RolloutPlan) -> int:
    """Return the number of episodes to roll out as replacement of filtered groups without gradient."""
    if plan.split is not Split.TRAIN or not current_data(run, settings).filters_groups(run, settings):
        return 0
    with open_index(run) as index:
        return attempts.count_missing_episodes(run, settings, index, plan.iteration, plan.wanted)


async def prepare(context: StageContext, *, again: bool = False) -> PreparedRecord:
    """Write the training data of the current iteration unless it is up to date (`again`: always); return its record."""
    run, settings, sink, began = context.run, context.settings, context.sink, time.monotonic()
    data = current_data(run, settings)
    with ExitStack() as stack:
        with interruptible():
            index = stack.enter_context(open_index(run, progress=sink))
            plan = plan_preparation(run, settings, index)
            data.require_content(plan, run)
            append_batch(run, describe_batch(data, plan, run, settings, index))  # before the data is written
            prepared = None if again else _find_made(data, plan, run)
        if is_new := prepared is None:
            scores = await _score(data, plan, context)
            with interruptible():
                prepared = data.write(plan, run, settings, sink, scores)
    await _note_prepared(context, prepared, began, is_new=is_new)
    return prepared


async def prepare_selection(context: StageContext, selection: BatchSelection) -> PreparedRecord:
    """Write the training data of a selection unless it is up to date, in a thread. Return its record."""
    began, loop = time.monotonic(), asyncio.get_running_loop()

    def sink(event: Event) -> None:
        loop.call_soon_threadsafe(context.sink, event)

    # Not `asyncio.to_thread`, which copies the context: `interruptible` would set signal handlers in that thread.
    prepared = await loop.run_in_executor(None, _prepare_selection, context.run, context.settings, sink, selection)
    await _note_prepared(context, prepared, began)
    return prepared


def _prepare_selection(run: RunDir, settings: Settings, sink: EventSink, selection: BatchSelection) -> PreparedRecord:
    """Return the record of the selection's data, which is written unless it is up to date. Uses no event loop."""
    data = current_data(run, settings)
    with open_index(run, progress=sink, as_of=selection.as_of) as index:
        plan = data.plan(run, settings, index, selection)
        data.require_content(plan, run)
        append_batch(run, describe_batch(data, plan, run, settings, index, selection))
        return _find_made(data, plan, run) or data.write(plan, run, settings, sink, None)


async def _note_prepared(
    context: StageContext, prepared: PreparedRecord, began: float, *, is_new: bool = False
) -> None:
    """Record and check data that is new, or not in the metrics: a signal came once it was written."""
    run, of = context.run, {"model_name": prepared.model_name, "plan_digest": prepared.plan_digest}.items()
    if is_new or not any(event.items() >= of for event in read_events(run, "prepare")):
        append_event(run, make_event("prepare", **prepared.facts(), seconds=round(time.monotonic() - began, 2)))
        context.tracker.note()
        await check_prepared(run, context.settings, context.logs, context.sink)


def _find_made(data: PreparedData[Plan], plan: Plan, run: RunDir) -> PreparedRecord | None:
    """Return the prepared data if an equal plan made it, else None."""
    prepared = data.find_written(run)
    return prepared if prepared is not None and data.is_made_by(prepared, plan) else None


async def _score(data: PreparedData[Plan], plan: Plan, context: StageContext) -> Any:
    """Score replay experience with the current policy; None if the plan needs no scores.

    The policy's server is started only for uncached log-probabilities.
    """
    if not data.needs_scores(plan):
        return None
    started = asyncio.Event()

    async def watch() -> None:
        await started.wait()
        await context.serving.watch()

    async with _open_client_factory(context, started) as reach:
        scoring = data.score(plan, context.run, context.settings, context.sink, reach)
        # A server that hangs would be waited for as long as all retries of its requests take.
        async with race(scoring, watch()) as (scored, watched):
            if not scored.done():
                watched.result()
            return await scored


@asynccontextmanager
async def _open_client_factory(context: StageContext, started: asyncio.Event) -> AsyncIterator[ClientFactory]:
    """Yield a factory of clients for the policy's server (configured or webgym's own); close the clients afterwards.

    `started` is set once webgym's own server runs.
    """
    settings, how = context.settings, context.settings.rl.replay
    clients: list[PromptLogprobs] = []

    async def reach() -> PromptLogprobs:
        name = settings.serve.served_model_name
        if how.base_url:
            clients.append(PromptLogprobs(how.model_copy(update={"model": how.model or name})))
        else:
            base_urls = await context.serving.current()
            # a LoRA policy may be served as an adapter, beside the weights that it was trained on
            own = how.model_copy(update={"model": context.serving.policy.model or name, "api_key_env_var": ""})
            clients.append(PromptLogprobs(own, base_urls))
            started.set()
        return clients[-1]

    if how.base_url:
        require_address("rl.replay", how.base_url, "-s rl.replay.base_url=http://HOST:PORT/v1")
    try:
        yield reach
    finally:
        for client in clients:
            await client.close()


async def check_prepared(run: RunDir, settings: Settings, logs: Path, sink: EventSink) -> None:
    """Raise `SettingsError` if training would refuse its data; a check that can't run here is left to training."""
    try:
        await current_backend(run, settings).check_data(run, settings, logs)
    except (JobError, VenvError) as error:
        message = f"whether training reads what the model was served is left to be checked by webgym train: {error}"
        sink(make_event("note", message=message))


def format_preparation(prepared: PreparedRecord, run: RunDir, settings: Settings) -> str:
    """Return a one-line summary of the prepared data."""
    return f"{prepared.summarize()} in {current_data(run, settings).folder(run)}"


_STALENESS = """
SELECT $parent - coalesce(policy_version, $parent) AS age, sum(coalesce(response_tokens, 1))::BIGINT AS tokens
FROM steps WHERE split = 'train' AND list_contains($iterations, iteration) AND list_contains($ids, trajectory)
GROUP BY age ORDER BY age
"""
# Reasons for which a group is replaced by rolling out another one.
REPLACED = frozenset({MaskReason.NO_VARIANCE, MaskReason.STALE})


def describe_batch(
    data: PreparedData[Plan],
    plan: Plan,
    run: RunDir,
    settings: Settings,
    index: Index,
    selection: BatchSelection | None = None,
) -> TrainingBatch:
    """Return the ledger entry of a planned batch; the plan's index must be open. `selection`: the planned selection."""
    # measured first: what another command appends meanwhile was not seen
    as_of = measure_ends(run, plan.read) if selection is None else dict(selection.as_of)
    rows = list(data.list_members(plan, run, settings, index, selection))
    groups = tuple(
        BatchGroup(id=name, trajectories=tuple(row["id"] for row in members))
        for name, members in groupby((row for row in rows if row["reason"] is None), key=lambda row: row["group_id"])
    )
    ids = list(chain.from_iterable(group.trajectories for group in groups))
    ages = index.rows(_STALENESS, {"parent": plan.iteration, "iterations": list(plan.read), "ids": ids})
    counted = {row["episode"] for row in rows if row["reason"] not in REPLACED}
    return TrainingBatch(
        parent=plan.iteration,
        policy=policy_name(run, settings),
        mode="sync" if selection is None else "async",
        iterations=tuple(plan.read),
        groups=groups,
        dropped=tuple(_list_dropped(rows)),
        episodes=len(counted) if selection is None else selection.episodes,
        staleness={row["age"]: row["tokens"] for row in ages},
        as_of=as_of,
        plan_digest=plan.digest(),
        config_digest=hashlib.sha256(settings.model_dump_json().encode()).hexdigest(),
        created_at=now(),
    )


def _list_dropped(rows: list[dict[str, Any]]) -> Iterator[DroppedGroup]:
    dropped = (row for row in rows if row["reason"] is not None)
    parts = group_by(dropped, lambda row: (row["group_id"], row["reason"]))
    for (name, reason), of_group in parts.items():
        yield DroppedGroup(
            id=name,
            reason=reason,
            trajectories=tuple(row["id"] for row in of_group),
            rewards=tuple(row["reward"] for row in of_group),
        )
