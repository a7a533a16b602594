"""Detection of near-duplicate instructions by the overlap of their word sets."""

from __future__ import annotations

import math
import re
import unicodedata

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
        texts = ((other, self._words[other]) for other in self._candidates(mine))
        alike = ((len(mine & theirs) / len(mine | theirs), -other) for other, theirs in texts)
        share, number = max(alike, default=(0.0, 0))
        return self._texts[-number] if share >= self._share else None

    def _candidates(self, mine: frozenset[str]) -> set[int]:
        """Return possibly similar texts: a similar text must contain one of the rarest words, as few may be missing."""
        needed = len(mine) - math.ceil(self._share * len(mine) - _ROUNDING) + 1
        rarest = sorted(mine, key=lambda word: (len(self._with.get(word, ())), word))[:needed]
        return {number for word in rarest for number in self._with.get(word, ())}
