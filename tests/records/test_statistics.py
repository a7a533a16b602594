"""Against Newcombe, Statistics in Medicine 17 (1998): pages 857-872, table I, and 873-890, table II (method 10)."""

import pytest

from tests.tables import each
from webgym_cli.records.statistics import difference, mcnemar, pass_at_k, wilson


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_as_published(successes, trials, low, high):
    assert wilson(successes, trials) == pytest.approx((low, high), abs=5e-5)
    assert (wilson(0, 0), wilson(0, 1)[0], wilson(1, 1)[1]) == ((0.0, 1.0), 0.0, 1.0)


@pytest.mark.parametrize(
    ("second", "first", "delta", "low", "high"),
    [
        ((56, 70), (48, 80), 0.2, 0.0524, 0.3339),
        ((9, 10), (3, 10), 0.6, 0.1705, 0.8090),
        ((6, 7), (2, 7), 0.5714, 0.0582, 0.8062),
        ((5, 56), (0, 29), 0.0893, -0.0381, 0.1926),
        ((10, 10), (0, 20), 1.0, 0.6791, 1.0),
    ],
)
def test_the_difference_as_published(first, second, delta, low, high):
    assert difference(first, second) == pytest.approx((delta, low, high), abs=5e-5)


@each(
    ("attempts", "successes", "k", "chance"),
    [
        (4, 1, 1, 0.25),  # with k = 1, the success rate
        (5, 2, 2, 0.7),  # of the 10 pairs, 3 are of failures only
        (10, 3, 4, 1 - 35 / 210),  # C(7, 4) of C(10, 4)
        (3, 2, 2, 1.0),  # one failure is no pair
        (10, 0, 5, 0.0),
        (20_000, 1, 10_000, 0.5),  # the one success is in every other half: exact where factorials overflow
    ],
)
def test_pass_at_k_by_hand(attempts, successes, k, chance):
    assert pass_at_k(attempts, successes, k) == pytest.approx(chance, abs=1e-15)


@each(
    ("gained", "lost", "p"),
    [
        (0, 0, 1.0),
        (5, 0, 2 / 32),
        (1, 9, 2 * (1 + 10) / 1024),
        (9, 1, 2 * (1 + 10) / 1024),
        (3, 3, 1.0),  # twice the half of it and the middle would be more than 1
        (2000, 0, 0.0),  # too small for a float, and no error
    ],
)
def test_mcnemar_by_hand(gained, lost, p):
    assert mcnemar(gained, lost) == pytest.approx(p, abs=1e-15)
