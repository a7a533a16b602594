"""Why a trajectory of a batch is masked, and why stored experience is not taken over."""

from __future__ import annotations

from enum import StrEnum


class MaskReason(StrEnum):
    """Why a trajectory, or one of its actions, has no rows in a batch. It is counted, and never a reward of 0."""

    AMBIGUOUS_ID = "ambiguous_id"
    """Another stored trajectory of its run has the same id, as after files of two runs were put together."""
    FAILURE = "failure"
    """Infrastructure failed in the episode's last attempt: it says nothing about the policy."""
    EMPTY = "empty"
    """No step."""
    REWARD_UNKNOWN = "reward_unknown"
    """It waits for a judge, or for an outcome reward model."""
    NO_VARIANCE = "no_variance"
    """All rewards of its group are equal: without gradient, it is left out (`rl.data.filter_groups`)."""
    STALE = "stale"
    """Its group has steps of a policy that is older than `loop.max_staleness` allows (`loop.stale=drop`)."""
    UNSUCCESSFUL = "unsuccessful"
    """Its task was not solved (`rl.replay.successes_only`)."""
    REPEATED_TASK = "repeated_task"
    """An earlier episode of its task is taken over (`rl.replay.one_per_task`)."""
    DAMAGED = "damaged"
    """Its line, or its judgement's, was damaged after it had been indexed."""
    PROMPT_CHANGED = "prompt_changed"
    """A prompt is not rendered as it was sent: other messages, or other images."""
    PROMPT_TOKENS_CHANGED = "prompt_tokens_changed"
    """The same messages have other token ids than the server had: another tokenizer, chat template or image size."""
    LOGPROBS_UNUSABLE = "logprobs_unusable"
    """No sampled token, not one log-probability for each of them, or one that no sampled token can have."""
    PLACEHOLDER_SAMPLED = "placeholder_sampled"
    """The policy produced a token that stands for a part of an image: a model would look for one there."""
    PLACEHOLDER = "placeholder"
    """The same, of experience."""
    PICTURES = "pictures"
    """A prompt of experience has pictures: a server takes token ids of text alone."""
    IMAGE_MISSING = "image_missing"
    """A picture is gone or was altered."""
    EMPTY_ACTION = "empty_action"
    """An action without any token."""
    TOO_LONG = "too_long"
    """A row, or the next prompt of an action, over `rl.data.max_row_tokens`."""
    REFUSED = "refused"
    """An action that the server does not take: with its prompt it is longer than `serve.max_model_len`."""
    BELOW_WINDOW = "below_window"
    """An action that the policy would repeat by itself: its perplexity is below the window."""
    ABOVE_WINDOW = "above_window"
    """An action that the policy would hardly find: its perplexity is above the window."""
    OVER_RATIO = "over_ratio"
    """An action within the window that was not drawn, for there were more than `rl.replay.ratio` allows."""


_KNOWN_BEFORE = (MaskReason.AMBIGUOUS_ID, MaskReason.FAILURE, MaskReason.EMPTY, MaskReason.REWARD_UNKNOWN)
_CHANGED = (MaskReason.DAMAGED, MaskReason.PROMPT_CHANGED, MaskReason.PROMPT_TOKENS_CHANGED)
# The reasons that concern the iteration's own trajectories.
OWN_REASONS = (
    *(*_KNOWN_BEFORE, MaskReason.NO_VARIANCE, MaskReason.STALE, *_CHANGED, MaskReason.LOGPROBS_UNUSABLE),
    *(MaskReason.PLACEHOLDER_SAMPLED, MaskReason.IMAGE_MISSING, MaskReason.TOO_LONG),
)
# Those that concern whole trajectories of experience, and those that concern an action of one.
TRAJECTORY_REASONS = (
    *(*_KNOWN_BEFORE, MaskReason.UNSUCCESSFUL, MaskReason.REPEATED_TASK, *_CHANGED),
    *(MaskReason.PLACEHOLDER, MaskReason.PICTURES),
)
ACTION_REASONS = tuple(MaskReason)[tuple(MaskReason).index(MaskReason.EMPTY_ACTION) :]
