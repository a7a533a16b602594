"""The window of what is worth replaying, by hand."""

import math
from statistics import fmean

from tests.tables import each
from webgym_cli.config.rl_data import ReplaySettings
from webgym_cli.prepare.rl.drop_reasons import MaskReason
from webgym_cli.prepare.rl.score import find_window_violation

WEBRL = ReplaySettings()


def mean_of(*probabilities):
    return fmean([math.log(one) for one in probabilities])


@each(
    ("probabilities", "where"),
    [
        ([0.95], None),
        ([0.95] * 700, None),
        ([0.9500001], MaskReason.BELOW_WINDOW),
        ([1.0], MaskReason.BELOW_WINDOW),
        ([0.5], MaskReason.ABOVE_WINDOW),
        ([0.5] * 333, MaskReason.ABOVE_WINDOW),
        ([0.5000001], None),
        ([0.25, 0.999], MaskReason.ABOVE_WINDOW),  # 0.4998
        ([0.25, 1.0, 1.0], None),  # 0.63
        ([0.1], MaskReason.ABOVE_WINDOW),
    ],
)
def test_webrl_s_window_is_half_open_on_the_mean_probability(probabilities, where):
    assert find_window_violation(mean_of(*probabilities), WEBRL) == where


def test_nothing_vanishes_in_a_long_action():
    """The product of 4000 probabilities of 0.6 is 0 in floating point; their mean is not."""
    assert math.exp(4000 * math.log(0.6)) == 0.0
    assert find_window_violation(mean_of(*[0.6] * 4000), WEBRL) is None


@each(
    ("window", "mean", "where"),
    [
        *(((1, None), mean, None) for mean in (0.0, -0.02, -50.0)),
        ((1, None), -9999.0, MaskReason.ABOVE_WINDOW),  # no number could hold its perplexity
        ((2, None), math.log(0.5), None),
        ((2, None), math.log(0.51), MaskReason.BELOW_WINDOW),
        ((1, 1 / 0.95), 0.0, None),
        ((1, 1 / 0.95), math.log(0.95), MaskReason.ABOVE_WINDOW),
    ],
)
def test_other_windows(window, mean, where):
    assert find_window_violation(mean, ReplaySettings(window=window)) == where
