"""Reasons for masking trajectories of a batch and for not replaying stored experience."""

from __future__ import annotations

from enum import StrEnum


class MaskReason(StrEnum):
    """Why a trajectory or action has no rows in a batch. It is counted, and never gets a reward of 0."""

    AMBIGUOUS_ID = "ambiguous_id"
    """Another stored trajectory of the run has the same id, for example after files of two runs were merged."""
    FAILURE = "failure"
    """Each attempt failed because of infrastructure."""
    EMPTY = "empty"
    """It has no steps."""
    REWARD_UNKNOWN = "reward_unknown"
    """It awaits a judge or an outcome reward model."""
    NO_VARIANCE = "no_variance"
    """All rewards of its group are equal, so it has no gradient (`rl.data.filter_groups`)."""
    STALE = "stale"
    """Its group has steps of a policy older than `loop.max_staleness` allows (`loop.stale=drop`)."""
    UNSUCCESSFUL = "unsuccessful"
    """The task was not solved: only successes are replayed."""
    REPEATED_TASK = "repeated_task"
    """An earlier episode of its task is replayed (`rl.replay.one_per_task`)."""
    DAMAGED = "damaged"
    """Its line or its judgement's was damaged after indexing."""
    PROMPT_CHANGED = "prompt_changed"
    """A prompt is not rendered as it was sent: messages or images differ."""
    PROMPT_TOKENS_CHANGED = "prompt_tokens_changed"
    """The same messages have other token ids than on the server: tokenizer, chat template or image size differ."""
    LOGPROBS_UNUSABLE = "logprobs_unusable"
    """No sampled tokens, not one log-probability per token, or an impossible log-probability."""
    PLACEHOLDER_SAMPLED = "placeholder_sampled"
    """The policy sampled an image placeholder token, for which a model would expect an image."""
    PLACEHOLDER = "placeholder"
    """The same, for experience."""
    PICTURES = "pictures"
    """A prompt of experience has images, which can't be sent to a server as token ids."""
    IMAGE_MISSING = "image_missing"
    """An image is missing or altered."""
    EMPTY_ACTION = "empty_action"
    """An action without tokens."""
    TOO_LONG = "too_long"
    """A row, or the next prompt of an action, is longer than `rl.data.max_row_tokens`."""
    REFUSED = "refused"
    """The server refuses the action: with its prompt it is longer than `serve.max_model_len`."""
    BELOW_WINDOW = "below_window"
    """The policy would repeat the action by itself: its perplexity is below the window."""
    ABOVE_WINDOW = "above_window"
    """The policy would hardly produce the action: its perplexity is above the window."""
    OVER_RATIO = "over_ratio"
    """The action is within the window but was not sampled, because of `rl.replay.ratio`."""


_KNOWN_BEFORE = (MaskReason.AMBIGUOUS_ID, MaskReason.FAILURE, MaskReason.EMPTY, MaskReason.REWARD_UNKNOWN)
_CHANGED = (MaskReason.DAMAGED, MaskReason.PROMPT_CHANGED, MaskReason.PROMPT_TOKENS_CHANGED)
# Reasons for the iteration's own trajectories.
OWN_REASONS = (
    *(*_KNOWN_BEFORE, MaskReason.NO_VARIANCE, MaskReason.STALE, *_CHANGED, MaskReason.LOGPROBS_UNUSABLE),
    *(MaskReason.PLACEHOLDER_SAMPLED, MaskReason.IMAGE_MISSING, MaskReason.TOO_LONG),
)
# Reasons for whole trajectories of experience, and for single actions.
TRAJECTORY_REASONS = (
    *(*_KNOWN_BEFORE, MaskReason.UNSUCCESSFUL, MaskReason.REPEATED_TASK, *_CHANGED),
    *(MaskReason.PLACEHOLDER, MaskReason.PICTURES),
)
ACTION_REASONS = tuple(MaskReason)[tuple(MaskReason).index(MaskReason.EMPTY_ACTION) :]
