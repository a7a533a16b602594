"""Reward functions for questions whose answer is a text, by SQuAD's measures (Rajpurkar et al. 2016); and for form."""

from __future__ import annotations

import re
import string
from collections import Counter
from typing import Any

from webgym_cli.scoring.define import reward
from webgym_cli.scoring.numbers import extract_boxed

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = frozenset(string.punctuation)
_TAGGED = re.compile(r"<answer>(.*?)</answer>", re.DOTALL | re.IGNORECASE)


@reward
def qa_em_reward(final_response: str, answer: Any) -> dict[str, float]:
    """1 where the answer is one of the record's after SQuAD's normalisation (case, punctuation, articles), else 0."""
    given = normalise(_extract_answer(final_response))
    exact = float(any(normalise(wanted) == given for wanted in _to_list(answer)))
    return {"reward": exact, "em": exact}


@reward
def qa_f1_reward(final_response: str, answer: Any) -> dict[str, float]:
    """Precision and recall over words as one number, after SQuAD's normalisation; of several answers the best."""
    given = _extract_answer(final_response)
    best = max((f1_score(given, wanted) for wanted in _to_list(answer)), default=0.0)
    exact = float(any(normalise(wanted) == normalise(given) for wanted in _to_list(answer)))
    return {"reward": best, "f1": best, "em": exact}


@reward
def format_reward(final_response: str) -> float:
    """1 where the response gives its answer in exactly one `\\boxed{...}` or `<answer>...</answer>`, else 0."""
    boxes, tags = final_response.count("\\boxed{"), _TAGGED.findall(final_response)
    content = extract_boxed(final_response) if boxes else "".join(tags)
    return float(boxes + len(tags) == 1 and bool(content and content.strip()))


def normalise(text: str) -> str:
    """Return a text in lower case, without punctuation, articles and needless spaces."""
    letters = "".join(character for character in text.lower() if character not in _PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", letters).split())


def f1_score(given: str, wanted: str) -> float:
    """Return 2 p r / (p + r) over the words that both have; 1 where both have none, 0 where one has."""
    ours, theirs = normalise(given).split(), normalise(wanted).split()
    if not ours or not theirs:
        return float(ours == theirs)
    # Words that occur twice count twice, as in SQuAD.
    shared = sum((Counter(ours) & Counter(theirs)).values())
    return 2 * shared / (len(ours) + len(theirs))


def _extract_answer(final_response: str) -> str:
    """Return what stands in the last box or tags; else all of it."""
    boxed, tags = extract_boxed(final_response), _TAGGED.findall(final_response)
    return boxed if boxed is not None else str(tags[-1]) if tags else final_response


def _to_list(answer: Any) -> list[str]:
    return [str(item) for item in (answer if isinstance(answer, list | tuple) else [answer])]
