"""From the log-probabilities of an answer's first token to the probability of YES. Pure. It fails closed."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from webgym_cli.agent.orm_prompt import ANSWERS
from webgym_cli.agent.orm_tokens import OrmError

YES, NO = ANSWERS
# How each answer may be written; the first is what is asked for.
SPELLINGS = {
    answer: tuple(f"{space}{form}" for form in (answer, answer.capitalize(), answer.lower()) for space in ("", " "))
    for answer in ANSWERS
}


@dataclass(frozen=True, slots=True)
class Probability:
    """What the model makes of a trajectory."""

    yes: float
    """P(YES) of YES and NO."""
    mass: float
    """P(YES) + P(NO) of all that the model could have said: with little of it, it did not understand the question."""


def find_first_tokens(spelled: Mapping[str, Sequence[int]]) -> dict[str, frozenset[int]]:
    """Return the tokens that begin each answer, by the ids of all spellings.

    Those are the first token of what is asked for, which is what a model is trained to say, and the other spellings of
    one token. Raises `OrmError` where both answers begin alike.
    """
    tokens_by_answer: dict[str, set[int]] = {}
    for answer, spellings in SPELLINGS.items():
        single = {spelled[spelling][0] for spelling in spellings if len(spelled[spelling]) == 1}
        tokens_by_answer[answer] = single | set(spelled[spellings[0]][:1])
    shared = tokens_by_answer[YES] & tokens_by_answer[NO]
    if not (tokens_by_answer[YES] - shared and tokens_by_answer[NO] - shared):
        raise OrmError("the model's tokenizer begins YES and NO with the same token")
    return {answer: frozenset(ids - shared) for answer, ids in tokens_by_answer.items()}


def compute_probability(listed: Iterable[tuple[str, float]], yes: Collection[str], no: Collection[str]) -> Probability:
    """Return P(YES) by the tokens that a server lists with their natural log-probabilities.

    An answer that is not listed is less likely than all that is: NO then counts as the least likely of the list, YES
    as impossible, so that nothing is a success by what the server left out. Raises `OrmError` without either.
    """
    tokens = list(listed)
    if any(math.isnan(logprob) for _, logprob in tokens):
        raise OrmError("a log-probability is no number")
    for_yes = math.fsum(math.exp(logprob) for token, logprob in tokens if token in yes)
    for_no = math.fsum(math.exp(logprob) for token, logprob in tokens if token in no)
    if not for_yes + for_no:
        words = ", ".join(repr(token) for token, _ in sorted(tokens, key=lambda one: -one[1])[:3])
        raise OrmError(f"neither YES nor NO is among the answer's likely tokens ({words or 'none is listed'})")
    bound = for_no or min(math.exp(logprob) for _, logprob in tokens)
    return Probability(yes=for_yes / (for_yes + bound), mass=min(1.0, for_yes + for_no))
