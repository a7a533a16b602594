"""Stored actions as tokens between two states, whoever acted: what was sampled by its ids, else by its text. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from webgym_cli.agent.policy import digest_tokens
from webgym_cli.agent.prompt import render, render_step
from webgym_cli.prepare.rl import rows
from webgym_cli.prepare.rl.drop_reasons import ReplayDropReason
from webgym_cli.records.trajectory import Step, Trajectory


class ActionTokenizer(rows.PromptTokenizer, Protocol):
    """What renders a prompt, and what nobody sampled: `agent.tokens.ModelTokens`."""

    @property
    def stop(self) -> int | None:
        """The id of the token that ends an assistant's turn, if there is one."""
        ...

    def response_ids(self, text: str) -> list[int]:
        """Return the ids of a response, without a stop token."""
        ...


@dataclass(frozen=True, slots=True)
class TokenizedAction:
    """What was done in a state, and the state that came of it."""

    step: int
    """Its index."""
    prompt: list[int]
    """The ids that its state is served with."""
    response: tuple[int, ...]
    """The ids of what was said, with the stop token where it came to one."""
    content_length: int
    """How many of them come before the stop token."""
    tokenized: bool
    """Whether they are those of its text: no server told which were sampled."""
    after: list[int]
    """The ids that the state after it is served with."""

    @property
    def longest(self) -> int:
        """Tokens of its row, or of the state after it if they are more."""
        return max(len(self.prompt) + len(self.response), len(self.after))


@dataclass(frozen=True, slots=True)
class PromptState:
    """A state as it is served."""

    ids: list[int]
    images: tuple[str, ...]
    """SHA-256 of its pictures, in the order of their placeholders."""
    sizes: tuple[rows.Size, ...]
    """Of each of them."""


def render_last_state(trajectory: Trajectory, tokens: rows.PromptTokenizer) -> PromptState:
    """Return the state after the last action: the same page, with that action in the history."""
    # The episode ended there: no observation was taken after the last action.
    steps = trajectory.steps
    spec, url = trajectory.prompt, trajectory.task.start_url
    prompt = render(spec, trajectory.instruction, url, steps, steps[-1].observation)
    shots = {shot.sha256: (shot.width, shot.height) for step in steps for shot in step.observation.pictures}
    sizes = [shots[sha256] for sha256 in prompt.images]
    return PromptState(tokens.prompt_ids(prompt.messages, sizes), prompt.images, tuple(sizes))


def tokenize_actions(trajectory: Trajectory, tokens: ActionTokenizer) -> list[TokenizedAction] | ReplayDropReason:
    """Return the actions of a trajectory, or why they can't be reconstructed."""
    prompts: list[list[int]] = []
    for index, step in enumerate(trajectory.steps):
        ids = _prompt(trajectory, index, step, tokens)
        if isinstance(ids, ReplayDropReason):
            return ids
        prompts.append(ids)
    responses = [_response(step, tokens) for step in trajectory.steps]
    if any(tokens.placeholder in response for response, _ in responses):
        return ReplayDropReason.PLACEHOLDER
    after = [*prompts[1:], render_last_state(trajectory, tokens).ids]
    return [
        TokenizedAction(
            index, prompts[index], response, _count_content(step, response, tokens.stop), tokenized, after[index]
        )
        for index, (step, (response, tokenized)) in enumerate(zip(trajectory.steps, responses, strict=True))
    ]


def _prompt(trajectory: Trajectory, index: int, step: Step, tokens: ActionTokenizer) -> list[int] | ReplayDropReason:
    """Return the ids of a step's prompt; where a server told its own, they are proved to be the same."""
    prompt = render_step(trajectory, index)
    if prompt.images:
        return ReplayDropReason.PICTURES
    ids = tokens.prompt_ids(prompt.messages, [])
    if _read_sampled_ids(step) is None:
        return ids  # an expert or an import: there is no served prompt to compare with
    if prompt.digest != step.prompt_digest:
        return ReplayDropReason.PROMPT_CHANGED
    return ids if digest_tokens(ids) == step.generation.prompt_token_digest else ReplayDropReason.PROMPT_TOKENS_CHANGED


def _response(step: Step, tokens: ActionTokenizer) -> tuple[tuple[int, ...], bool]:
    """Return the ids of a response, and whether they are those of its text."""
    sampled = _read_sampled_ids(step)
    if sampled is not None:
        return sampled, False
    ids = tokens.response_ids(step.response)
    return (*ids, *(() if tokens.stop is None else (tokens.stop,))), True


def _read_sampled_ids(step: Step) -> tuple[int, ...] | None:
    """Return the ids that a server sampled, if it told them and those of the prompt."""
    return step.generation.token_ids if step.generation.prompt_token_digest else None


def _count_content(step: Step, response: Sequence[int], stop: int | None) -> int:
    """Return how many tokens come before the stop token."""
    stopped = bool(response) and (response[-1] == stop or step.generation.finish_reason == "stop")
    return len(response) - stopped
