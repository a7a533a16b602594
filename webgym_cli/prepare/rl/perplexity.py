"""Perplexity window of replayed actions: neither trivial nor too unlikely for the policy. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from webgym_cli.config.rl_data import ReplaySettings
from webgym_cli.prepare.rl.drop_reasons import MaskReason

# Tolerance in nats for rounding errors at the edges of the window.
ROUNDING = 1e-9
# Maximum nats per token for which exp() does not overflow (e^709).
LARGEST = 700.0


def compute_mean_logprob(logprobs: Sequence[float]) -> float:
    """Return the mean log-probability in nats per token: the log of the geometric mean of the probabilities."""
    return math.fsum(logprobs) / len(logprobs)


def compute_perplexity(mean: float) -> float:
    """Return the perplexity, exp(-mean), for a mean log-probability."""
    return math.exp(-mean)


def find_window_violation(mean: float, replay: ReplaySettings) -> MaskReason | None:
    """Return on which side of the window [lower, upper) an action is, or None if it is inside."""
    # Compared as logarithms, because products of probabilities underflow for long actions.
    low, high = replay.window
    if -mean < math.log(low) - ROUNDING:
        return MaskReason.BELOW_WINDOW
    most = LARGEST if high is None else min(LARGEST, math.log(high))
    return MaskReason.ABOVE_WINDOW if -mean >= most - ROUNDING else None
