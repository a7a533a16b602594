"""The part of a response that states its answer: in a box, in tags, after `####` or `the answer is`, or a number."""

from __future__ import annotations

import re
from collections.abc import Iterator

from webgym_cli.scoring.units import CODES, has_known_unit
from webgym_cli.util.text import skip_match

# Number of characters, from the end, in which the answer is looked for; of a formula; of phrases that are tried.
_MAX_CHARACTERS, _MAX_PHRASES, _BETWEEN = 20_000, 20, 40

# The content of boxes is found in one pass: a response of thousands of open ones would else take quadratic time.
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{|\\[{}]|[{}]")
# Markdown within a sentence: `She has **64 apples**`; not the operators of `2**3` and `2 * 3 * 4`.
_EMPHASIS = re.compile(r"(?<![\w*_)\]}\\])(\*{1,3}|_{1,2}|`)(?=[^\s*_`])([^*_`\n]{1,300})(?<=\S)\1(?![\w*])")
_BETWEEN_BOXES = re.compile(r"[\s,;$.]*(?:(?:\\text\{)?\s*(?:and|or)\s*\}?)?[\s$]*", re.IGNORECASE)
_TAGGED = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.DOTALL | re.IGNORECASE)
_HASHES = re.compile(r"####\s*(.+)")
_PHRASE = re.compile(
    r"\b(?:answer|correct (?:option|choice))\b(?:\s*\*\*)?(?:,?\s*(?:therefore|thus|then|hence|should|would|will|must"
    r"|to (?:the|this|your) (?:question|problem)|in \w+|choice)\b){0,3},?\s*"
    r"(?:\b(?:is|are|be|equals)\b|[:=])[:\s*]*",
    re.IGNORECASE,
)
# The end of a sentence; not the point of `3.5`, `p.m.` or `vs.`.
_SENTENCE = re.compile(r"(?<![ap]\.m)(?<!\b[ap])(?<!\bRs)[.!?](?=\s|$|\*\*)(?!\s*m\.)|\n", re.IGNORECASE)
_RETRACTED = re.compile(r"\b(?:wait|correction|mistake|sorry|scratch that|actually)\b|\bno,", re.IGNORECASE)

_FILLERS = re.compile(
    r"^(?:(?:therefore|thus|hence|then|so|simply|just|indeed|exactly|clearly|obviously|actually|approximately|about|also"
    r"|now|given by|equal to|going to be|the number|the value|equals|[:,=])(?![A-Za-z])[\s,:]*)+",
    re.IGNORECASE,
)
# Words after an answer that begin an explanation.
_EXPLANATION = re.compile(
    r"\s(?:because|since|as|which|given|so|where|when|after|thus|hence|therefore|due|from|using|that|i\.e\.)\b.*"
    r"|\s[(\[](?=[^()\[\]]{0,200}[A-Za-z]{2}).*|;.*|,\s(?!and\b|or\b)[A-Za-z]{2,}.*|\s(?:--?|—|–)\s[A-Za-z]{2,}.*",
    re.IGNORECASE | re.DOTALL,
)
# Another answer beside the first: `8, maybe 9`.
_ALTERNATIVE = re.compile(r"\b(?:maybe|perhaps|possibly)\s+(?:even\s+)?[^\sA-Za-z]{0,3}\d", re.IGNORECASE)
_ARTICLE = re.compile(r"^(?:a|an|the)\s+(?=[A-Za-z]{2})", re.IGNORECASE)
# In a text without a mark, the rest of a sentence may state the answer.
_REASON = re.compile(r"\s(?:because|since|as)\b.*|\s[(\[](?=[^()\[\]]{0,200}[A-Za-z]{2}).*", re.IGNORECASE | re.DOTALL)
_FORMULA = re.compile(r"\s*(?:\$\$.{1,300}?\$\$|\\\[.{1,300}?\\\])", re.DOTALL)
# A formula or a number.
_ITEM = re.compile(
    r"\$\$(?P<a>.{1,300}?)\$\$|\\\[(?P<b>.{1,300}?)\\\]|\\\((?P<c>.{1,300}?)\\\)"
    r"|(?<![\\\w])\$(?!\s)(?P<d>[^$\n]{1,300}?)(?<![\s\\])\$(?!\d)|(?P<e>-?\d{0,20}\\[dt]?(?:frac\{[^{}]*\}|sqrt)\{[^{}]*\})"
    r"|(?P<f>(?<![A-Za-z])(?:(?<![\w.)])[-−+](?=[$€£¥₹\d.]))?(?:(?:US)?[$€£¥₹]|" + CODES + r")?\s?"
    r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)?(?:\.\d+|(?<=\d))(?:[eE][+-]?\d+)?"
    r"(?:\s+\d+/\d+|\s*/\s*\d[\d,]*(?:\.\d+)?|:\d+)?)",
    re.DOTALL,
)
_NEGATIVE = re.compile(r"\b(?:minus|negative)\s+(?=\d)", re.IGNORECASE)
# What states the item after it.
_STATED = re.compile(
    r"\b(?:is|are|was|were|be|equals?|(?:mak|giv|leav)(?:es?|ing)|gets?|total(?:s|ing)?|so|but)\b|(?<![!<>])=",
    re.IGNORECASE,
)
# What joins two items, so that neither is the answer alone.
_JOINED = re.compile(
    r"\b(?:or|and|to|through|by|out of|times|plus|minus|divided)\b|^\s*(?:of(?:\s+\w+)?\s*)?$"
    r"|[-–+*/×^_<>]\s*$|^\s*[-–,:+*/×^<>]",
    re.IGNORECASE,
)
# What begins a circumstance after an answer: `in` of `72 clips in 2 months`.
_ASIDE = re.compile(
    r"(?:^|[A-Za-z])\s+(?:in|per|for|at|with|during|on|every|each|within|over|after|before|from|if)\b", re.IGNORECASE
)
_DENIED = re.compile(
    r"\b(?:not|never|no|none|neither|nor|than|least|most|between|half|quarter|past|twice|double|triple|root|sqrt"
    r"|up to|doubt|unlikely|impossible|whether|(?:false|untrue|wrong) that)\b|n't\b|√"
    r"|\b(?:january|february|march|april|may|june|july|august|(?:sept|nov|dec)ember|october)\s+$"
    r"|\b(?:if|over|under|above|below|before|exceeds?|problem|question|step|chapter|section|page|example|exercise"
    r"|without(?: the)?|(?:except|excluding)(?: for)?(?: the)?|(?<!\bthe )(?:figure|table|equation)"
    r"|(?:division|divided?) by)\s+$"
    r"|\b(?:log|ln|exp|sin|cos|tan|mod|gcd|lcm)(?:\s+of|_\{?\d+\}?)?\s*\(?$",
    re.IGNORECASE,
)
# The end of what denies its verb: `it can't be`, `anything but`; `it might be`, which `in May is` is not.
_DENIED_VERB = re.compile(
    r"(?:n['’]t|\b(?:not|never|cannot|any(?:thing|where)|everything|nothing|all)|\bdoubt(?:\s+\w+){1,3})\s+\S+$"
    r"|\b(?:could|might|may)\s+be$|\b(?:false|wrong|untrue) that\s+\S+\s+\S+$",
    re.IGNORECASE,
)
# The end of what stands before an item that is a part of an expression, or the value of another variable.
_PARTIAL = re.compile(r"(?:[!<>]=|[-+*/^_<>≤≥≠≈√×÷\\]|\\[A-Za-z]+)\s*$|(?<=[A-Za-z])\$?$")
# What ends an equation's left side to its left: a word, which is no operator of it, or a sign.
_BEFORE_EQUATION = re.compile(
    r"(?<![\\A-Za-z])(?!(?:mod|times|plus|minus|twice|double|half|of)\b)[A-Za-z]{2,}|[:;,=]|^\s*[-•]\s", re.IGNORECASE
)
_EQUALS = re.compile(r"(?<![!<>=])=(?!=)")
# What is no unknown in it: a command, the value of a function, the constants of `e^2` and `i^2`, and `10C3`.
_KNOWN_PART = re.compile(
    r"\\[A-Za-z]+|(?<![A-Za-z])[fghpqFGHPE]\s*\([^()]*\)|(?<![A-Za-z])[ei](?=\s*\^)|(?<=\d)[CP](?=\d)"
)
_UNKNOWN = re.compile(r"(?<![A-Za-z_])[A-Za-z](?![A-Za-z])(?:_\{?\w+\}?)?")
_CALCULATED = r"[-−+*/^|√×÷·!%]|\\(?!\()|\b(?:mod|times|plus|minus|twice|double|half)\b|\d(?={0})|[\d%]\s*of\b"
# What names the whole of `4r^2 = 36` before it: `the area is`, `Total:`; `the equation is` does not.
_NAMED_WHOLE = re.compile(
    r"(?:=|\b(?!(?:equation|formula|relation|relationship|condition|constraint|statement|expression|question|problem"
    r"|clue|answer|solution|result|step|case|given|it|this|that|which|what|have|get|know)\b)[A-Za-z]{2,}\s+"
    r"(?:is|are|was|were|equals)(?:\s+(?:then|now|thus|therefore|also))?"
    r"|\b(?:area|perimeter|volume|total|cost|sum|price|product|distance|profit|revenue):?)$",
    re.IGNORECASE,
)
_OTHER_NAME = re.compile(r"[,;]\s*[A-Za-z]\w*\s*=\s*$")


def find_answers(response: str) -> list[str]:
    """Return what a response may give as its one answer: the last statement, whole and without explanations.

    Empty if no statement is clear, as in `42 or 43`.
    """
    response = _EMPHASIS.sub(r"\2", response[-_MAX_CHARACTERS:])
    response = response.rpartition("</think>")[2].strip() or response
    marked = _last_statement(response)
    if marked is None:
        return [response, *_read_loose(response)]
    content, end, is_exact = marked
    rest = response[end:]
    if (retracted := _RETRACTED.search(rest)) and (corrected := _read_loose(f"so {rest[retracted.end() :]}")):
        return corrected
    return [content] if is_exact else [content, *_read_phrase(content)]


def extract_reference(text: str) -> str | None:
    """Return the part of a record's answer that a box or `####` marks, as in GSM8K's files; None without a mark."""
    if (boxed := extract_boxed(text)) is not None:
        return boxed
    return str(lines[-1]).strip().strip("*`") if (lines := _HASHES.findall(text)) else None


def extract_boxed(text: str) -> str | None:
    """Return the content of the last closed `\\boxed{...}`; of boxes beside it, too, as a list. None without one."""
    return next((content for _, _, content in reversed(list(_boxes(text))) if content is not None), None)


def _boxes(text: str) -> Iterator[tuple[int, int, str | None]]:
    """Yield start, end and content of closed boxes; of boxes beside each other (`and`) together.

    The content of a box that a cut-off response leaves open is None, since `\\boxed{1` may have become `\\boxed{15}`.
    """
    opened: list[tuple[int, int] | None] = []
    closed: list[tuple[int, int, str]] = []
    for match in _BOX.finditer(text):
        if match[0] in ("\\{", "\\}"):
            continue
        if match[0] != "}":
            opened.append((match.start(), match.end()) if len(match[0]) > 1 else None)
        elif opened and (box := opened.pop()):
            content = text[box[1] : match.start()].strip()
            while closed and closed[-1][0] > box[0]:  # a box within it
                content = closed.pop()[2]
            closed.append((box[0], match.end(), content))
    for number, (start, end, content) in enumerate(closed):
        if number:
            first, before, other = closed[number - 1]
            is_near = start - before < _BETWEEN and _BETWEEN_BOXES.fullmatch(text, before, start)
            if is_near and content and content != other:
                closed[number] = (first, end, f"{other}, {content}")
        yield closed[number]
    last = max((end for _, end, _ in closed), default=0)
    yield from ((box[0], len(text), None) for box in opened if box and box[0] >= last)


def _last_statement(text: str) -> tuple[str, int, bool] | None:
    """Return the last marked statement, where it ends, and whether it is only the answer; None without one.

    A phrase (`the answer is`) is only a statement if no other follows it, and after a box only with a number.
    """
    exact = [(start, end, content or "", True) for start, end, content in _boxes(text)]
    exact += [(match.start(), match.end(), match[1].strip(), False) for match in _TAGGED.finditer(text)]
    exact += [(match.start(), match.end(), match[1].strip(), False) for match in _HASHES.finditer(text)]
    _, last_end, last, is_alone = max(exact, default=(0, 0, "", False), key=lambda it: it[1])
    for match in reversed(list(_PHRASE.finditer(text, last_end))[-_MAX_PHRASES:]):
        # The sentence that follows; a formula may span lines.
        ended = _SENTENCE.search(text, skip_match(_FORMULA, text, match.end()))
        end = ended.start() if ended else len(text)
        content = text[match.end() : end].strip()
        if content and "\\boxed" not in content and (not exact or re.search(r"\d", content)):
            return content, end, False
    if not exact:
        return None
    return last, last_end, is_alone


def _read_phrase(content: str) -> list[str]:
    """Return the answer at the start of a phrase, without the explanation after it, and the item that it states."""
    phrase = _FILLERS.sub("", _NEGATIVE.sub("-", content.strip(" *`\"'")))
    if _ALTERNATIVE.search(phrase, 1):
        return []
    head = phrase[:1] + _EXPLANATION.sub("", phrase[1:])
    items = _items(head)
    if items and items[0][0] == 0:
        return [head, *_read_first(head, items)]
    return [head, _ARTICLE.sub("", head), *(_read_last(head) or _read_last(phrase))]


def _read_loose(text: str) -> list[str]:
    """Return the last item of a text that marks no answer."""
    if not re.search(r"[A-Za-z]{2}", text):
        return []  # an expression: its last number is not its value
    start, sentence, before = 0, "", ""
    for end in [*(match.end() for match in _SENTENCE.finditer(text)), len(text)]:
        if _items(text[start:end]):
            sentence, before = text[start:end], text[:start]
        start = end
    phrase = _FILLERS.sub("", _NEGATIVE.sub("-", sentence.strip(" *`\"'.!\n")))
    return _read_last(_REASON.sub("", phrase), before) or _read_last(phrase, before)


def _read_first(head: str, items: list[tuple[int, int, str]]) -> list[str]:
    """Return the first item with its unit if only a circumstance follows it."""
    if len(items) < 2:
        return []
    link = head[items[0][1] : items[1][0]]
    aside = _ASIDE.search(link)
    return [items[0][2] + link[: aside.start() + 1]] if aside and not _JOINED.search(link) else []


def _read_last(text: str, before: str = "") -> list[str]:
    """Return the last item with the words after it, if it is stated, or alone and neither joined nor denied.

    `before`: the sentences before the text.
    """
    items = _items(text)
    if not items:
        return []
    start, end, content = items[-1]
    link = text[items[-2][1] if len(items) > 1 else 0 : start]
    stated = list(_STATED.finditer(link))
    near = link[stated[-1].end() :] if stated else link
    if stated and _DENIED_VERB.search(link[: stated[-1].end()]):
        return []
    if re.search(r"\b(?:or|and)\b", link if len(items) > 1 else near) or _DENIED.search(near):
        return []
    if _PARTIAL.search(near) or _asks_unknown(text[:start], content + text[end:], before):
        return []
    # `x = 3, y = 4`; not `in total, x = 4`
    if (other := _OTHER_NAME.search(link)) and re.search(r"[\d=]", text[: start - len(link) + other.start()]):
        return []
    if not stated and len(items) > 1 and (_JOINED.search(link) or _ASIDE.search(link)):
        return []
    if content[0] in "-−+" and re.search(r"(?:\b[A-Za-z]|[\d)}])\s*$", near):
        return []  # of `x -5`
    *left, value = _EQUALS.split(content)
    whole = text[:start] + "=".join(left) + "="
    if not left or re.search(r"[,;<>]|\\[lgn]eq?\b", content) or _asks_unknown(whole, value + text[end:], before):
        return [content + text[end:]]
    return [content + text[end:], value + text[end:]]


def _asks_unknown(text: str, value: str, before: str) -> bool:
    """Whether a text ends with an equation in one unknown, whose right side is not its value: `x + 2 = 5`.

    It is one of the whole where that is named (`the area is 4r^2 = 36`), has a unit (`3h = 180 minutes`), holds several
    unknowns or `x + 1/x`, or is calculated from an unknown that is given.
    """
    sides = _EQUALS.split(text)
    if len(sides) < 2 or sides[-1].strip(" $"):
        return False
    side = sides[-2]
    start = max((match.end() for match in _BEFORE_EQUATION.finditer(side)), default=0)
    left = _KNOWN_PART.sub(lambda match: "\\" * (match[0][0] == "\\"), side[start:])
    unknowns = _UNKNOWN.findall(left)
    if len(set(unknowns)) != 1 or not re.search(_CALCULATED.format(re.escape(unknowns[0])), left):
        return False
    name, earlier = re.escape(unknowns[0]), text[: sum(len(it) + 1 for it in sides[:-2]) + start].rstrip(" $")
    is_given = re.search(rf"(?<![\w*/^+-]){name}\s*(?:=|is|equals)\s*[-−$]?\d", f"{before} {earlier}")
    is_reciprocal = len(unknowns) > 1 and re.search(rf"/\s*{name}|\}}\{{\s*{name}", left)
    return not (is_given or is_reciprocal or _NAMED_WHOLE.search(earlier) or has_known_unit(value))


def _items(text: str) -> list[tuple[int, int, str]]:
    """Return start, end and content of each formula and number."""
    return [
        (match.start(), match.end(), str(match[match.lastgroup or 0]).strip())
        for match in _ITEM.finditer(text)
        if re.search(r"\S", match[0])
    ]
