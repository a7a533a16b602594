"""The fixed episode sets: drawn from a seed, so that every scheduler meets the same lengths, latencies and waits."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from typing import Any

CLICKS = ((80.0, 93.0), (8.0, 61.0))
"""Points on `email-inbox` in CSS pixels, taken in turn: opens the first mail, goes back. They never end an episode."""
PAGE = "email-inbox"
"""The page of all scripted episodes."""


@dataclass(frozen=True, slots=True)
class Lognormal:
    """A lognormal distribution."""

    median: float
    sigma: float
    """Standard deviation of the logarithm."""

    def draw(self, chance: random.Random) -> float:
        """Return one number."""
        return self.median * chance.lognormvariate(0.0, self.sigma) if self.median else 0.0

    def times(self, factor: float) -> Lognormal:
        """Return the distribution of the numbers times a factor."""
        return Lognormal(self.median * factor, self.sigma)

    def __str__(self) -> str:
        return f"lognormal(median {self.median:g}, sigma {self.sigma:g})"


POLICY = Lognormal(0.3, 0.5)
"""Seconds until the policy answers."""
NETWORK = Lognormal(0.6, 0.9)
"""Seconds that the network takes before an observation."""
LENGTH = Lognormal(6.0, 0.6)
"""Steps of an episode, rounded, at least 1."""
NOTHING = Lognormal(0.0, 0.0)
"""No time at all."""


@dataclass(frozen=True, slots=True)
class Script:
    """What happens in one episode: `len(latencies)` steps, the last of which answers."""

    seed: int
    latencies: tuple[float, ...]
    """Seconds that the policy takes for each step."""
    waits: tuple[float, ...]
    """Seconds of network before each step's observation."""
    page: str = PAGE

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Distributions:
    """What the scripts are drawn from."""

    policy: Lognormal = POLICY
    network: Lognormal = NOTHING
    length: Lognormal = LENGTH

    def scripts(self, count: int, seed: int) -> list[Script]:
        """Return so many scripts; the same seed gives the same, and its first ones don't depend on `count`."""
        return [self._script(seed, number) for number in range(count)]

    def to_json(self) -> dict[str, str]:
        """Return the distributions in words."""
        words = {"policy_s": str(self.policy), "network_s": str(self.network), "steps": str(self.length)}
        return {name: "none" if word.startswith("lognormal(median 0,") else word for name, word in words.items()}

    def _script(self, seed: int, number: int) -> Script:
        chance = random.Random(f"{seed}:{number}")
        steps = max(1, round(self.length.draw(chance)))
        drawn = [(self.policy.draw(chance), self.network.draw(chance)) for _ in range(steps)]
        latencies, waits = zip(*drawn, strict=True)
        return Script(seed=1000 * seed + number, latencies=latencies, waits=waits)
