"""Filters of generated tasks, their rejection reasons, and counts. Pure."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from webgym_cli.curriculum.prompts import LONGEST
from webgym_cli.curriculum.seeds import SeedRequest
from webgym_cli.records.task import Task


class Rejection(StrEnum):
    """Why a generated task is rejected."""

    MALFORMED = "malformed"
    """It is empty or too long."""
    NO_CHECK = "no_check"
    """Failed tasks of its site have checks, and it has the form of none of their templates: nothing could score it."""
    KNOWN = "known_task"
    """It equals or nearly equals a task of the run."""
    REPEATED = "repeated"
    """It equals or nearly equals an earlier generated task."""
    TOO_HARD = "too_hard"
    """Its success probability is below `generate.critic_window`."""
    TOO_EASY = "too_easy"
    """Its success probability is above the window."""
    CRITIC_SILENT = "critic_gave_no_answer"
    """The success probability is unknown; requested again the next time."""
    INFEASIBLE = "infeasible"
    """The model considers it infeasible on its site."""
    FEASIBILITY_UNREADABLE = "feasibility_unreadable"
    """The model's answer was unreadable, which does not count as feasible."""
    FEASIBILITY_SILENT = "feasibility_gave_no_answer"
    """The server did not answer; requested again the next time."""
    SURPLUS = "surplus"
    """`generate.tasks` were already kept."""


@dataclass(slots=True)
class TaskCandidate:
    """A generated task during filtering."""

    instruction: str
    task: Task
    request: SeedRequest
    rejection: Rejection | None = None
    """None: not rejected so far."""
    detail: str = ""
    """Detail of the rejection: the repeated task, or the model's reason."""
    probability: float | None = None
    """Estimated success probability of the policy."""

    def reject(self, why: Rejection, detail: str = "") -> None:
        """Reject the task."""
        self.rejection, self.detail = why, detail

    def to_json(self) -> dict[str, Any]:
        """Return its line in `FILE.rejected.jsonl`."""
        return {
            "instruction": self.instruction,
            "site": self.request.group.site,
            "round": self.request.round,
            "seeds": [seed.task.id for seed in self.request.seeds],
            "reason": self.rejection and self.rejection.value,
            "detail": self.detail,
            "probability": self.probability,
        }


class NoveltyFilter:
    """Rejects known and repeated tasks, by site."""

    def __init__(self, known: Mapping[str, tuple[str, ...]], share: float) -> None:
        """`share`: minimum overlap of their words from which two tasks count as equal."""
        self._known, self._new = (defaultdict[str, SeenTexts](lambda: SeenTexts(share)) for _ in range(2))
        for site, texts in known.items():
            for text in texts:
                self._known[site].add(text)

    def reject_repeated(self, candidate: TaskCandidate) -> None:
        """Reject an invalid or repeated task; remember a new one."""
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
    """Set the success probability; reject the task unless an output of the critic lies in the window, ends included.

    The rule of WebRL's released code. The stored probability is the critic's V, the minimum over its heads.
    """
    candidate.probability = min(heads)
    if any(window[0] <= head <= window[1] for head in heads):
        return
    candidate.reject(Rejection.TOO_HARD if candidate.probability < window[0] else Rejection.TOO_EASY)


_WORD = re.compile(r"\w+")
# Tolerance for rounding errors of products with a share.
_ROUNDING = 1e-9


def normalize_words(text: str) -> tuple[str, ...]:
    """Return a text's words, normalized in case, punctuation and Unicode form."""
    return tuple(_WORD.findall(unicodedata.normalize("NFKC", text).casefold()))


class SeenTexts:
    """Index of known instructions."""

    def __init__(self, share: float) -> None:
        """`share`: minimum share of common words (each counted once) for two texts to be similar."""
        self._share = share
        self._texts: list[str] = []
        self._words: list[frozenset[str]] = []
        self._exact: dict[tuple[str, ...], int] = {}
        self._with: dict[str, list[int]] = {}

    def add(self, text: str) -> None:
        """Add a text; one with the same words as a known one changes nothing."""
        words = normalize_words(text)
        if words in self._exact:
            return
        number = self._exact[words] = len(self._texts)
        self._texts.append(text)
        self._words.append(frozenset(words))
        for word in self._words[-1]:
            self._with.setdefault(word, []).append(number)

    def find_similar(self, text: str) -> str | None:
        """Return the most similar known text, or None."""
        words = normalize_words(text)
        if (number := self._exact.get(words)) is not None:
            return self._texts[number]
        mine = frozenset(words)
        # A similar text must contain one of the rarest words, as few may be missing.
        needed = len(mine) - math.ceil(self._share * len(mine) - _ROUNDING) + 1
        rarest = sorted(mine, key=lambda word: (len(self._with.get(word, ())), word))[:needed]
        texts = ((other, self._words[other]) for word in rarest for other in self._with.get(word, ()))
        alike = ((len(mine & theirs) / len(mine | theirs), -other) for other, theirs in texts)
        share, number = max(alike, default=(0.0, 0))
        return self._texts[-number] if share >= self._share else None
