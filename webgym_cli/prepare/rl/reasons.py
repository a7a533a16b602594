"""Why a trajectory of a batch is masked."""

from __future__ import annotations

from enum import StrEnum


class Masked(StrEnum):
    """Why a trajectory has neither rows nor a reward in a batch. It is counted, and never a reward of 0."""

    AMBIGUOUS_ID = "ambiguous_id"
    """Another stored trajectory has the same id, as after files of two runs were put together."""
    FAILURE = "failure"
    """Infrastructure failed in the episode's last attempt: it says nothing about the policy."""
    EMPTY = "empty"
    """No step."""
    REWARD_UNKNOWN = "reward_unknown"
    """It waits for the judge."""
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
