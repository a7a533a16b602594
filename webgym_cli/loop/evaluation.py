"""Evaluation of a policy on a benchmark, in a run of its own: its conditions, its episodes, its record."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from webgym_cli.compare.study import list_differences
from webgym_cli.compare.views import describe_record, render_record
from webgym_cli.config.model import Settings
from webgym_cli.errors import StoreError, UsageError, WebGymError
from webgym_cli.evaluate.record import build_record
from webgym_cli.evaluate.results import EpisodeEnd, EpisodeResult, find_verdict, read_results
from webgym_cli.loop.conditions import describe_conditions, describe_judge
from webgym_cli.loop.context import StageContext
from webgym_cli.loop.rollout_setup import plan_current_rollout
from webgym_cli.loop.rollouts import execute_rollout
from webgym_cli.loop.scoring import score
from webgym_cli.records.events import make_event
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.judgement import Judgement
from webgym_cli.records.task import Episode, Split, Task
from webgym_cli.rewards.check_scorer import CheckScorer
from webgym_cli.rewards.judge.judge import compute_settings_digest
from webgym_cli.rewards.judge.scorer import JudgeScorer
from webgym_cli.rewards.selection import ScoringQuery, plan_scoring
from webgym_cli.rollout.draw import EpisodeSampler
from webgym_cli.scoring.check import list_checks
from webgym_cli.store.buffer import read_plan
from webgym_cli.store.run import RunDir
from webgym_cli.tasks.source import index_tasks, open_tasks
from webgym_cli.util.files import read_json, write_atomic, write_json, write_lines
from webgym_cli.util.json_values import as_object, digest_json
from webgym_cli.util.optional import when
from webgym_cli.util.text import format_count

_ELSEWHERE = "leave them as they are, or evaluate into another folder with --out"


@dataclass(frozen=True, slots=True)
class Benchmark:
    """The tasks of an evaluation."""

    source: str
    """A task file, `miniwob:all`, ..."""
    subset: Collection[str] | None = None
    """Ids of the tasks; None: all."""
    episodes: int | None = None
    """Number of task and seed pairs; None: one of each task."""
    digest: str = ""
    """Beginning of the digest that the tasks must have."""


@dataclass(frozen=True, slots=True)
class EvaluationPlan:
    """What an evaluation runs, and under which conditions."""

    run: RunDir
    settings: Settings
    episodes: tuple[Episode, ...]
    base_conditions: Mapping[str, Any]
    """Everything that changes an episode."""
    checks: Mapping[str, str]
    """Digest of each check of the tasks, as it is now."""
    first_checks: Mapping[str, str]
    """The same at the time of the first episode."""
    verdict: Judgement | None
    """The newest verdict of the program that scored tasks without a check."""

    def list_tasks(self) -> list[Task]:
        """Return the distinct tasks of the episodes."""
        return [*{episode.task.key: episode.task for episode in self.episodes}.values()]

    @property
    def scorer(self) -> tuple[str, str]:
        """Name and version of that program; empty without one."""
        name, _, version = self.verdict.models["verdict"].rpartition(" ") if self.verdict else ("", "", "")
        return name, version

    @property
    def all_checks(self) -> dict[str, str]:
        """Digests of the checks and of that program."""
        if self.verdict is None:
            return dict(self.checks)
        return {**self.checks, self.scorer[0]: self.verdict.settings_digest}

    @property
    def judged_by(self) -> str:
        """Digest of the judge's settings; empty without one."""
        return when(self.settings.judge.base_url, compute_settings_digest(self.settings.judge))

    @property
    def conditions(self) -> dict[str, Any]:
        """Everything that changes a number: also judge and checks, which can score stored episodes again."""
        scoring = {**self.base_conditions["scoring"], **when(self.all_checks, {"checks": self.all_checks})}
        judge = describe_judge(self.settings) if self.judged_by else None
        versions = self.base_conditions["versions"] | when(self.verdict, dict([self.scorer]))
        return {**self.base_conditions, "scoring": scoring, "versions": versions, "judge": judge}

    @property
    def record(self) -> Path:
        """File of the record: another one for another judge, for checks that were changed and for others' verdicts."""
        changed = when(self.all_checks != self.first_checks, f"-{digest_json(self.all_checks)[:8]}")
        return self.run.evaluation(f"{self.judged_by[:8] or 'environment'}{changed}")

    def read_results(self) -> list[EpisodeResult]:
        """Return the results of the episodes so far."""
        verdicts = self.verdict.settings_digest if self.verdict else ""
        return read_results(self.run, self.judged_by, self.checks, self.first_checks, verdicts)

    def to_json(self) -> dict[str, Any]:
        """Return what `--dry-run` prints."""
        known = self.read_results() if self.run.exists else ()
        owed = len(self.episodes) - sum(one.end is not EpisodeEnd.PENDING for one in known)
        facts = {"run": str(self.run.root), "record": str(self.record), "written": self.record.exists()}
        counts = {"episodes": len(self.episodes), "owed": owed}
        return {"event": "plan", "stage": "eval", **facts, **counts, **self.conditions}


def draw_episodes(settings: Settings, benchmark: Benchmark) -> tuple[Episode, ...]:
    """Return the episodes of a benchmark, all repeats. Raises `UsageError` for a task that it does not have."""
    tasks = open_tasks(benchmark.source, encrypted=True)
    if benchmark.subset is not None:
        chosen = [task for task in tasks.read(range(len(tasks))) if task.id in benchmark.subset]
        if missing := sorted({*benchmark.subset} - {task.id for task in chosen}):
            raise UsageError(f"{benchmark.source}: there is no task {missing[0]!r}", hint="webgym tasks sample FILE")
        tasks = index_tasks(benchmark.source, chosen)
    sampler = EpisodeSampler.of(tasks, settings, Split.TEST, 0)
    planned: tuple[Episode, ...] = ()
    for repeat in range(settings.rollout.test_repeats):
        planned += sampler.further(benchmark.episodes or len(tasks), planned, repeat=repeat)
    return planned


def plan_evaluation(run: RunDir, settings: Settings, benchmark: Benchmark) -> EvaluationPlan:
    """Return the plan of an evaluation in a folder, new or begun.

    Raises `UsageError` if what is stored there was made under other conditions, or the tasks have another digest.
    """
    begun = run.conditions.is_file()
    episodes = read_plan(run, Split.TEST, 0) if begun else draw_episodes(settings, benchmark)
    conditions = describe_conditions(run, settings, benchmark.source, episodes)
    checks = first_checks = list_checks(episode.task for episode in episodes)
    own = conditions["tasks"]["digest"]
    if not own.startswith(benchmark.digest):
        raise UsageError(f"{benchmark.source}: the digest of its tasks is {own}, not {benchmark.digest}")
    if begun:
        if not isinstance(stored := read_json(run.conditions), dict):
            raise StoreError(f"{run.conditions}: no conditions of an evaluation", hint="restore it from a copy")
        first_checks = as_object(stored.get("scoring")).pop("checks", checks)  # older folders don't have it
        if different := list_differences(stored, conditions):
            raise UsageError(
                f"{run.root}: its episodes were made under other conditions: {'; '.join(different)}", hint=_ELSEWHERE
            )
        conditions = stored
    verdict = find_verdict(run, episodes) if run.exists else None
    return EvaluationPlan(run, settings, episodes, conditions, checks, first_checks, verdict)


async def evaluate(context: StageContext, plan: EvaluationPlan) -> dict[str, Any]:
    """Run what is missing, write the record and its page, and return the record. A written record stays as it is."""
    run = plan.run
    if not run.conditions.is_file():
        write_lines(run.plan(Split.TEST, 0), (episode.model_dump(mode="json") for episode in plan.episodes))
        write_json(run.conditions, {name: of for name, of in plan.conditions.items() if name != "judge"})
    if not plan.record.exists():
        results = await _finish_episodes(context, plan)
        cost, models = context.settings.cost, plan.settings.policy_models
        write_json(plan.record, build_record(plan.conditions, results, cost, models))
    record: dict[str, Any] = read_json(plan.record)
    write_atomic(plan.record.with_suffix(".html"), render_record(record))
    shown = ("episodes", "valid", "blocked", "failed", "overall", "valid_only")
    facts = {"record": str(plan.record), **{name: record[name] for name in shown}}
    context.sink(make_event("eval", message=describe_record(record), **facts))
    return record


async def _finish_episodes(context: StageContext, plan: EvaluationPlan) -> list[EpisodeResult]:
    """Return the results of all episodes, after the missing ones were run, checked and judged."""
    run, settings, count = plan.run, context.settings, plan.conditions["tasks"]["episodes"]
    rollout = plan_current_rollout(run, settings, Split.TEST, settings.rollout.policy, count)
    if rollout.owed:
        await execute_rollout(context, replace(rollout, unjudged=_list_unjudged(plan)))
    if ids := tuple(one.trajectory for one in plan.read_results() if one.end is EpisodeEnd.UNCHECKED):
        await score(context, plan_scoring(run, CheckScorer(settings), ScoringQuery(split=Split.TEST, ids=ids)))
    if (ids := _list_unjudged(plan)) and plan.judged_by:
        scorer = JudgeScorer(settings.judge, run)
        await score(context, plan_scoring(run, scorer, ScoringQuery(split=Split.TEST, ids=ids)))
    results = plan.read_results()
    _require_results(run, results)
    return results


def _list_unjudged(plan: EvaluationPlan) -> tuple[str, ...]:
    # A judge that was down is asked again. An answer that can't be read is a failure that counts: a second try after an
    # interruption would change the record.
    waiting = (one for one in plan.read_results() if one.end is EpisodeEnd.UNSCORED or one.unavailable)
    return tuple(one.trajectory for one in waiting)


def _require_results(run: RunDir, results: Sequence[EpisodeResult]) -> None:
    """Raise `WebGymError` if an episode has no result yet: what is written stays as it is."""
    hint = f"webgym resume {run.root}"
    if pending := sum(one.end is EpisodeEnd.PENDING or one.failure in _STOPPED for one in results):
        raise WebGymError(f"{format_count(pending, 'episode')} still to run: there is no record yet", hint=hint)
    if unchecked := sum(one.end is EpisodeEnd.UNCHECKED for one in results):
        reason = "their check was changed, and fails or needs the live page"
        raise WebGymError(f"{format_count(unchecked, 'episode')} can't be scored again: {reason}", hint=_ELSEWHERE)
    if silent := sum(one.unavailable for one in results):
        raise WebGymError(f"the judge did not answer about {format_count(silent, 'episode')}", hint=hint)
    if unscored := [one for one in results if one.end is EpisodeEnd.UNSCORED]:
        hint = "add -s judge.base_url=http://HOST:PORT/v1 -s judge.model=NAME to the same command"
        if any("verified" in one.episode.task.extra for one in unscored):
            hint = f"score an export by webarena-verified, then webgym score {run.root} --verdicts DIR"
        reason = "have no score, and there is no judge to give one"
        raise WebGymError(f"{format_count(len(unscored), 'episode')} {reason}", hint=hint)


# Failures after which an episode is still to be run: they say nothing about the site either.
_STOPPED = {
    kind for kind in FailureKind if kind is FailureKind.CANCELLED or (kind.retryable and not kind.counts_as_attempt)
}
