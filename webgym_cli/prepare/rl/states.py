"""Stored actions as tokens between two states: by their sampled ids, or tokenized from text for other actors. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from webgym_cli.agent.client.policy import digest_tokens
from webgym_cli.agent.prompt import render, render_step
from webgym_cli.agent.tokens.tokens import ModelTokens
from webgym_cli.prepare.rl.drop_reasons import MaskReason
from webgym_cli.prepare.rl.rows import Size
from webgym_cli.records.trajectory import Step, Trajectory


@dataclass(frozen=True, slots=True)
class TokenizedAction:
    """An action with its state and next state."""

    step: int
    """Its index."""
    prompt: list[int]
    """Prompt token ids of its state."""
    response: tuple[int, ...]
    """Token ids of the response, including the stop token if there is one."""
    content_length: int
    """Number of response tokens before the stop token."""
    tokenized: bool
    """Whether the ids were tokenized from text, because the sampled ids are unknown."""
    after: list[int]
    """Prompt token ids of the next state."""

    @property
    def longest(self) -> int:
        """Number of tokens of its row, or of the next state if that is longer."""
        return max(len(self.prompt) + len(self.response), len(self.after))


@dataclass(frozen=True, slots=True)
class PromptState:
    """The prompt of a state."""

    ids: list[int]
    images: tuple[str, ...]
    """SHA-256 of its images, in the order of their placeholders."""
    sizes: tuple[Size, ...]
    """Sizes of the images."""


def render_last_state(trajectory: Trajectory, tokens: ModelTokens) -> PromptState:
    """Return the state after the last action: the same page, with that action in the history."""
    # The episode ended there, so no observation was made after the last action.
    steps = trajectory.steps
    spec, url = trajectory.prompt, trajectory.task.start_url
    prompt = render(spec, trajectory.instruction, url, steps, steps[-1].observation)
    shots = {shot.sha256: (shot.width, shot.height) for shot in trajectory.pictures}
    sizes = [shots[sha256] for sha256 in prompt.images]
    return PromptState(tokens.prompt_ids(prompt.messages, sizes), prompt.images, tuple(sizes))


def tokenize_actions(trajectory: Trajectory, tokens: ModelTokens) -> list[TokenizedAction] | MaskReason:
    """Return the actions of a trajectory, or why they can't be reconstructed."""
    prompts: list[list[int]] = []
    for index, step in enumerate(trajectory.steps):
        ids = _tokenize_prompt(trajectory, index, step, tokens)
        if isinstance(ids, MaskReason):
            return ids
        prompts.append(ids)
    after = (*prompts[1:], render_last_state(trajectory, tokens).ids)
    actions = [_tokenize_action(*each, tokens) for each in zip(trajectory.steps, prompts, after, strict=True)]
    return MaskReason.PLACEHOLDER if any(tokens.placeholder in action.response for action in actions) else actions


def _tokenize_prompt(trajectory: Trajectory, index: int, step: Step, tokens: ModelTokens) -> list[int] | MaskReason:
    """Return the token ids of a step's prompt, verified against the server's digest if it is known."""
    prompt = render_step(trajectory, index)
    if prompt.images:
        return MaskReason.PICTURES
    ids = tokens.prompt_ids(prompt.messages, [])
    if _read_sampled_ids(step) is None:
        return ids  # an expert or an import: there is no sent prompt to compare with
    if prompt.digest != step.prompt_digest:
        return MaskReason.PROMPT_CHANGED
    return ids if digest_tokens(ids) == step.generation.prompt_token_digest else MaskReason.PROMPT_TOKENS_CHANGED


def _tokenize_action(step: Step, prompt: list[int], after: list[int], tokens: ModelTokens) -> TokenizedAction:
    response, stop = _read_sampled_ids(step), tokens.stop
    if tokenized := response is None:
        response = (*tokens.response_ids(step.response), *(() if stop is None else (stop,)))
    stopped = bool(response) and (response[-1] == stop or step.generation.finish_reason == "stop")
    return TokenizedAction(step.index, prompt, response, len(response) - stopped, tokenized, after)


def _read_sampled_ids(step: Step) -> tuple[int, ...] | None:
    """Return the sampled token ids if those of the prompt are known too."""
    return step.generation.token_ids if step.generation.prompt_token_digest else None
