"""Which trajectories and steps are fit for training, and why the others are not."""

from __future__ import annotations

from enum import StrEnum

from webgym_cli.config.learn import AlgorithmSettings
from webgym_cli.records.trajectory import Step, Trajectory


class Drop(StrEnum):
    """Why a trajectory or a step is left out."""

    FAILURE = "failure"
    """Infrastructure failed: the trajectory says nothing about the policy."""
    EMPTY = "empty"
    """No step."""
    TOO_FEW_STEPS = "too_few_steps"
    """Fewer than `min_trajectory_steps`."""
    REWARD_UNKNOWN = "reward_unknown"
    """Not judged."""
    UNSUCCESSFUL = "unsuccessful"
    """The task was not solved."""
    NO_ACTION = "no_action"
    """The response was no action."""
    SAME_SCREENSHOT = "same_screenshot"
    """Nothing changed on the screen."""
    RESPONSE_TOO_SHORT = "response_too_short"
    """Under `min_token_length`."""
    RESPONSE_HAS_PLACEHOLDER = "response_has_placeholder"
    """The response holds a media placeholder or control token: training would read it as such."""
    RETOKENIZED = "retokenized"
    """The response's text has other token ids than the ones that were sampled."""
    IMAGE_MISSING = "image_missing"
    """A screenshot is gone or was altered."""
    IMAGE_SIZE = "image_size"
    """A screenshot is outside `image_min_pixels` to `image_max_pixels`."""
    TOO_LONG = "too_long"
    """Over `cutoff_len` even without any earlier round."""


def trajectory_drop(trajectory: Trajectory, settings: AlgorithmSettings) -> Drop | None:
    """Return why none of a trajectory's steps can be used, or None."""
    outcome = trajectory.outcome
    if outcome.failure:
        return Drop.FAILURE
    if not trajectory.steps:
        return Drop.EMPTY
    if len(trajectory.steps) < settings.min_trajectory_steps:
        return Drop.TOO_FEW_STEPS
    if outcome.success is None:
        return Drop.REWARD_UNKNOWN
    if settings.filter_successful_only and not outcome.success:
        return Drop.UNSUCCESSFUL
    return None


def step_drop(step: Step, settings: AlgorithmSettings) -> Drop | None:
    """Return why a step of a usable trajectory can't be used, or None."""
    if step.action is None:
        return Drop.NO_ACTION
    if settings.filter_same_screenshot and step.page_changed is False:
        return Drop.SAME_SCREENSHOT
    return None
