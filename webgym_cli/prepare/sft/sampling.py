"""The recency-biased draw: which iteration gives how many steps, and in which order they are tried. Pure."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TypeVar

from webgym_cli.config.model import Settings

T = TypeVar("T")

# SQL: a number above 0 and below 1 from the first 52 of a priority's 128 bits.
UNIFORM = "((priority >> 76)::DOUBLE + 0.5) / 4503599627370496"
# SQL: a whole number from a priority's last 64 bits. Caps go by it: had they left the lowest priorities, what is left
# would not be drawn from by chance alone.
LOT = "(priority & 18446744073709551615::UHUGEINT)::UBIGINT"


def priority_sql(identity: str) -> str:
    """Return the SQL of a step's priority: 128 bits that the seed decides. The lowest are drawn first.

    `identity`: SQL of a text that nothing else has. The lowest are drawn first.
    """
    # MD5 is the same in every version of every database, so the draw depends on the buffer's content alone: not on the
    # order of rows, their files or who wrote them.
    return f"md5_number({identity})"


def position_key_sql(power: float) -> str:
    """Return the SQL of the key by which steps are drawn under weights of their own, lowest first.

    `position` counts the eligible steps from 1, in time, `count` is how many there are: the weight is (position /
    count)^power. The first k by the key -ln(u)/weight are a weighted sample without replacement (P. S. Efraimidis,
    P. G. Spirakis: Weighted random sampling with a reservoir, Information Processing Letters 97(5), 2006).
    """
    # The key's logarithm: the same order, and no power overflows.
    return f"ln(-ln({UNIFORM})) - {power!r}::DOUBLE * ln(position / count)"


def compute_quotas(available: Mapping[int, int], wanted: int | None, power: float) -> dict[int, int]:
    """Return how many steps each iteration gives.

    `available`: eligible steps by iteration. The i-th oldest (i from 0) has the weight (i+1)^power; shares are rounded
    by largest remainder. What an iteration can't give is shared among the others by their weights. `wanted` None, or at
    least as many as there are: all.
    """
    if wanted is None or wanted >= sum(available.values()):
        return dict(available)
    ranks = {iteration: rank for rank, iteration in enumerate(sorted(available), 1)}
    given = dict.fromkeys(available, 0)
    while (left := wanted - sum(given.values())) > 0:
        open_ = [iteration for iteration in available if given[iteration] < available[iteration]]
        newest = max(ranks[iteration] for iteration in open_)
        weights = {iteration: (ranks[iteration] / newest) ** power for iteration in open_}  # at most 1, at least one 1
        for iteration, share in _largest_remainder(weights, left).items():
            given[iteration] = min(available[iteration], given[iteration] + share)
    return given


def resolve_seed(settings: Settings) -> int:
    """Return the seed of the draw."""
    return settings.seed if settings.algorithm_config.seed is None else settings.algorithm_config.seed


def shuffle_by_seed(items: Sequence[T], seed: str) -> list[T]:
    """Return the items in a random order that the seed decides."""
    return random.Random(seed).sample(list(items), len(items))


def _largest_remainder(weights: Mapping[int, float], count: int) -> dict[int, int]:
    total = sum(weights.values())
    exact = {key: count * weight / total for key, weight in weights.items()}
    shares = {key: int(value) for key, value in exact.items()}
    by_remainder = sorted(exact, key=lambda key: (round(shares[key] - exact[key], 9), -key))
    for key in by_remainder[: count - sum(shares.values())]:
        shares[key] += 1
    return shares
