"""Preparation of an iteration's training data: a dataset for imitation, or a batch for policy gradients."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import cast

from webgym_cli.agent.client.chat import require_address
from webgym_cli.agent.client.prompt_logprobs import PromptLogprobs
from webgym_cli.agent.tokens.tokens import ModelTokens
from webgym_cli.config.model import Settings
from webgym_cli.errors import JobError, VenvError
from webgym_cli.jobs.signals import interruptible
from webgym_cli.jobs.workers import race
from webgym_cli.loop.context import StageContext
from webgym_cli.prepare.batch import describe_batch
from webgym_cli.prepare.rl import execute as gradients
from webgym_cli.prepare.rl import filter_groups
from webgym_cli.prepare.rl.plan import RlPlan, plan_batch
from webgym_cli.prepare.rl.replay_plan import ReplayPlan
from webgym_cli.prepare.rl.score import ClientFactory, LogprobScoring, ScoringResult
from webgym_cli.prepare.sft import execute as imitation
from webgym_cli.prepare.sft import training_files
from webgym_cli.prepare.sft.plan import PreparePlan, plan_dataset, refuse_empty
from webgym_cli.records.batch import BatchSelection
from webgym_cli.records.dataset import Prepared, RlData
from webgym_cli.records.events import Event, EventSink, make_event
from webgym_cli.records.task import Split
from webgym_cli.rollout.plan import RolloutPlan
from webgym_cli.store.batches import append_batch, measure_ends, require_turns
from webgym_cli.store.checkpoints import policy_path
from webgym_cli.store.index.query import Index, open_index
from webgym_cli.store.metrics import append_event
from webgym_cli.store.run import RunDir
from webgym_cli.train.registry import current_backend


def plan_preparation(
    run: RunDir, settings: Settings, index: Index, selection: BatchSelection | None = None
) -> PreparePlan | RlPlan:
    """Return the plan of the training data of the current iteration or of a selection.

    Raises the errors of `plan_dataset` and `plan_batch`.
    """
    if selection is None:
        require_turns(run)
    backend = current_backend(run, settings)
    if backend.data == "dataset":
        return plan_dataset(run, settings, index, selection)
    return plan_batch(
        run,
        settings,
        index,
        transitions=backend.data == "transitions",
        anchors=backend.data == "steps",
        group_relative=backend.group_relative,
        selection=selection,
    )


def count_missing_episodes(run: RunDir, settings: Settings, plan: RolloutPlan) -> int:
    """Return the number of episodes to roll out as replacement of filtered groups without gradient."""
    backend = current_backend(run, settings)
    if plan.split is not Split.TRAIN or backend.data not in ("batch", "steps"):
        return 0
    if not filter_groups.filters_groups(settings, group_relative=backend.group_relative):
        return 0
    with open_index(run) as index:
        return filter_groups.count_missing_episodes(run, settings, index, plan.iteration, plan.wanted)


async def prepare(context: StageContext, *, again: bool = False) -> Prepared | RlData:
    """Write the training data of the current iteration unless it is up to date (`again`: always); return its record."""
    run, settings, sink, began = context.run, context.settings, context.sink, time.monotonic()
    with ExitStack() as stack:
        with interruptible():
            index = stack.enter_context(open_index(run, progress=sink))
            plan = plan_preparation(run, settings, index)
            _enter_ledger(plan, run, settings, index, measure_ends(run, plan.read))
            if not again and (prepared := _find_made(plan, run, settings)):
                return prepared
        replay = plan.replay if isinstance(plan, RlPlan) else None
        weights = None if replay is None else await _score_replay(replay, context)
        with interruptible():
            prepared = _write(plan, run, settings, sink, weights)
    await _note_prepared(context, prepared, began)
    return prepared


async def prepare_selection(context: StageContext, selection: BatchSelection) -> Prepared | RlData:
    """Write the training data of a selection unless it is up to date, in a thread. Return its record."""
    began, loop = time.monotonic(), asyncio.get_running_loop()

    def sink(event: Event) -> None:
        loop.call_soon_threadsafe(context.sink, event)

    # Not `asyncio.to_thread`, which copies the context: `interruptible` would set signal handlers in that thread.
    prepared, fresh = await loop.run_in_executor(
        None, _prepare_selection, context.run, context.settings, sink, selection
    )
    if fresh:
        await _note_prepared(context, prepared, began)
    return prepared


def _prepare_selection(
    run: RunDir, settings: Settings, sink: EventSink, selection: BatchSelection
) -> tuple[Prepared | RlData, bool]:
    """Return the record of the selection's data, and whether it was written now. Uses no event loop."""
    with open_index(run, progress=sink, as_of=selection.as_of) as index:
        plan = plan_preparation(run, settings, index, selection)
        _enter_ledger(plan, run, settings, index, selection.as_of, selection)
        if prepared := _find_made(plan, run, settings):
            return prepared, False
        return _write(plan, run, settings, sink), True


async def _note_prepared(context: StageContext, prepared: Prepared | RlData, began: float) -> None:
    facts = prepared.facts() if isinstance(prepared, RlData) else prepared.model_dump(mode="json", by_alias=True)
    append_event(context.run, make_event("prepare", **facts, seconds=round(time.monotonic() - began, 2)))
    context.tracker.note()
    await check_prepared(context.run, context.settings, context.logs, context.sink)


def _enter_ledger(
    plan: PreparePlan | RlPlan,
    run: RunDir,
    settings: Settings,
    index: Index,
    as_of: Mapping[str, int],
    selection: BatchSelection | None = None,
) -> None:
    """Record a batch in the ledger before its data is written. Raises `WebGymError` for an empty dataset."""
    if isinstance(plan, PreparePlan):
        refuse_empty(plan, run)
    append_batch(run, describe_batch(plan, run, settings, index, as_of, selection))


def _find_made(plan: PreparePlan | RlPlan, run: RunDir, settings: Settings) -> Prepared | RlData | None:
    """Return the prepared data if its digest equals the plan's, else None."""
    if isinstance(plan, RlPlan):
        batch = gradients.read_rl_data(run)
        return batch if batch is not None and batch.plan_digest == plan.digest() else None
    dataset = training_files.read_prepared(run)
    return dataset if dataset is not None and dataset.plan_digest == plan.digest(settings) else None


def _write(
    plan: PreparePlan | RlPlan,
    run: RunDir,
    settings: Settings,
    sink: EventSink,
    weights: ScoringResult | None = None,
) -> Prepared | RlData:
    if isinstance(plan, RlPlan):
        return gradients.execute(plan, run, settings, sink, weights)
    return imitation.execute(plan, run, settings, sink)


async def _score_replay(plan: ReplayPlan, context: StageContext) -> ScoringResult:
    """Score replay experience with the current policy; its server is started only for uncached log-probabilities."""
    run, settings = context.run, context.settings
    tokens = ModelTokens(str(policy_path(run, settings)))
    limit = settings.rl.data.max_row_tokens
    started = asyncio.Event()

    async def watch() -> None:
        await started.wait()
        await context.serving.watch()

    async with _open_client_factory(context, started) as reach:
        scoring = LogprobScoring(plan, run, tokens, context.sink, limit=limit, make_client=reach)
        # A server that hangs would be waited for as long as all retries of its requests take.
        async with race(scoring.execute(), watch()) as (scored, watched):
            if not scored.done():
                watched.result()
            return cast(ScoringResult, await scored)


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
            own = how.model_copy(update={"model": name, "api_key_env_var": ""})
            clients.append(PromptLogprobs(own, await context.serving.current()))
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


def format_preparation(prepared: Prepared | RlData, run: RunDir) -> str:
    """Return a one-line summary of the prepared data."""
    if isinstance(prepared, RlData):
        replayed = "" if prepared.replayed_rows is None else f" ({prepared.replayed_rows} of them replayed)"
        counts = f"{prepared.trained} trajectories in {prepared.rows} rows{replayed}"
        return f"{counts}, {prepared.trained_tokens} trained tokens in {run.rl_data}"
    return f"{prepared.train_samples} training and {prepared.val_samples} validation samples in {run.dataset}"
