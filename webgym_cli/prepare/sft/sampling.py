"""Recency-biased sampling: the quota of each iteration, and the order in which its steps are tried. Pure."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")

# SQL: a number in (0, 1) from the first 52 of a priority's 128 bits.
UNIFORM = "((priority >> 76)::DOUBLE + 0.5) / 4503599627370496"
# SQL: an integer from a priority's last 64 bits, used by caps. If caps kept the steps with the lowest priorities, the
# sampling would no longer be uniform over the rest.
LOT = "(priority & 18446744073709551615::UHUGEINT)::UBIGINT"


def priority_sql(identity: str) -> str:
    """Return the SQL of a step's priority: 128 bits derived from the seed. The lowest are sampled first.

    `identity`: SQL of a text that is unique to the step.
    """
    # MD5 is the same in every version of every database, so the order depends only on the buffer's content, not on the
    # order of rows, their files or their writers.
    return f"md5_number({identity})"


def position_key_sql(power: float) -> str:
    """Return the SQL of the sampling key for weights by position; the lowest are sampled first.

    `position` numbers the eligible steps from 1 in time, `count` is their number, and the weight is (position /
    count)^power. The first k by the key -ln(u)/weight are a weighted sample without replacement (P. S. Efraimidis, P.
    G. Spirakis: Weighted random sampling with a reservoir, Information Processing Letters 97(5), 2006).
    """
    # The key's logarithm has the same order, and powers don't overflow.
    return f"ln(-ln({UNIFORM})) - {power!r}::DOUBLE * ln(position / count)"


def compute_quotas(available: Mapping[int, int], wanted: int | None, power: float) -> dict[int, int]:
    """Return the number of steps to sample from each iteration.

    `available`: eligible steps by iteration. The i-th oldest (i from 0) has the weight (i+1)^power; shares are rounded
    by largest remainder. What an iteration lacks is distributed over the others by their weights. `wanted` None, or at
    least the total: all.
    """
    if wanted is None or wanted >= sum(available.values()):
        return dict(available)
    ranks = {iteration: rank for rank, iteration in enumerate(sorted(available), 1)}
    given = dict.fromkeys(available, 0)
    while (left := wanted - sum(given.values())) > 0:
        open_ = [iteration for iteration in available if given[iteration] < available[iteration]]
        newest = max(ranks[iteration] for iteration in open_)
        weights = {iteration: (ranks[iteration] / newest) ** power for iteration in open_}  # one is 1, none larger
        for iteration, share in _largest_remainder(weights, left).items():
            given[iteration] = min(available[iteration], given[iteration] + share)
    return given


def shuffle_by_seed(items: Sequence[T], seed: str) -> list[T]:
    """Return the items in a random order given by the seed."""
    return random.Random(seed).sample(list(items), len(items))


def _largest_remainder(weights: Mapping[int, float], count: int) -> dict[int, int]:
    total = sum(weights.values())
    exact = {key: count * weight / total for key, weight in weights.items()}
    shares = {key: int(value) for key, value in exact.items()}
    by_remainder = sorted(exact, key=lambda key: (round(shares[key] - exact[key], 9), -key))
    for key in by_remainder[: count - sum(shares.values())]:
        shares[key] += 1
    return shares
