"""Which actions are worth replaying: neither what the policy does by itself, nor what it would hardly find. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from webgym_cli.config.rl_data import ReplaySettings
from webgym_cli.prepare.rl.drop_reasons import MaskReason

# Nats by which a mean may miss the window's edge, through rounding, and still be on it.
ROUNDING = 1e-9
# Nats a token above which no perplexity can be written: e^709 is the largest number.
LARGEST = 700.0


def compute_mean_logprob(logprobs: Sequence[float]) -> float:
    """Return the mean log-probability, in nats a token: the logarithm of the geometric mean of the probabilities."""
    return math.fsum(logprobs) / len(logprobs)


def compute_perplexity(mean: float) -> float:
    """Return the perplexity, exp(-mean), of tokens with a mean log-probability."""
    return math.exp(-mean)


def find_window_violation(mean: float, replay: ReplaySettings) -> MaskReason | None:
    """Return on which side of the window [lower, upper) an action is; None: it is inside."""
    # In logarithms: a product of probabilities underflows for long actions.
    low, high = replay.window
    if -mean < math.log(low) - ROUNDING:
        return MaskReason.BELOW_WINDOW
    most = LARGEST if high is None else min(LARGEST, math.log(high))
    return MaskReason.ABOVE_WINDOW if -mean >= most - ROUNDING else None
