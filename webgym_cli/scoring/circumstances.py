"""What follows the amount of a sentence and is no part of it: `$64 for the 16 glasses`, `3 hours more than James`."""

from __future__ import annotations

import re

# What names a thing that the question gave: `for the 16 glasses`, `to feed his horses`.
_KNOWN = r"(?:the|these|those|this|that|all|both|each|every|his|her|their|its|my|our|your|an?)\b"
# A number of such things is no other answer; it may be in `on the 5`, `for the 16%` and the ratio `for every 2 girls`.
_KNOWN_NUMBER = rf"(?:(?!each|every){_KNOWN}|first|last|next) \d[\d,.]*(?= [a-z])"
# Words that join, deny, compare or calculate may make another answer; the others do not.
_WORD = (
    r"(?!(?:and|or|but|not?|never|is|are|was|were|be|than|times|plus|minus|half|hundred|thousand|million|billion|if"
    r"|except)\b)[a-z][\w'’-]*"
)
# A preposition before such a thing alone: without one another number may follow, as in `5 in 8`.
_PLACE = rf"(?:after|at|before|during|for|in|on|within)(?= {_KNOWN})"
# `in four weeks`; in digits it would be a second amount.
_PERIOD = r"(?:after|for|in|within)(?= (?:one|two|three|four|five|six|seven|eight) [a-z])"
# `by fixing the pothole`, `before she can pay`, `by the end`, `by the time Julia came`.
_EVENT = r"(?:after|before|by) [a-z]+ing\b|(?:after|before) (?:she|he|they|it|we|you)|by the (?:end|time)\b"
# `to paint the room`; not `to the fourth`, a power.
_PURPOSE = rf"to(?= [a-z]{{2,}} {_KNOWN})"
# `on clothing`, `in June`, `in South America`.
_NAME = r"on|in (?-i:[A-Z])[a-z]+"
# Not right after a verb (`the amount is in the table`), nor at the end of a question.
_CIRCUMSTANCE = re.compile(
    rf"(?<!\bis)(?<!\bare)(?<!\bwas)(?<!\bwere)\s(?:{_PLACE}|{_PERIOD}|{_EVENT}|{_PURPOSE}|{_NAME})"
    rf"(?: (?:{_KNOWN_NUMBER}|{_WORD})){{0,12}}[^\w?]*$",
    re.IGNORECASE,
)
# A difference, which is the only number: `Harry slept 3 more hours than James`.
_COMPARED = re.compile(
    r"^(\D+\d[\d,.]*(?: [a-z]+){0,3} (?:more|[a-z]+er)(?: [a-z]+){0,3}) than (?-i:(?!Pi\b)[A-Z])[a-z]+[^\w?]*$",
    re.IGNORECASE,
)
# A step of the calculation, which names a number that is its input: `Add 7 on both sides`.
_STEP = (
    r"(?:^|[,:] |\b(?:first|then|next|now|we|you)\W+)"
    r"(?:add|subtract|multiply|divide|take|start|substitute|plug|raise|set|put|move)\b"
)
# A condition without its consequence, and words before the amount by which it is thought, denied or told by another.
_SUPPOSED = (
    r"^(?:if|unless|suppose|assum(?:e|ing)|given)\b(?!.*,)"
    r"|\b(?:might|(?-i:may)|could|(?:would|should) have|(?:wants?|hopes?) to|thought|thinks?|doubts?|claims?|knows?"
    r"|sa(?:y|ys|id)|imagine|maybe|perhaps|possibly|nobody|no one|few)\b[^,\d]*\d"
)
# What there was earlier is not what is left: `He had 10 before the 4 left`.
_EARLIER = r"\b(?:had|was|were|cost)\b[^,]* before\b|\bat the (?:start|beginning)\b|\bfrom \W?\d"
# `$14 less after the purchase` may ask for what is lost or for what remains.
_UNSETTLED = re.compile(rf"{_STEP}|{_SUPPOSED}|{_EARLIER}|\b(?:less|fewer)\b", re.IGNORECASE)
# The result of a calculation.
_STATED = re.compile(r"=\s*[^\w\s=]?[\d.,]+[^\d=]*$")


def strip_circumstance(sentence: str) -> str:
    """Return a sentence without what follows its amount; unchanged if that may not be what it states.

    Of several numbers only the result of a calculation is stated for sure: `3 trucks carry 80 stones in one trip`.
    """
    if _UNSETTLED.search(sentence):
        return sentence
    short = _COMPARED.sub(r"\1", _CIRCUMSTANCE.sub("", sentence))
    is_stated = len(re.findall(r"\d[\d.,]*", short)) == 1 or _STATED.search(short)
    return short if is_stated else sentence
