"""What can go wrong on a web site, on purpose and seeded: latency, errors, shut doors, heavy and hanging pages."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LatencyModel:
    """How long every answer is held back, in seconds: `median * exp(sigma * N(0, 1))`; constant when sigma is 0."""

    median: float = 0.0
    """Seconds; half of the answers take longer."""
    sigma: float = 0.0
    """Spread of the lognormal distribution; 0: every answer takes `median`."""

    def __post_init__(self) -> None:
        if self.median < 0 or self.sigma < 0:
            raise ValueError(f"a latency has no negative numbers, got {self}")

    def draw(self, rng: random.Random) -> float:
        """Return the seconds of one answer."""
        return self.median * math.exp(self.sigma * rng.gauss(0.0, 1.0)) if self.sigma else self.median


@dataclass(frozen=True, slots=True)
class FaultConfig:
    """How the sites misbehave. They act on the pages of the sites, never on those of the laboratory."""

    latency: LatencyModel = LatencyModel()
    """Holds back every answer."""
    error_rate: float = 0.0
    """Share of the requests for a page that are answered with HTTP 503, before they change anything."""
    slow_rate: float = 0.0
    """Share of the pages whose first byte takes `slow_seconds`."""
    slow_seconds: float = 10.0
    """How long a slow page keeps its first byte."""
    blank_rate: float = 0.0
    """Share of the pages that are answered with an empty document."""
    blocked_hosts: tuple[str, ...] = ()
    """Hosts that ask whether the visitor is human, with HTTP 403."""
    blocked_after: int = 0
    """How many pages of a blocked host an episode is given before the door shuts; 0: none."""
    heavy_nodes: int = 0
    """How many elements of ballast stand below the content of each page."""
    endless: bool = False
    """Each page has a picture that never finishes loading, so its `load` event never comes."""
    seed: int = 0
    """Together with the episode's seed and the number of the request it decides all of the above."""

    def __post_init__(self) -> None:
        for name in ("error_rate", "slow_rate", "blank_rate"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is a share from 0 to 1, got {getattr(self, name)}")
        for name in ("slow_seconds", "blocked_after", "heavy_nodes"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} can't be negative, got {getattr(self, name)}")

    def draw_fault(self, episode: str, number: int) -> RequestFault:
        """Return what befalls the episode's request of that number (from 0): always the same for the same seed."""
        rng = random.Random(f"{self.seed}/{episode}/{number}")
        delay = self.latency.draw(rng)
        error, slow, blank = (rng.random() < share for share in (self.error_rate, self.slow_rate, self.blank_rate))
        return RequestFault(delay=delay + (self.slow_seconds if slow else 0.0), error=error, blank=blank)


@dataclass(frozen=True, slots=True)
class RequestFault:
    """What befalls one request."""

    delay: float
    """Seconds until the first byte."""
    error: bool
    """Whether it is answered with HTTP 503."""
    blank: bool
    """Whether the page comes empty."""
