"""What becomes of a new task on its way: why one is turned down, and the counts of it all. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from webgym_cli.curriculum.near_duplicates import SeenTexts, normalize_words
from webgym_cli.curriculum.prompts import LONGEST
from webgym_cli.curriculum.seeds import SeedRequest
from webgym_cli.records.task import Task


class Rejection(StrEnum):
    """Why a new task is not kept."""

    MALFORMED = "malformed"
    """It has no words, or too many characters."""
    KNOWN = "known_task"
    """A task of the run says the same, or nearly."""
    REPEATED = "repeated"
    """An earlier new task does."""
    TOO_HARD = "too_hard"
    """Success is less likely than `generate.critic_window` allows."""
    TOO_EASY = "too_easy"
    """It is more likely."""
    CRITIC_SILENT = "critic_gave_no_answer"
    """How likely it is could not be told. Asked again the next time."""
    INFEASIBLE = "infeasible"
    """It can't be done on its site, says the model."""
    FEASIBILITY_UNREADABLE = "feasibility_unreadable"
    """What the model said of that could not be read: no answer is no acceptance."""
    FEASIBILITY_SILENT = "feasibility_gave_no_answer"
    """The server did not answer. Asked again the next time."""
    SURPLUS = "surplus"
    """As many as `generate.tasks` were kept before."""


@dataclass(slots=True)
class TaskCandidate:
    """A new task on its way."""

    instruction: str
    task: Task
    request: SeedRequest
    rejection: Rejection | None = None
    """None: not turned down so far."""
    detail: str = ""
    """What the rejection is about: the task that it repeats, the model's reason."""
    probability: float | None = None
    """How likely the policy's success is."""

    def reject(self, why: Rejection, detail: str = "") -> None:
        """Turn it down."""
        self.rejection, self.detail = why, detail

    def to_json(self) -> dict[str, Any]:
        """Return the line that `FILE.rejected.jsonl` has of it."""
        return {
            "instruction": self.instruction,
            "site": self.request.group.site,
            "round": self.request.round,
            "seeds": [seed.task.id for seed in self.request.seeds],
            "reason": None if self.rejection is None else self.rejection.value,
            "detail": self.detail,
            "probability": self.probability,
        }


class NoveltyFilter:
    """Knows what is asked already, by site."""

    def __init__(self, known: Mapping[str, tuple[str, ...]], share: float) -> None:
        """`share`: how much of their words two tasks that are one have in common."""
        self._known: dict[str, SeenTexts] = {}
        self._new: dict[str, SeenTexts] = {}
        for site, texts in known.items():
            self._known[site], self._new[site] = SeenTexts(share), SeenTexts(share)
            for text in texts:
                self._known[site].add(text)

    def reject_repeated(self, candidate: TaskCandidate) -> None:
        """Turn down what is no task or none that is new; note the others."""
        text, site = candidate.instruction, candidate.request.group.site
        if not normalize_words(text) or len(text) > LONGEST:
            candidate.reject(Rejection.MALFORMED, f"{len(text)} characters")
        elif (same := self._known[site].find_similar(text)) is not None:
            candidate.reject(Rejection.KNOWN, same)
        elif (same := self._new[site].find_similar(text)) is not None:
            candidate.reject(Rejection.REPEATED, same)
        else:
            self._new[site].add(text)


def filter_by_probability(candidate: TaskCandidate, heads: Sequence[float], window: tuple[float, float]) -> None:
    """Note how likely success is, and turn down what no head of the critic holds for within the window, ends included.

    The rule of WebRL's released code. The noted probability is the critic's V, the least of its heads'.
    """
    candidate.probability = min(heads)
    if any(window[0] <= head <= window[1] for head in heads):
        return
    candidate.reject(Rejection.TOO_HARD if candidate.probability < window[0] else Rejection.TOO_EASY)
