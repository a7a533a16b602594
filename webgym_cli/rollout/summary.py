"""Summary of a rollout: its rewards, what is owed, and what to do where nothing could be collected."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import fmean
from typing import Any, cast

from webgym_cli.errors import WebGymError
from webgym_cli.records.events import RolloutSummary
from webgym_cli.records.failure import FailureKind, is_rolled_out
from webgym_cli.records.statistics import mean, mean_by_name, ratio, round_wilson
from webgym_cli.records.trajectory import Outcome, Trajectory
from webgym_cli.rollout.monitor import Monitor
from webgym_cli.rollout.plan import RolloutPlan, again_command
from webgym_cli.store.buffer import scan
from webgym_cli.store.run import RunDir
from webgym_cli.util.optional import group_by, when

SAME_COMMAND = "the same command again"


def summarize(
    run: RunDir,
    plan: RolloutPlan,
    monitor: Monitor,
    judge_down: str = "",
    *,
    stored: Sequence[Trajectory] | None = None,
) -> RolloutSummary:
    """Return the summary event of the iteration so far. Raises `WebGymError` if nothing was collected or judged.

    The rewards are those of the acting policy: an expert's or another server's are no result of it.
    `stored`: all trajectories of the iteration; None: read them from the buffer.
    """
    if judge_down:
        raise WebGymError(
            f"the judge does not answer: {judge_down}", hint=f"webgym judge {run.root} once it does: all is stored"
        )
    whole = list(scan(run, plan.split, plan.iteration)) if stored is None else stored
    all_stored = [trajectory for trajectory in whole if plan.counts(trajectory)]
    collected = [trajectory for trajectory in all_stored if is_rolled_out(trajectory.outcome.failure)]
    worked = [trajectory for trajectory in collected if trajectory.outcome.failure is None]
    if collected and not worked:
        raise WebGymError(
            f"none of the {len(collected)} collected episodes could be judged: {collected[-1].outcome.failure_detail}",
            hint=f"check judge.base_url, judge.model and the key in the variable that "
            f"judge.api_key_env_var names, then webgym judge {run.root}: all is stored",
        )
    if not collected and not monitor.skip_reasons:
        kinds = ", ".join(f"{count} x {kind}" for kind, count in monitor.failures.items())
        last = next((trajectory.outcome for trajectory in reversed(all_stored)), Outcome())
        cause = when(last.failure_detail, f"; the last one: {last.failure_detail}")
        command = again_command(plan.split, run.root)
        no_attempt_left = plan.count_given_up(whole) == len(plan.episodes)
        hint = advise(last.failure, command if no_attempt_left else SAME_COMMAND) if monitor.failures else command
        raise WebGymError(f"no episode could be collected: {kinds or 'all are given up'}{cause}", hint=hint)
    head = {"event": "rollout", "split": plan.split, "iteration": plan.iteration, "policy": plan.policy_name}
    given_up = plan.count_given_up(whole)
    planned = {episode.id for episode in plan.episodes}  # recordings and sessions are in none
    owed = len(planned.difference(trajectory.episode for trajectory in collected)) - given_up
    counts = {"owed": owed, "given_up": given_up, "unjudged": sum(trajectory.awaits_judgement for trajectory in worked)}
    rewards = summarize_rewards(list(filter(plan.is_by_policy, worked)))
    return cast(RolloutSummary, {**head, **rewards, **counts, **monitor.summary()})


def advise(failure: FailureKind | None, command: str = SAME_COMMAND) -> str:
    """Return the hint for consecutive failures of one kind: what to mend, and the command that comes then."""
    if failure in (FailureKind.POLICY_UNAVAILABLE, FailureKind.POLICY_REFUSED):
        return (
            "look at the policy server (the log of webgym's own: logs/attempt_*/vllm.log in the run), raise "
            f"serve.max_model_len if the prompt is too long, then run {command}; the key of another server is "
            "in the variable that rollout.endpoint.api_key_env_var names"
        )
    if failure is FailureKind.NETWORK_UNAVAILABLE:
        return f"once the network is back, run {command}: no episode has used up an attempt"
    if failure is FailureKind.INTERNAL_ERROR:
        return f"a bug of webgym or a plug-in, at the place in brackets; once it is mended, run {command}"
    if failure is FailureKind.ENVIRONMENT_ERROR:
        return f"mend what it names, then run {command} (episodes whose check failed: webgym score RUN --check)"
    return f"webgym doctor, then run {command}: what is stored stays"


def summarize_rewards(trajectories: list[Trajectory]) -> dict[str, Any]:
    """Return success rate with 95 % Wilson interval over the trajectories with a known reward, and means.

    Repeats of a case count once, with their mean. Means are of the reward, the steps, the calls of each tool, and each
    extra value of the reward functions (over the trajectories that have it).
    """
    known = [trajectory for trajectory in trajectories if trajectory.outcome.success is not None]
    successes = sum(bool(trajectory.outcome.success) for trajectory in known)
    cases = group_by(known, lambda one: one.case)
    solved = math.fsum(fmean(bool(one.outcome.success) for one in case) for case in cases.values())
    calls: Counter[str] = Counter()
    for trajectory in known:
        calls.update(trajectory.count_calls())
    rewards = [trajectory.outcome.reward for trajectory in known if trajectory.outcome.reward is not None]
    return {
        "episodes": len(known),
        "successes": successes,
        "solved_cases": round(solved, 4),
        "scored_cases": len(cases),
        "success_rate": ratio(solved, len(cases)),
        "interval": round_wilson(solved, len(cases)),
        "mean_reward": mean(rewards),
        "mean_steps": mean((len(trajectory.steps) for trajectory in known), 2),
        "reward_extra": mean_by_name(trajectory.outcome.extras for trajectory in known),
        "tool_calls": {name: round(count / len(known), 2) for name, count in sorted(calls.items())},
    }
