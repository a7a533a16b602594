"""Rows of the index, made from records. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from webgym_cli.records.base import moment_of
from webgym_cli.records.judgement import Judgement, scored_by_environment
from webgym_cli.records.trajectory import Step, Trajectory
from webgym_cli.util.urls import site_of

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LinePosition:
    """Where a line of the truth stands."""

    file: str
    """Relative to the run."""
    start: int
    """Its first byte."""
    size: int
    """Its bytes without the line's end."""

    def columns(self) -> Row:
        """Return the columns that every row has of its line."""
        return {"file": self.file, "start": self.start, "size": self.size}


def build_trajectory_row(trajectory: Trajectory, line: LinePosition) -> Row:
    """Return the row of a trajectory as it was written."""
    task, outcome, prompt = trajectory.task, trajectory.outcome, trajectory.prompt
    own = next((score for score in outcome.scores if score.source == "environment"), None)
    return {
        "id": trajectory.id,
        "episode": trajectory.episode,
        "split": trajectory.split.value,
        "iteration": trajectory.iteration,
        "attempt": trajectory.attempt,
        "task": task.id,
        "task_key": task.key,
        "environment": task.environment,
        "site": site_of(task.start_url) or task.environment,
        "band": task.band.value,
        "difficulty": task.difficulty,
        "instruction": trajectory.instruction,
        "seed": trajectory.seed,
        "policy": trajectory.policy,
        "sampling": trajectory.sampling and trajectory.sampling.model_dump(),
        "prompt_version": str(prompt.version),
        "interaction_mode": prompt.interaction_mode.value,
        "steps": len(trajectory.steps),
        "reward": outcome.reward,
        "success_threshold": outcome.success_threshold,
        "reward_extra": list(outcome.extras.items()),
        "tool_calls": list(trajectory.count_calls().items()),
        "stop": outcome.stop and outcome.stop.value,
        "failure": outcome.failure and outcome.failure.value,
        "failure_detail": outcome.failure_detail,
        "answer": outcome.answer,
        "environment_reward": own and own.value,
        "scored_by_environment": scored_by_environment(trajectory),
        "policy_seconds": sum(step.policy_seconds for step in trajectory.steps),
        "environment_seconds": sum(step.environment_seconds for step in trajectory.steps),
        "seconds": trajectory.seconds,
        "started_at": _moment(trajectory.started_at),
        **line.columns(),
    }


def build_step_rows(trajectory: Trajectory) -> Iterator[Row]:
    """Yield the rows of a trajectory's steps."""
    for step in trajectory.steps:
        yield {
            "trajectory": trajectory.id,
            "split": trajectory.split.value,
            "iteration": trajectory.iteration,
            **_step(step),
        }


def build_judgement_row(judgement: Judgement, split: str, iteration: int, line: LinePosition) -> Row:
    """Return the row of a judgement."""
    shares, votes = _votes(judgement)
    return {
        "trajectory": judgement.trajectory,
        "split": split,
        "iteration": iteration,
        "source": judgement.source,
        "probability": judgement.probability,
        "success": judgement.success,
        "failure": judgement.failure and judgement.failure.value,
        "failure_detail": judgement.failure_detail,
        "blocked": judgement.blocked,
        "model": judgement.models.get("verdict", ""),
        "settings_digest": judgement.settings_digest,
        "agreement": min(shares, default=None),
        "votes": min(votes, default=None),
        "calls": judgement.calls,
        "judged_at": _moment(judgement.judged_at),
        **line.columns(),
    }


def build_damage_row(split: str, iteration: int, line: LinePosition, reason: str) -> Row:
    """Return the row of a line that can't be used. `split` and `iteration`: those of the file that it stands in."""
    return {"split": split, "iteration": iteration, **line.columns(), "reason": reason}


def _step(step: Step) -> Row:
    observation, generation = step.observation, step.generation
    return {
        "step": step.index,
        "url": observation.url,
        "page_site": site_of(observation.url),
        "screenshot": observation.screenshot and observation.screenshot.sha256,
        "width": observation.screenshot and observation.screenshot.width,
        "height": observation.screenshot and observation.screenshot.height,
        "action": step.action and str(step.action.name),
        "parse_error": step.parse_error and step.parse_error.value,
        "action_error": step.action_error,
        "page_changed": step.page_changed,
        "response_characters": len(step.response),
        "response_digest": hashlib.sha256(step.response.encode(errors="replace")).hexdigest()[:16],
        "prompt_tokens": generation.prompt_tokens,
        "response_tokens": None if generation.token_ids is None else len(generation.token_ids),
        "finish_reason": generation.finish_reason,
        "policy_version": generation.policy_version and generation.policy_version.number,
        "policy_seconds": step.policy_seconds,
        "environment_seconds": step.environment_seconds,
    }


def _votes(judgement: Judgement) -> tuple[list[float], list[int]]:
    """Return, for each question that was voted on, the share that went with the decision and the number of votes."""
    questions: Iterable[Any] = (judgement.claims, *judgement.facts, judgement.reference)
    voted = [verdict for verdict in questions if verdict is not None and verdict.votes]
    shares = [sum(vote is verdict.passed for vote in verdict.votes) / len(verdict.votes) for verdict in voted]
    return shares, [len(verdict.votes) for verdict in voted]


def _moment(text: str) -> datetime:
    """Return a stored moment in UTC without its zone."""
    return moment_of(text).replace(tzinfo=None)
