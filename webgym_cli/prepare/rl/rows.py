"""Token rows of a trajectory, with verified prompts and the sampled responses, and actions between two states. Pure.

Sampled responses are never tokenized again, others once, from their text. Prompts are rendered again and used
only if the digest of their token ids equals the stored digest of the server's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from webgym_cli.agent.client.policy import digest_tokens
from webgym_cli.agent.prompt import render, render_step
from webgym_cli.agent.tokens.tokens import ModelTokens
from webgym_cli.config.rl_data import RlDataSettings
from webgym_cli.errors import SettingsError
from webgym_cli.prepare.rl.drop_reasons import MaskReason
from webgym_cli.records.trajectory import Observation, Screenshot, Step, Trajectory
from webgym_cli.util.json_values import digest_json

# vLLM's value for log(0), which JSON can't represent; a token with it can't have been sampled.
LEAST_LOGPROB = -9999.0
# Maximum log-probability above 0 due to rounding.
ROUNDING = 1e-3

# Width and height of an image in pixels.
Size = tuple[int, int]


@dataclass(frozen=True, slots=True)
class ServedTurn:
    """One step as seen by the server: prompt and sampled response."""

    step: int
    """Its index."""
    prompt: list[int]
    """Token ids of the prompt as sent."""
    sampled: tuple[int, ...]
    """Token ids of the response, including its stop token if there is one."""
    logprobs: tuple[float, ...]
    """One per sampled token."""
    images: tuple[str, ...]
    """SHA-256 of the prompt's images, in the order of their placeholders."""
    sizes: tuple[Size, ...]
    alone: bool = False
    """Whether it gets a row of its own, because the prompt is another agent's."""


@dataclass(slots=True)
class TokenRow:
    """One sequence for the model: one turn, or several turns, each continuing the previous one."""

    steps: list[int] = field(default_factory=list)
    input_ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    """One per token: 1 for tokens produced by the policy."""
    logprobs: list[float] = field(default_factory=list)
    """One per 1 in the mask."""
    images: tuple[str, ...] = ()
    sizes: tuple[Size, ...] = ()

    def continues_with(self, turn: ServedTurn) -> bool:
        """Whether a turn's prompt starts with exactly this row: the same tokens and images."""
        length, pictures = len(self.input_ids), len(self.images)
        return turn.prompt[:length] == self.input_ids and turn.images[:pictures] == self.images

    def add(self, turn: ServedTurn) -> None:
        """Append the new part of a turn; an empty row takes the whole turn."""
        new = turn.prompt[len(self.input_ids) :]
        self.steps.append(turn.step)
        self.input_ids += (*new, *turn.sampled)
        self.mask += [0] * len(new) + [1] * len(turn.sampled)
        self.logprobs += turn.logprobs
        self.images, self.sizes = turn.images, turn.sizes

    def keep_last(self, turn: ServedTurn) -> TokenRow:
        """Return the row with only its last turn trained."""
        mask = [0] * (len(self.input_ids) - len(turn.sampled)) + [1] * len(turn.sampled)
        return replace(self, steps=[turn.step], mask=mask, logprobs=list(turn.logprobs))

    def to_line(self, images: list[str]) -> dict[str, Any]:
        """Return the row as the trainer reads it. `images`: their paths, relative to the batch."""
        tokens = {"input_ids": self.input_ids, "mask": self.mask, "logprobs": self.logprobs}
        return {"step": self.steps[0], "steps": self.steps, **tokens, "images": images, "sizes": self.sizes}


def build_rows(turns: Iterable[ServedTurn], *, merge: bool) -> Iterator[TokenRow]:
    """Yield the rows of a trajectory's turns in order. `merge`: a row may contain several turns."""
    row: TokenRow | None = None
    for turn in turns:
        # A prompt that does not start with the row so far (its history window moved on) starts another row.
        if row is not None and not (merge and not turn.alone and row.continues_with(turn)):
            yield row
            row = None
        row = row or TokenRow()
        row.add(turn)
    if row is not None:
        yield row


def build_trained_rows(turns: Sequence[ServedTurn], how: RlDataSettings) -> list[TokenRow]:
    """Return the rows of a trajectory that are trained, or the one with its last turn."""
    rows = list(build_rows(turns, merge=how.merge_turns))
    return [row.keep_last(turns[-1]) for row in rows[-1:]] if how.train_on_last_turn else rows


def read_turns(trajectory: Trajectory, tokens: ModelTokens) -> list[ServedTurn] | MaskReason:
    """Return the turns of a trajectory, or why they can't be reconstructed.

    Raises `SettingsError` if the server returned no token ids or log-probabilities.
    """
    # An error instead of a mask: what a server omits is missing in the whole rollout.
    shots = {shot.sha256: shot for shot in trajectory.pictures}
    turns: list[ServedTurn] = []
    for index, step in enumerate(trajectory.steps):
        turn = _turn(trajectory, index, step, shots, tokens)
        if isinstance(turn, MaskReason):
            return turn
        turns.append(turn)
    return turns


def digest_observation(observation: Observation) -> str:
    """Return the SHA-256 of what the policy observed; equal observations are one anchor state of `gigpo`."""
    # The screenshot already shows the elements, and their ids depend on other counts.
    pictures = [picture.sha256 for picture in observation.pictures]
    elements = [(element.role, element.name, element.value) for element in observation.elements]
    results = [(result.name, result.text) for result in observation.results]
    content = [observation.url, pictures or elements, observation.html, observation.notices, results]
    return digest_json(content)


def oldest_version(trajectory: Trajectory, steps: Iterable[int]) -> int:
    """Return the number of the oldest policy version that produced one of these steps.

    It is unknown for other servers and older versions of webgym; then the iteration's policy is assumed.
    """
    versions = (trajectory.steps[index].generation.policy_version for index in steps)
    return min(version.number if version else trajectory.iteration for version in versions)


def missing_tokens_error(where: str, what: str, policy: str) -> SettingsError:
    """Return the error for a rollout whose server did not return what policy gradients need."""
    return SettingsError(
        f"rollout.policy: {where} has no {what} (policy {policy}): the reinforcement learning needs a server that "
        "tells them",
        hint="roll out by our own server (rollout.policy=vllm) or another vLLM; from episodes of others only "
        "imitation can learn (webgym prepare RUN)",
    )


def _turn(
    trajectory: Trajectory, index: int, step: Step, shots: Mapping[str, Screenshot], tokens: ModelTokens
) -> ServedTurn | MaskReason:
    sampled, logprobs, digest = _read_generation(trajectory, index, step)
    if not sampled or len(logprobs) != len(sampled) or not all(LEAST_LOGPROB < one <= ROUNDING for one in logprobs):
        return MaskReason.LOGPROBS_UNUSABLE
    if tokens.placeholder in sampled:
        return MaskReason.PLACEHOLDER_SAMPLED
    prompt = render_step(trajectory, index)
    if prompt.digest != step.prompt_digest:
        return MaskReason.PROMPT_CHANGED
    sizes = [(shots[sha256].width, shots[sha256].height) for sha256 in prompt.images]
    ids = tokens.prompt_ids(prompt.messages, sizes)
    if digest_tokens(ids) != digest:
        return MaskReason.PROMPT_TOKENS_CHANGED
    return ServedTurn(index, ids, sampled, logprobs, prompt.images, tuple(sizes), alone=step.sent is not None)


def _read_generation(trajectory: Trajectory, index: int, step: Step) -> tuple[tuple[int, ...], tuple[float, ...], str]:
    """Return what the server returned for a step. Raises `SettingsError` if something is missing."""
    ids, logprobs, digest = step.generation.token_ids, step.generation.logprobs, step.generation.prompt_token_digest
    if ids is None or logprobs is None or digest is None:
        given = {"token ids": ids, "log-probabilities": logprobs, "digest of the prompt's token ids": digest}
        missing = " and no ".join(name for name, value in given.items() if value is None)
        raise missing_tokens_error(f"step {index} of {trajectory.id}", missing, trajectory.policy)
    return ids, logprobs, digest


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
