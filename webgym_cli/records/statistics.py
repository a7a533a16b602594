"""Success rates with confidence intervals, pass@k, McNemar's test, Holm's adjustment, Cohen's kappa."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TypedDict

# Two-sided 95 % quantile of the normal distribution.
_Z95 = 1.959964
# Two-sided 95 % quantiles of Student's t for 1 to 20 degrees of freedom.
_T95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
)


def wilson(successes: float, trials: int) -> tuple[float, float]:
    """Return the Wilson score interval of a proportion (Wilson 1927); (0, 1) without trials.

    `successes` is not whole where each trial is a mean of its repeats.
    """
    if trials == 0:
        return 0.0, 1.0
    rate = successes / trials
    centre = rate + _Z95**2 / (2 * trials)
    spread = _Z95 * math.sqrt(rate * (1 - rate) / trials + _Z95**2 / (4 * trials * trials))
    scale = 1 + _Z95**2 / trials
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def round_wilson(successes: float, trials: int) -> list[float]:
    """Return the Wilson score interval, rounded for a report."""
    return [round(bound, 4) for bound in wilson(successes, trials)]


def known_interval(successes: float, trials: int) -> list[float] | None:
    """Return the rounded Wilson score interval; None without trials."""
    return round_wilson(successes, trials) if trials else None


def ratio(part: float, whole: float, digits: int = 4) -> float | None:
    """Return a rounded quotient; None if the whole is zero."""
    return round(part / whole, digits) if whole else None


def mean(values: Iterable[float], digits: int = 4) -> float | None:
    """Return a rounded mean; None without values."""
    listed = list(values)
    return ratio(math.fsum(listed), len(listed), digits)


def mean_by_name(many: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the rounded mean of each name's values, over the mappings that have it."""
    values: dict[str, list[float]] = {}
    for one in many:
        for name, value in one.items():
            values.setdefault(name, []).append(value)
    return {name: round(fmean(listed), 4) for name, listed in sorted(values.items())}


def deviation(values: Sequence[float]) -> float | None:
    """Return the rounded standard deviation of a sample; None for fewer than two values."""
    return round(stdev(values), 4) if len(values) > 1 else None


def difference(first: tuple[float, int], second: tuple[float, int]) -> tuple[float, float, float]:
    """Return second minus first of two independent proportions (successes, trials), with its interval.

    Newcombe's hybrid score interval (Newcombe 1998, method 10). Both need at least one trial.
    """
    (a, n), (b, m) = first, second
    low_a, high_a = wilson(a, n)
    low_b, high_b = wilson(b, m)
    rate_a, rate_b = a / n, b / m
    delta = rate_b - rate_a
    low = delta - math.hypot(rate_b - low_b, high_a - rate_a)
    high = delta + math.hypot(high_b - rate_b, rate_a - low_a)
    return delta, low, high


def pass_at_k(attempts: int, successes: int, k: int) -> float:
    """Return the unbiased estimate of pass@k for one task, from its number of attempts and successes.

    1 - C(n-c, k) / C(n, k) (Chen et al. 2021, "Evaluating Large Language Models Trained on Code"), with integers and
    therefore exact for any n. Needs 1 <= k <= attempts.
    """
    ways = math.comb(attempts, k)
    return (ways - math.comb(attempts - successes, k)) / ways


class PassRate(TypedDict):
    """pass@k for one k."""

    rate: float
    tasks: int
    """Number of tasks with at least k scored attempts."""


def mean_pass_at_k(tasks: Mapping[tuple[int, int], int], k: int) -> PassRate:
    """Return the mean pass@k. `tasks`: number of tasks by their attempts and successes."""
    known = {tally: count for tally, count in tasks.items() if tally[0] >= k}
    number = sum(known.values())
    chances = sum(count * pass_at_k(*tally, k) for tally, count in known.items())
    return {"rate": ratio(chances, number) or 0.0, "tasks": number}


def mcnemar(gained: int, lost: int) -> float:
    """Return the two-sided p-value of gained and lost pairs under equal success rates; 1 without any.

    McNemar's test (McNemar 1947) in its exact form: gains among the differing pairs are binomial with p = 1/2.
    """
    differ = gained + lost
    tail = sum(math.comb(differ, count) for count in range(min(gained, lost) + 1))
    return min(1.0, 2 * tail / (1 << differ))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values adjusted for their number by Holm's step-down method (Holm 1979), in the given order."""
    adjusted, largest = [1.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def cohen_kappa(both: int, first: int, second: int, neither: int) -> tuple[float, float, float] | None:
    """Return Cohen's kappa of two yes-or-no raters with its interval (Cohen 1960).

    `first`, `second`: only this rater said yes. None if chance alone explains all agreement, or without cases.
    """
    total = both + first + second + neither
    yes = (both + first) * (both + second)
    chance = (yes + (second + neither) * (first + neither)) / total**2 if total else 1.0
    if chance == 1:
        return None
    agreed = (both + neither) / total
    kappa = (agreed - chance) / (1 - chance)
    spread = _Z95 * math.sqrt(agreed * (1 - agreed) / total) / (1 - chance)
    return kappa, max(-1.0, kappa - spread), min(1.0, kappa + spread)


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the mean of at least two values, by Student's t (a little wide from 22 values on)."""
    degrees = len(values) - 1
    half = _T95[min(degrees, len(_T95)) - 1] * stdev(values) / math.sqrt(len(values))
    return fmean(values) - half, fmean(values) + half


@dataclass(slots=True)
class Agreement:
    """Agreement rate of two sources of verdicts on the same trajectories."""

    both: int = 0
    """Trajectories with both verdicts."""
    same: int = 0

    def add(self, ours: bool | None, theirs: bool | None) -> None:
        """Count a trajectory, unless one of the two verdicts is missing."""
        if ours is not None and theirs is not None:
            self.both += 1
            self.same += ours is theirs

    def to_json(self) -> dict[str, float | None]:
        """Return the counts and the agreement rate (None without common trajectories)."""
        return {"both": self.both, "same": self.same, "rate": ratio(self.same, self.both)}
