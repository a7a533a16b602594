"""Who has which episode: each is with one rank, or waits, or needs nothing more."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from webgym_cli.rollout.plan import PendingEpisode


@dataclass(slots=True)
class Ledger:
    """The driver's book of a rollout over several ranks."""

    waiting: deque[PendingEpisode]
    """Nobody has them, in the order in which they are handed out."""
    finished: int = 0
    """Episodes that need nothing more in this rollout."""
    _held: dict[int, dict[str, PendingEpisode]] = field(default_factory=dict)

    @classmethod
    def of(cls, owed: Iterable[PendingEpisode]) -> Ledger:
        """Return the book of these episodes, all waiting."""
        return cls(deque(owed))

    @property
    def over(self) -> bool:
        """Whether nothing waits and nothing can come back."""
        return not self.waiting and not any(self._held.values())

    def hand_out(self, rank: int, count: int, skip: Callable[[PendingEpisode], bool]) -> list[PendingEpisode]:
        """Give a rank up to so many episodes. One that is to be skipped is finished instead."""
        given: list[PendingEpisode] = []
        while self.waiting and len(given) < count:
            owed = self.waiting.popleft()
            if skip(owed):
                self.finished += 1
                continue
            self._held.setdefault(rank, {})[owed.episode.id] = owed
            given.append(owed)
        return given

    def give_back(self, rank: int, owed: PendingEpisode) -> bool:
        """Put an episode of this rank's at the end, as `owed` now; False when the rank does not have it."""
        if self._held.get(rank, {}).pop(owed.episode.id, None) is None:
            return False
        self.waiting.append(owed)
        return True

    def finish(self, rank: int, episode: str) -> PendingEpisode | None:
        """Note that an episode of this rank's needs nothing more; None when the rank does not have it."""
        owed = self._held.get(rank, {}).pop(episode, None)
        self.finished += owed is not None
        return owed

    def held(self, rank: int) -> dict[str, PendingEpisode]:
        """Return what a rank has, by episode."""
        return dict(self._held.get(rank, {}))

    def reclaim(self, rank: int, owed: dict[str, PendingEpisode]) -> int:
        """Take everything from a rank that is gone, and return how many episodes go to others, first of all.

        `owed`: those of its episodes that still need a trajectory, by what is on disk; the others are finished. The
        next attempt has a number that the lost one did not: should it be written late, no id is there twice.
        """
        lost = self._held.pop(rank, {})
        again = [
            PendingEpisode(now.episode, max(now.attempt, was.attempt + 1), max(now.failures, was.failures))
            for episode, was in lost.items()
            if (now := owed.get(episode))
        ]
        self.waiting.extendleft(reversed(again))
        self.finished += len(lost) - len(again)
        return len(again)
