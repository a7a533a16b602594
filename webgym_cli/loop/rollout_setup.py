"""Set-up of a rollout: its plan, sites and judge, and its summary message."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from webgym_cli.agent.actions.action_sets import ACTION_SETS
from webgym_cli.config.model import Settings
from webgym_cli.environments.registry import (
    check_tasks,
    count_unscored,
    describe_isolation,
    list_refused,
    list_silent,
    log_in_to_sites,
    require_experts,
)
from webgym_cli.errors import BelowThresholdError, SettingsError, UsageError, WebGymError
from webgym_cli.records.events import EventSink, RolloutSummary, make_event
from webgym_cli.records.series import ORACLE, VLLM
from webgym_cli.records.task import Split, Task
from webgym_cli.rewards.judge.judge import Judge
from webgym_cli.rollout.judging import TrajectoryJudge
from webgym_cli.rollout.plan import RolloutPlan, again_command, plan_rollout
from webgym_cli.rollout.resources import policy_urls
from webgym_cli.store.checkpoints import select_version, version
from webgym_cli.store.metrics import Blocklist, require_turns
from webgym_cli.store.run import RunDir
from webgym_cli.util.text import format_count, split_command


def plan_current_rollout(
    run: RunDir,
    settings: Settings,
    split: Split,
    policy: str,
    episodes: int | None = None,
    *,
    iteration: int | None = None,
    again: bool = False,
) -> RolloutPlan:
    """Return the plan of the current or given iteration, without sites on the run's blocklist.

    `again`: episodes that were given up are tried again.

    Raises `UsageError` for an invalid policy, and for tasks that it can't act on.
    """
    if split is Split.TRAIN and iteration is None:
        require_turns(run)
    blocked = Blocklist(run, settings.rollout.blocklist_hours).sites()
    number = version(run) if iteration is None else iteration
    plan = plan_rollout(run, settings, split, number, episodes, policy, blocked, again=again)
    check_policy(settings, policy, [owed.episode.task for owed in plan.owed], split)
    tasks = plan.list_tasks()
    notes = [*plan.notes, *list_unscored(settings, tasks), *list_refused(settings, tasks)]
    if split is Split.TRAIN:
        notes += _list_too_large(settings)
    return replace(plan, notes=tuple(notes))


def list_unscored(settings: Settings, tasks: Collection[Task]) -> list[str]:
    """Return a note if nothing scores some of the tasks."""
    if count := count_unscored(settings, tasks):
        return [f"{format_count(count, 'task')} without a check, and judge.base_url is empty: nothing scores them"]
    return []


def _list_too_large(settings: Settings) -> list[str]:
    """Return a note if screenshots of the viewport are above the limit, which a run keeps: none could be trained."""
    browser, limit = settings.browser, settings.image.image_max_pixels
    is_shown = ACTION_SETS.find(str(settings.context_config.prompt_version)).observes == "picture"
    if not is_shown or browser.width * browser.height <= limit:
        return []
    shown = f"screenshots of {browser.width} x {browser.height} pixels (browser.width, browser.height)"
    return [f"{shown} are above image.image_max_pixels ({limit}), which a run keeps: prepare would drop them all"]


async def note_silent_sites(plan: RolloutPlan, settings: Settings) -> RolloutPlan:
    """Return the plan with a note on each site of its pending episodes that does not answer now."""
    return replace(plan, notes=(*plan.notes, *await list_silent(settings, plan.list_tasks())))


def select_evaluated(run: RunDir, number: int, split: Split, policy: str) -> RunDir:
    """Return the run with an older policy version as the current one. Raises `UsageError` if that can't act."""
    if split is not Split.TEST or policy != VLLM:
        what = f"--policy {policy}" if policy != VLLM else f"--split {split}"
        raise UsageError(
            f"--version: {what} does not evaluate weights of the run",
            hint=f"webgym rollout {run.root} --split test --policy vllm --version {number}",
        )
    return select_version(run, number)


def parse_command(text: str) -> list[str]:
    """Return the words of `rollout.agent`, which no shell reads. Raises `SettingsError`, also without its program."""
    try:
        words = split_command(text)
    except ValueError as error:
        raise SettingsError(f"rollout.agent: {text!r}: {error}", hint="quote it as a shell does") from None
    if not words or shutil.which(words[0]) is None:
        raise SettingsError(
            f"rollout.agent: {text!r}: its first word is no program that can be started",
            hint="no shell reads it: ~, $NAME and NAME=value are not replaced, and a path with spaces needs quotes",
        )
    return words


def check_policy(settings: Settings, policy: str, tasks: Collection[Task], split: Split) -> None:
    """Raise `UsageError` for an invalid policy, agent or action set, and for tasks that the policy can't act on."""
    ACTION_SETS.find(str(settings.context_config.prompt_version))
    if policy == ORACLE:
        require_experts(settings, tasks)
    elif tasks and settings.rollout.agent:
        parse_command(settings.rollout.agent)
    if policy not in (ORACLE, VLLM):
        policy_urls(policy)
    check_tasks(settings, tasks, split)


async def enter_sites(plan: RolloutPlan, settings: Settings, sink: EventSink) -> None:
    """Emit how the sites of the plan keep episodes apart, and log in to them.

    Raises `WebGymError` if that fails.
    """
    if not plan.sites:
        return
    require_one_environment(plan)
    sites = dict(plan.sites)
    sink(make_event("sites", sites=sites, message=describe_isolation(sites)))
    entered = await log_in_to_sites(settings, [owed.episode.task for owed in plan.owed])
    if entered:
        sink(make_event("login", sites=list(entered), message=f"logged in to {', '.join(entered)}"))


def require_one_environment(plan: RolloutPlan) -> str:
    """Return the environment of the plan's episodes; empty if none is owed. Raises `WebGymError` for several."""
    if not plan.owed:
        return ""
    names = {episode.task.environment for episode in plan.episodes}
    if len(names) != 1:
        raise WebGymError(f"the tasks of one rollout need one environment, found: {', '.join(sorted(names))}")
    return names.pop()


@asynccontextmanager
async def open_judge(run: RunDir, settings: Settings) -> AsyncIterator[TrajectoryJudge | None]:
    """Yield the function that judges trajectories; None if `judge.base_url` is empty."""
    if not settings.judge.base_url:
        yield None
        return
    async with settings.judge.reach() as reachable:
        judge = Judge(reachable, run)
        try:
            yield judge.judge
        finally:
            await judge.close()


def require_success(summary: Mapping[str, Any], wanted: float | None) -> None:
    """Raise `BelowThresholdError` if the success rate is below `wanted`, or unknown."""
    rate = summary["success_rate"]
    if wanted is not None and (rate is None or rate < wanted):
        raise BelowThresholdError(f"success rate {rate} is below --min-success {wanted}")


def format_plan(plan: RolloutPlan) -> str:
    """Return a one-line description of a planned rollout."""
    counts = ((plan.done, "stored"), (plan.given_up, "given up"), (plan.blocked, "on blocked sites"))
    others = "".join(f", {count} {words}" for count, words in counts if count)
    return f"{plan.split} episodes of iteration {plan.iteration}: {len(plan.owed)} to run{others}"


def advise_next(run: str, summary: RolloutSummary) -> str:
    """Return the next command after a rollout."""
    if summary["skipped"]:
        count = format_count(summary["skipped"], "episode")
        return f"webgym rollout {run}   ({count} wait until their sites are off the blocklist)"
    if summary["unjudged"]:
        return f"webgym judge {run}"
    return f"webgym prepare {run}" if summary["split"] == Split.TRAIN else f"webgym inspect-buffer {run} --split test"


def format_rollout_summary(summary: RolloutSummary) -> str:
    """Return a one-line summary of a rollout."""
    rate = summary["success_rate"]
    low, high = summary["interval"]
    success = "no reward known" if rate is None else f"success {rate:.3f} ({low:.3f}-{high:.3f})"
    if (mean := summary.get("mean_reward", rate)) != rate:
        success += f", mean reward {mean:.3f}"
    failed = ", ".join(f"{count} x {kind}" for kind, count in summary["failures"].items())
    facts = [format_count(summary["episodes"], "episode"), success, f"{summary['steps_per_second']} steps/s"]
    counts = (
        (summary["unjudged"], "wait for a judge (webgym judge)"),
        (summary["skipped"], "skipped on blocked sites"),
        (summary["cut"], "cut"),
        (summary["owed"], "still owed"),
        (summary["given_up"], f"given up ({again_command(Split(summary['split']))})"),
    )
    facts += [f"{count} {words}" for count, words in counts if count]
    if failed:
        facts.append(f"failures: {failed}")
    for url, server in summary.get("servers", {}).items():
        if server["opened"]:
            facts.append(f"{url} failed {server['failures']} of {server['requests']} requests")
    return f"{summary['split']} {summary['iteration']}: {', '.join(facts)}"
