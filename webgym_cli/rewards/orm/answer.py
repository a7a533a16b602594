"""Probability of YES from the log-probabilities of an answer's first token. Pure. It fails closed."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from webgym_cli.agent.prompts.orm_prompt import ANSWERS
from webgym_cli.agent.tokens.orm_tokens import OrmError

YES, NO = ANSWERS
# Log-probabilities of servers may exceed 0 by rounding.
_ROUNDING = 0.01
# Accepted spellings of each answer; the first one is requested.
SPELLINGS = {
    answer: tuple(f"{space}{form}" for form in (answer, answer.capitalize(), answer.lower()) for space in ("", " "))
    for answer in ANSWERS
}


@dataclass(frozen=True, slots=True)
class Probability:
    """Output of the reward model for a trajectory."""

    yes: float
    """P(YES) among YES and NO."""
    mass: float
    """P(YES) + P(NO) among all tokens; a small value means that the model did not understand the question."""


def find_first_tokens(spelled: Mapping[str, Sequence[int]]) -> dict[str, frozenset[int]]:
    """Return the first tokens of each answer from the token ids of all spellings.

    These are the first token of the requested spelling, which a model is trained to produce, and other spellings of a
    single token. Raises `OrmError` if both answers start with the same token.
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
    """Return P(YES) from the tokens listed by a server with their natural log-probabilities.

    An unlisted answer is less likely than all listed tokens: NO then gets the probability of the least likely listed
    token and YES gets 0, so that nothing succeeds because of an omission. Raises `OrmError` if both are missing.
    """
    tokens = list(listed)
    if not all(logprob <= _ROUNDING for _, logprob in tokens):
        raise OrmError("a log-probability is no number, or above 0")
    for_yes = math.fsum(math.exp(logprob) for token, logprob in tokens if token in yes)
    for_no = math.fsum(math.exp(logprob) for token, logprob in tokens if token in no)
    if not for_yes + for_no:
        words = ", ".join(repr(token) for token, _ in sorted(tokens, key=lambda one: -one[1])[:3])
        raise OrmError(f"neither YES nor NO is among the answer's likely tokens ({words or 'none is listed'})")
    bound = for_no or min(math.exp(logprob) for _, logprob in tokens)
    return Probability(yes=for_yes / (for_yes + bound), mass=min(1.0, for_yes + for_no))
