"""Stored actions as tokens between two states, whoever acted: what was sampled by its ids, else by its text. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from webgym_cli.agent.policy import digest_tokens
from webgym_cli.agent.prompt import render, render_step
from webgym_cli.agent.tokens import ModelTokens
from webgym_cli.prepare.rl.drop_reasons import MaskReason
from webgym_cli.prepare.rl.rows import Size
from webgym_cli.records.trajectory import Step, Trajectory


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
    sizes: tuple[Size, ...]
    """Of each of them."""


def render_last_state(trajectory: Trajectory, tokens: ModelTokens) -> PromptState:
    """Return the state after the last action: the same page, with that action in the history."""
    # The episode ended there: no observation was taken after the last action.
    steps = trajectory.steps
    spec, url = trajectory.prompt, trajectory.task.start_url
    prompt = render(spec, trajectory.instruction, url, steps, steps[-1].observation)
    shots = {shot.sha256: (shot.width, shot.height) for step in steps for shot in step.observation.pictures}
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
    """Return the ids of a step's prompt; where a server told its own, they are proved to be the same."""
    prompt = render_step(trajectory, index)
    if prompt.images:
        return MaskReason.PICTURES
    ids = tokens.prompt_ids(prompt.messages, [])
    if _read_sampled_ids(step) is None:
        return ids  # an expert or an import: there is no served prompt to compare with
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
    """Return the ids that a server sampled, if it told them and those of the prompt."""
    return step.generation.token_ids if step.generation.prompt_token_digest else None
