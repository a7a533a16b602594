"""Renders an episode for a terminal, or as plain lines for a pipe."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.text import Text

from webgym_cli.agent.prompts.prompt_template import EFFECT
from webgym_cli.inspect.page import EpisodeView, describe_step_action, list_verdicts, split_thought
from webgym_cli.records.judgement import Judgement
from webgym_cli.records.trajectory import Outcome, Step, Trajectory
from webgym_cli.util.optional import when
from webgym_cli.util.text import escape_control, format_count

_HEAD, _SOFT, _GOOD, _BAD, _ODD = "bold", "dim", "green", "red", "yellow"
_SOLVED = {True: ("solved", _GOOD), False: ("not solved", _BAD)}
_PASSED = {True: ("passed", _GOOD), False: ("not passed", _BAD)}
# Label, value and style; a multi-line value is placed below its label.
Line = tuple[str, Any, str]


def episode_text(view: EpisodeView) -> Text:
    """Render an episode step by step. Control sequences in texts of pages and models have no effect."""
    text = Text()
    trajectory = view.trajectory
    _append_block(text, trajectory.id, _episode_lines(trajectory))
    for judgement in reversed(view.judgements):
        _append_block(text, f"judgement of {judgement.judged_at}", _judgement_lines(judgement))
    for step in trajectory.steps:
        _append_block(text, f"step {step.index}", _step_lines(step, thinking=trajectory.prompt.thinking))
    text.rstrip()
    return text


def _append_block(text: Text, title: str, lines: Iterator[Line]) -> None:
    text.append(f"{escape_control(title)}\n", _HEAD)
    for label, value, style in lines:
        if value in (None, ""):
            continue
        first, *more = str(value).split("\n")
        text.append(f"  {label:<9} ", _SOFT)
        text.append(f"{escape_control(first)}\n", style)
        for line in more:
            text.append(f"{'':12}{escape_control(line)}\n", style)
    text.append("\n")


def _episode_lines(trajectory: Trajectory) -> Iterator[Line]:
    task, outcome = trajectory.task, trajectory.outcome
    yield "task", f"{task.id}, {task.environment}, {task.band}, seed {trajectory.seed}", ""
    yield "asked", trajectory.instruction, ""
    yield "start", task.start_url, ""
    yield from (("rubric", fact, "") for fact in task.rubric)
    yield "reference", task.reference_answer, ""
    yield "policy", f"{trajectory.policy}, {trajectory.prompt.version}, {trajectory.prompt.interaction_mode}", ""
    yield "outcome", *_format_verdict(outcome)
    yield "", outcome.failure_detail, ""
    yield "answer", outcome.answer, ""
    yield from (("score", f"{score.source} {score.value:g} {score.detail}".rstrip(), "") for score in outcome.scores)
    ended = outcome.stop.value if outcome.stop else "by a failure"
    count = format_count(len(trajectory.steps), "step")
    yield "ended", f"{ended}, {count}, {trajectory.seconds:.1f} s, {trajectory.started_at}", ""


def _format_verdict(outcome: Outcome) -> tuple[str, str]:
    if outcome.failure:
        return outcome.failure.value, _ODD
    if outcome.reward is None:
        return "not judged yet", _ODD
    words, style = _SOLVED[bool(outcome.success)]
    return f"{words}, reward {outcome.reward:g}", style


def _judgement_lines(judgement: Judgement) -> Iterator[Line]:
    if judgement.failure:
        yield "verdict", judgement.failure.value, _ODD
    else:
        yield "verdict", *_SOLVED[bool(judgement.success)]
    yield "", judgement.failure_detail, ""
    yield "model", judgement.models.get("verdict"), ""
    if judgement.probability is not None:
        yield "P(YES)", f"{judgement.probability:.4f}", ""
    yield "looked at", ", ".join(f"step {index}" for index in judgement.key_points), ""
    if judgement.blocked is not None:
        yield "site", f"{'blocked' if judgement.blocked else 'not blocked'}: {judgement.blocked_reason}", ""
    for criterion, verdict in list_verdicts(judgement):
        votes = when(verdict.votes, f" ({sum(verdict.votes)} of {len(verdict.votes)} votes for it)")
        passed, style = _PASSED[verdict.passed]
        yield criterion, f"{verdict.question}\n{passed}{votes}", style
        yield "", verdict.reason, ""


def _step_lines(step: Step, *, thinking: bool) -> Iterator[Line]:
    observation, generation = step.observation, step.generation
    thought, spoken = split_thought(step, thinking=thinking)
    yield "page", observation.title, ""
    yield "url", observation.url, ""
    yield from (("notice", notice, _ODD) for notice in observation.notices)
    yield "thought", thought.strip(), _SOFT
    yield "response", spoken.strip(), ""
    yield "action", describe_step_action(step), _HEAD
    yield "no action", step.parse_error, _BAD
    yield "refused", step.action_error, _BAD
    if step.page_changed is not None:
        yield "after", EFFECT[step.page_changed], ""
    facts = [f"policy {step.policy_seconds:.2f} s", f"page {step.environment_seconds:.2f} s"]
    if generation.prompt_tokens is not None:
        facts.append(f"{generation.prompt_tokens} tokens in")
    if generation.token_ids is not None:
        facts.append(f"{len(generation.token_ids)} out")
    yield "time", ", ".join(facts), _SOFT
