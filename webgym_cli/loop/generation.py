"""Generation of a task file from a run's failed tasks, with the servers that it needs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from webgym_cli.agent.client.chat import RequestCounter, require_endpoint
from webgym_cli.agent.prompt import render
from webgym_cli.agent.tokens.tokens import ModelTokens
from webgym_cli.config.model import Settings
from webgym_cli.config.model_servers import is_model_server
from webgym_cli.curriculum.execute import TaskGeneration, format_generation_summary
from webgym_cli.curriculum.filters import Rejection, TaskCandidate
from webgym_cli.curriculum.journal import AnswerJournal
from webgym_cli.curriculum.paraphrase import Paraphrasing
from webgym_cli.curriculum.plan import GenerationPlan, plan_generation
from webgym_cli.errors import MissingStageError, SettingsError, WebGymError
from webgym_cli.loop.context import StageContext
from webgym_cli.loop.scoring import reachable_orm, resolve_orm_model
from webgym_cli.records.events import make_event
from webgym_cli.records.trajectory import Observation
from webgym_cli.store.checkpoints import policy_path
from webgym_cli.store.index.query import Index, open_index
from webgym_cli.store.metrics import append_event
from webgym_cli.store.run import RunDir
from webgym_cli.store.screenshots import ScreenshotStore
from webgym_cli.tasks.expand import TaskTemplates
from webgym_cli.train.policy_gradient.critic_scoring import CriticState, outcome_critic, success_probabilities
from webgym_cli.util.files import write_atomic, write_lines


def require_generator(settings: Settings) -> None:
    """Raise `SettingsError` if no generator model is configured."""
    address, hint = settings.generate.base_url, "-s generate.base_url=http://HOST:PORT/v1"
    if not address:
        raise SettingsError("generate.base_url is empty: there is no model to ask", hint=hint)
    if not is_model_server(address):
        require_endpoint("generate", settings.generate, hint)


def resolve_settings(settings: Settings) -> Settings:
    """Return the settings with the ORM name queried from its server. Raises `SettingsError` without a generator."""
    require_generator(settings)
    has_orm = settings.orm.model or settings.orm.base_url
    return resolve_orm_model(settings) if settings.generate.critic != "none" and has_orm else settings


def plan_next(run: RunDir, settings: Settings, index: Index) -> GenerationPlan:
    """Return the plan of a generation from the failed tasks of a run as it is now. Raises `WebGymError`."""
    return plan_generation(run, settings, index, has_critic=outcome_critic(run) is not None)


async def generate_next(context: StageContext, out: Path) -> dict[str, Any]:
    """Plan and execute a generation. Raises the errors of `plan_next` and `generate`."""
    with open_index(context.run, progress=context.sink) as index:
        plan = plan_next(context.run, context.settings, index)
    return await generate(context, plan, out)


async def generate(context: StageContext, plan: GenerationPlan, out: Path) -> dict[str, Any]:
    """Write the accepted tasks to `out`, the rejected ones with reasons to a sibling file; return the summary.

    Raises `WebGymError` if no task is accepted, and the errors of `TaskGeneration`.
    """
    run, sink, budget = context.run, context.sink, context.budget

    def store(request: RequestCounter) -> None:  # at once: a command that is killed has paid for it
        model, tokens = context.settings.generate.model, request.tokens
        budget.add(tokens, (model,))
        facts = {"model": model, "calls": request.calls, "tokens": tokens.model_dump()}
        append_event(run, make_event("generator_tokens", **facts))

    facts: dict[str, Any] = plan.to_json()
    sink(make_event(**facts, message=f"{plan.seeds} failed tasks, at most {facts['requests']} requests for new ones"))
    for note in plan.notes:
        sink({"event": "note", "message": note})
    needed = plan.critic == "orm"
    async with context.settings.generate.reach() as how, reachable_orm(context, needed=needed) as orm:
        values = partial(_values, context) if plan.critic == "critic" else None
        work = TaskGeneration(plan, how, orm, AnswerJournal(sibling_path(out, "asked")), sink, values, store)
        summary = await work.execute() | {"out": str(out)}
    write_lines(sibling_path(out, "rejected"), (one.to_json() for one in work.candidates if one.rejection is not None))
    context.record(make_event(**summary), format_generation_summary(summary))
    if not work.kept:
        hint = "-s generate.requests_per_site=… asks more, -s generate.critic_window='[0,1]' lets more through"
        if {one.rejection for one in work.candidates} == {Rejection.NO_CHECK}:
            hint = "name the templates' values as {NAME} in their instructions: those of {NAME.COLUMN} are unknown"
        raise WebGymError(
            f"{out}: no new task is left of {len(work.candidates)}; why: {sibling_path(out, 'rejected')}", hint=hint
        )
    write_atomic(out, "".join(f"{one.task.model_dump_json()}\n" for one in work.kept))
    return summary


async def paraphrase(
    settings: Settings, templates: TaskTemplates, count: int, out: Path
) -> tuple[TaskTemplates, list[str]]:
    """Return templates with `count` paraphrases each for the task file `out`, and a line for each that is dropped.

    Raises `SettingsError` without a model, and the errors of `Paraphrasing`.
    """
    require_generator(settings)
    async with settings.generate.reach() as how:
        work = Paraphrasing(templates, count, how, AnswerJournal(sibling_path(out, "asked")))
        return await work.execute(), work.dropped


async def _values(context: StageContext, candidates: Sequence[TaskCandidate]) -> list[list[float]]:
    """Return success probabilities at the first step, for each head of the policy's critic."""
    run, settings = context.run, context.settings
    critic = outcome_critic(run)
    if critic is None:
        raise MissingStageError(
            f"{run.root}: the critic of the current policy is gone", hint=f"webgym train {run.root}"
        )
    policy = Path(policy_path(run, settings))
    tokens, store = ModelTokens(str(policy)), ScreenshotStore(run.screenshots)
    states = [_first_state(candidate, tokens, store) for candidate in candidates]
    return await success_probabilities(critic, policy, states, settings, context.logs / "critic.log")


def _first_state(candidate: TaskCandidate, tokens: ModelTokens, store: ScreenshotStore) -> CriticState:
    """Return the critic's input for the policy's first prompt of a candidate task."""
    start, task = candidate.request.group.start, candidate.task
    page = start.page or Observation(url=task.start_url)
    prompt = render(start.prompt, task.instruction, task.start_url, (), page)
    sizes = {picture.sha256: (picture.width, picture.height) for picture in page.pictures}
    seen = [sizes[sha256] for sha256 in prompt.images]
    return CriticState(tokens.prompt_ids(prompt.messages, seen), [store.path(one) for one in prompt.images], seen)


def sibling_path(out: Path, what: str) -> Path:
    """Return the sibling path of a task file for its `rejected` tasks or `asked` requests."""
    return out.with_name(f"{out.name}.{what}.jsonl")
