"""Why a trajectory of a batch is masked, and why stored experience is not taken over."""

from __future__ import annotations

from enum import StrEnum


class MaskReason(StrEnum):
    """Why a trajectory has neither rows nor a reward in a batch. It is counted, and never a reward of 0."""

    AMBIGUOUS_ID = "ambiguous_id"
    """Another stored trajectory has the same id, as after files of two runs were put together."""
    FAILURE = "failure"
    """Infrastructure failed in the episode's last attempt: it says nothing about the policy."""
    EMPTY = "empty"
    """No step."""
    REWARD_UNKNOWN = "reward_unknown"
    """It waits for the judge."""
    NO_VARIANCE = "no_variance"
    """All rewards of its group are equal: without gradient, it is left out (`rl.data.filter_groups`)."""
    STALE = "stale"
    """Its group has steps of a policy that is older than `loop.max_staleness` allows (`loop.stale=drop`)."""
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
    IMAGE_MISSING = "image_missing"
    """A picture is gone or was altered."""
    TOO_LONG = "too_long"
    """A row over `max_row_tokens`."""


class ReplayDropReason(StrEnum):
    """Why a trajectory of earlier experience, or one of its actions, is not in a batch of `webrl`."""

    AMBIGUOUS_ID = MaskReason.AMBIGUOUS_ID.value
    """Another stored trajectory of its run has the same id."""
    FAILURE = MaskReason.FAILURE.value
    """Infrastructure failed in the episode's last attempt."""
    EMPTY = MaskReason.EMPTY.value
    """No step."""
    REWARD_UNKNOWN = MaskReason.REWARD_UNKNOWN.value
    """It waits for a judge, or for an outcome reward model."""
    UNSUCCESSFUL = "unsuccessful"
    """Its task was not solved (`rl.replay.successes_only`)."""
    REPEATED_TASK = "repeated_task"
    """An earlier episode of its task is taken over (`rl.replay.one_per_task`)."""
    DAMAGED = MaskReason.DAMAGED.value
    """Its line, or its judgement's, was damaged after it had been indexed."""
    PROMPT_CHANGED = MaskReason.PROMPT_CHANGED.value
    """A prompt is not rendered as it was sent."""
    PROMPT_TOKENS_CHANGED = MaskReason.PROMPT_TOKENS_CHANGED.value
    """The same messages have other token ids: its tokens were sampled with another tokenizer or chat template."""
    PLACEHOLDER = "placeholder"
    """Among its tokens is one that stands for a part of an image."""
    PICTURES = "pictures"
    """A prompt has pictures: a server takes token ids of text alone."""
    EMPTY_ACTION = "empty_action"
    """An action without any token."""
    TOO_LONG = "too_long"
    """An action whose row, or whose next prompt, is over `rl.data.max_row_tokens`."""
    REFUSED = "refused"
    """An action that the server does not take: with its prompt it is longer than `serve.max_model_len`."""
    BELOW_WINDOW = "below_window"
    """An action that the policy would repeat by itself: its perplexity is below the window."""
    ABOVE_WINDOW = "above_window"
    """An action that the policy would hardly find: its perplexity is above the window."""
    OVER_RATIO = "over_ratio"
    """An action within the window that was not drawn, for there were more than `rl.replay.ratio` allows."""


_FIRST = tuple(ReplayDropReason).index(ReplayDropReason.EMPTY_ACTION)
# The reasons that concern whole trajectories, and those that concern an action.
TRAJECTORY_REASONS, ACTION_REASONS = tuple(ReplayDropReason)[:_FIRST], tuple(ReplayDropReason)[_FIRST:]
