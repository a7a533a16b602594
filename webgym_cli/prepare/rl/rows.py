"""A trajectory as rows of tokens: prompts proved to be the served ones, responses as they were sampled. Pure.

Nothing that the policy wrote is tokenized again. A prompt's ids are rendered once more, and count only where their
digest is the one that was stored when the server told its own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from webgym_cli.agent.policy import digest_tokens
from webgym_cli.agent.prompt import render_step
from webgym_cli.agent.tokens import ModelTokens
from webgym_cli.errors import SettingsError
from webgym_cli.prepare.rl.drop_reasons import MaskReason
from webgym_cli.records.trajectory import Observation, Screenshot, Step, Trajectory

# What vLLM writes for the logarithm of 0, which JSON can't hold: a token with it can't have been sampled.
LEAST_LOGPROB = -9999.0
# So far above 0 a log-probability may come out by rounding.
ROUNDING = 1e-3

# Width and height of a picture in pixels.
Size = tuple[int, int]


@dataclass(frozen=True, slots=True)
class ServedTurn:
    """A step as the server saw and answered it."""

    step: int
    """Its index."""
    prompt: list[int]
    """The served ids."""
    sampled: tuple[int, ...]
    """The ids of the response, its stop token included where it came to one."""
    logprobs: tuple[float, ...]
    """One for each of them."""
    images: tuple[str, ...]
    """SHA-256 of the prompt's pictures, in the order of their placeholders."""
    sizes: tuple[Size, ...]
    """Of each of them."""


@dataclass(slots=True)
class TokenRow:
    """One sequence of the model: a turn, or several of which each goes on where the one before ended."""

    steps: list[int] = field(default_factory=list)
    input_ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    """As many: 1 on what the policy produced."""
    logprobs: list[float] = field(default_factory=list)
    """One for each 1 of the mask."""
    images: tuple[str, ...] = ()
    sizes: tuple[Size, ...] = ()

    def continues_with(self, turn: ServedTurn) -> bool:
        """Whether a turn's prompt begins with exactly this row: its tokens, and the same pictures at them."""
        length, pictures = len(self.input_ids), len(self.images)
        return turn.prompt[:length] == self.input_ids and turn.images[:pictures] == self.images

    def add(self, turn: ServedTurn) -> None:
        """Add the part of a turn that is new; an empty row takes all of it."""
        new = turn.prompt[len(self.input_ids) :]
        self.steps.append(turn.step)
        self.input_ids += (*new, *turn.sampled)
        self.mask += [0] * len(new) + [1] * len(turn.sampled)
        self.logprobs += turn.logprobs
        self.images, self.sizes = turn.images, turn.sizes


def build_rows(turns: Iterable[ServedTurn], *, merge: bool) -> Iterator[TokenRow]:
    """Yield the rows of a trajectory's turns, in their order. `merge`: a row may hold several."""
    row: TokenRow | None = None
    for turn in turns:
        # A prompt that does not begin with the row so far (its window moved on) starts another row.
        if row is not None and not (merge and row.continues_with(turn)):
            yield row
            row = None
        row = row or TokenRow()
        row.add(turn)
    if row is not None:
        yield row


def read_turns(trajectory: Trajectory, tokens: ModelTokens) -> list[ServedTurn] | MaskReason:
    """Return the turns of a trajectory, or why they can't be reconstructed.

    Raises `SettingsError` where the server gave no token ids or log-probabilities.
    """
    # An error rather than a mask: what a server omits, it omits for the whole rollout.
    shots = {shot.sha256: shot for step in trajectory.steps for shot in step.observation.pictures}
    turns: list[ServedTurn] = []
    for index, step in enumerate(trajectory.steps):
        turn = _turn(trajectory, index, step, shots, tokens)
        if isinstance(turn, MaskReason):
            return turn
        turns.append(turn)
    return turns


def digest_observation(observation: Observation) -> str:
    """Return the SHA-256 of what the policy was shown: equal observations are one anchor state of `gigpo`."""
    # A picture shows the elements; their ids depend on what else was counted.
    pictures = [picture.sha256 for picture in observation.pictures]
    elements = [(element.role, element.name, element.value) for element in observation.elements]
    results = [(result.name, result.text) for result in observation.results]
    content = [observation.url, pictures or elements, observation.html, observation.notices, results]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def oldest_version(trajectory: Trajectory, steps: Iterable[int]) -> int:
    """Return the number of the oldest policy version that produced one of these steps.

    A server that is not ours, or an older webgym, did not tell: its policy was the iteration's.
    """
    versions = (trajectory.steps[index].generation.policy_version for index in steps)
    return min(version.number if version else trajectory.iteration for version in versions)


def missing_tokens_error(where: str, what: str, policy: str) -> SettingsError:
    """Return the error for a rollout whose server did not tell what policy gradients need."""
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
    return ServedTurn(index, ids, sampled, logprobs, prompt.images, tuple(sizes))


def _read_generation(trajectory: Trajectory, index: int, step: Step) -> tuple[tuple[int, ...], tuple[float, ...], str]:
    """Return what the server told of a step. Raises `SettingsError` unless it told all."""
    ids, logprobs, digest = step.generation.token_ids, step.generation.logprobs, step.generation.prompt_token_digest
    if ids is None or logprobs is None or digest is None:
        given = {"token ids": ids, "log-probabilities": logprobs, "digest of the prompt's token ids": digest}
        missing = " and no ".join(name for name, value in given.items() if value is None)
        raise missing_tokens_error(f"step {index} of {trajectory.id}", missing, trajectory.policy)
    return ids, logprobs, digest
