"""The recency-biased draw: which iteration gives how many steps, and in which order they are tried."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")


def quotas(available: Mapping[int, int], wanted: int | None, power: float) -> dict[int, int]:
    """Return how many steps each iteration gives.

    `available`: eligible steps by iteration. The i-th oldest (i from 0) has the weight (i+1)^power; shares are rounded
    by largest remainder. What an iteration can't give is shared among the others by their weights. `wanted` None, or at
    least as many as there are: all.
    """
    if wanted is None or wanted >= sum(available.values()):
        return dict(available)
    weights = {iteration: (position + 1) ** power for position, iteration in enumerate(sorted(available))}
    given = dict.fromkeys(available, 0)
    while (left := wanted - sum(given.values())) > 0:
        open_ = {iteration: weights[iteration] for iteration in available if given[iteration] < available[iteration]}
        for iteration, share in _largest_remainder(open_, left).items():
            given[iteration] = min(available[iteration], given[iteration] + share)
    return given


def shuffled(items: Sequence[T], seed: str) -> list[T]:
    """Return the items in a random order that the seed decides."""
    return random.Random(seed).sample(list(items), len(items))


def _largest_remainder(weights: Mapping[int, float], count: int) -> dict[int, int]:
    total = sum(weights.values())
    exact = {key: count * weight / total for key, weight in weights.items()}
    shares = {key: int(value) for key, value in exact.items()}
    by_remainder = sorted(exact, key=lambda key: (shares[key] - exact[key], -key))
    for key in by_remainder[: count - sum(shares.values())]:
        shares[key] += 1
    return shares
