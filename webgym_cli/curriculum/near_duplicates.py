"""Detection of near-duplicate instructions by the overlap of their word sets."""

from __future__ import annotations

import math
import re
import unicodedata

_WORD = re.compile(r"\w+")
# What a product of a share may be too large by.
_ROUNDING = 1e-9


def normalize_words(text: str) -> tuple[str, ...]:
    """Return a text's words without case, punctuation and the forms that one character may be written in."""
    return tuple(_WORD.findall(unicodedata.normalize("NFKC", text).casefold()))


class SeenTexts:
    """Instructions that were met."""

    def __init__(self, share: float) -> None:
        """`share`: two texts are alike when so large a part of their words, each counted once, is common to both."""
        self._share = share
        self._texts: list[str] = []
        self._words: list[frozenset[str]] = []
        self._exact: dict[tuple[str, ...], int] = {}
        self._with: dict[str, list[int]] = {}

    def add(self, text: str) -> None:
        """Note a text; one whose words are those of a noted one changes nothing."""
        words = normalize_words(text)
        if words in self._exact:
            return
        number = self._exact[words] = len(self._texts)
        self._texts.append(text)
        self._words.append(frozenset(words))
        for word in self._words[-1]:
            self._with.setdefault(word, []).append(number)

    def find_similar(self, text: str) -> str | None:
        """Return a noted text that is like this one, the likest; None where there is none."""
        words = normalize_words(text)
        if (number := self._exact.get(words)) is not None:
            return self._texts[number]
        mine = frozenset(words)
        texts = ((other, self._words[other]) for other in self._candidates(mine))
        alike = ((len(mine & theirs) / len(mine | theirs), -other) for other, theirs in texts)
        share, number = max(alike, default=(0.0, 0))
        return self._texts[-number] if share >= self._share else None

    def _candidates(self, mine: frozenset[str]) -> set[int]:
        """Return the texts that can be alike: one lacks too few words to have none of so many, so take the rarest."""
        needed = len(mine) - math.ceil(self._share * len(mine) - _ROUNDING) + 1
        rarest = sorted(mine, key=lambda word: (len(self._with.get(word, ())), word))[:needed]
        return {number for word in rarest for number in self._with.get(word, ())}
