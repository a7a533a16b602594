"""The item that a sentence states: `She has 42 apples left.`, `x = 5`, `the roots are 2 and 3`."""

from __future__ import annotations

import re

from webgym_cli.scoring.circumstances import strip_circumstance
from webgym_cli.scoring.numbers import answers_equal
from webgym_cli.scoring.units import CODES, FOREIGN_MONTHS, has_known_unit, measure_alike, split_unit, units_agree

# The end of a sentence; not the point of `3.5`, `p.m.` or `vs.`, nor the sign of `n! = 120`.
SENTENCE = re.compile(
    r"(?<![ap]\.m)(?<!\b[ap])(?<!\bRs|\bsq|\bcu)(?<!\bincl)[.!?](?=\s|$|\*\*)(?!\s*m\.|(?<=!)\s*[=<>+*/]"
    rf"|(?:(?<=\b\d\.)|(?<=\b[123]\d\.))\s{FOREIGN_MONTHS}(?=\s\d{{4}}|\W*(?:$|\n)))|\n",
    re.IGNORECASE,
)
_FILLERS = re.compile(
    r"^(?:(?:therefore|thus|hence|then|so|simply|just|indeed|exactly|clearly|obviously|actually|approximately|about|also"
    r"|now|given by|equal to|going to be|the number|the value|equals|[:,=])(?![A-Za-z])[\s,:]*)+",
    re.IGNORECASE,
)
# The scale of a rating: `4.5 out of 5`; not of one that fell from there.
_SCALE = r"(?<=\.\d)(?<!from \d\.\d)\sout of (?:5|10)\W*$"
# Words after an answer that begin an explanation.
_EXPLANATION = re.compile(
    r"(?<!times)\s(?:because|since|as|which|given|so|where|when|after|thus|hence|therefore|due|from|using|that|i\.e\."
    r"|rather than|instead of|rounded|(?:al)?though)\b.*|\s\[\d{1,2}\]$|\sin base (?:10|ten)\W*$"
    rf"|{_SCALE}|(?<!times)\s[(\[](?!(?:in )?base (?!10)\d)(?=[^()\[\]]{{0,200}}[A-Za-z]{{2}}).*"
    r"|;(?!\s*\d).*|,\s(?!and\b|or\b)(?:[^\W\d_]{2,}|[一-鿿]).*|\s(?:--?|—|–)\s[A-Za-z]{2,}.*",
    re.IGNORECASE | re.DOTALL,
)
_OTHER = r"([^\sA-Za-z]{0,3}\d[^\s)]*)"
# What an answer holds for; not `in` of `120 km in 2 hours, 60 in 1 hour`, which explains it.
_CASE = r"\b(?:when\b|if\b|(?:for|in|on) (?-i:(?=[A-Z]|20\d\d\b)))"
# Another answer beside the first: `8, maybe 9`, `8 (or 9)`, `8 (Ann) and 9 (Bob)`, `8 for Ann, 9 for Bob`, `; Bob: 9`.
_ALTERNATIVE = re.compile(
    r"(?:(?:[(,.;\n]\W*or|(?:[(,.;\n]\W*|\b)(?:maybe|perhaps|possibly|alternatively)|[\])]\s+(?:and|or))\b,?\s+"
    r"(?:even\s+|it(?:['’]s| is)\s+)?|(?:[(,.;\n]\W*(?:but |alternatively, )?it (?:could|might|may)(?: also)? be\s+))"
    rf"{_OTHER}|{_CASE}[^.]{{1,80}}(?:[,;]|\band|\bor)\s+(?:{_OTHER}\s+(?={_CASE})"
    rf"|(?:while |but )?(?-i:[A-Z])\w+(?: \w+)? {_OTHER})",
    re.IGNORECASE,
)
# What is rounded, before the result; not `rounded to 2 decimal places`, nor what denies that it is.
_ROUNDED = re.compile(
    r"^(?!.*(?:\b(?:not|never|cannot|no|without|rather|instead)\b|n['’]t\b))"
    r".*\bround(?:s|ed)?(?: (?:it|this|that|\W?[\d.,]+))?(?: (?:up|down|off))? to\s+"
    r"(?!\d+ (?:decimal|significant|digit|place|d\.?p))(?=\W?[\d.,]+(?:\s[A-Za-z]+){0,2}\W*$)"
    r"|^[^=]*\d\.\d+(?:\s[a-z]+)?,? so (?=\W?\d+(?:\s[A-Za-z]+){0,2}\W*$)",
    re.IGNORECASE | re.DOTALL,
)
_ARTICLE = re.compile(r"^(?:a|an|the)\s+(?=[A-Za-z]{2})", re.IGNORECASE)
# In a text without a mark, the rest of a sentence may state the answer.
_REASON = re.compile(
    r"(?<!times),?\s(?:because|since|as|(?:al)?though)\b.*|,\s+I(?: am|['’]m)? (?:think|believe|guess|sure|certain)\b.*"
    r"|,\s+(?:up|down) from\b.*|(?<!times)\s[(\[](?!(?:in )?base (?!10\b)\d+\))(?=[^()\[\]]{0,200}[A-Za-z]{2}).*"
    r"|,\s+(?:and |but )?(?:(?:not|rather than|instead of) (?=\W?\d)|\S{1,20} (?:more|less|fewer|[a-z]+er) than ).*"
    r"|,? or (?:about|approximately|roughly|equivalently)\b.*"
    r"|\s(?:over|in|during|for|within|after|(?:at|by) the end of) (?:the|these|those|all) (?:\w+ )?\w+"
    rf" (?:day|week|month|year|hour|minute)s\W*$|{_SCALE}",
    re.IGNORECASE | re.DOTALL,
)
# A step of a calculation, whose result is not told: `Then add 5 for the tip`.
_STEP = re.compile(
    r"\W*(?:then|next|first|now)\W+(?:we |you |I )?(?:add|subtract|multiply|divide)\b"
    r"(?!.*(?:=|\b(?:is|are|so|gets?|giv|mak|leav|total|equal|result)))",
    re.IGNORECASE | re.DOTALL,
)
# A list, point or formula as the end of a sentence: `the roots are 2 and 3`.
_LISTED = re.compile(
    r"(?:^(?=.*\b(?:and|or)\b)|\b(?:is|are)(?::|\s)\s*)"
    r"((?:[^A-Za-z\\]|\\(?:[A-Za-z]+|[^A-Za-z])|\b(?:and|or|[A-Za-z])\b)++)$"
)
# What says that there is no answer.
_REFUSED = re.compile(
    r"\b(?:need more|not enough|insufficient) information\b|n['’]t enough information\b"
    r"|\b(?:can(?:no|['’])t|unable to|impossible to) (?:be )?(?:answer(?:ed)?|solved?|determined?)\b"
    r"(?! (?:(?:this |it )?(?:directly|exactly)|by|using|with(?! the given)|[a-z])\b)(?![^.!?\n]*\byet\b)",
    re.IGNORECASE,
)
# A formula or a number.
_ITEM = re.compile(
    r"\$\$(?P<a>.{1,300}?)\$\$|\\\[(?P<b>.{1,300}?)\\\]|\\\((?P<c>.{1,300}?)\\\)"
    r"|(?<![\\\w])\$(?!\s)(?P<d>[^$\n]{1,300}?)(?<![\s\\])\$(?!\d)|(?P<e>-?\d{0,20}\\[dt]?(?:frac\{[^{}]*\}|sqrt)\{[^{}]*\})"
    r"|(?P<f>(?<![A-Za-z])(?:(?<![\w.)])[-−+](?=[$€£¥₹\d.]))?(?:(?:US)?[$€£¥₹]|" + CODES + r")?\s?"
    r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)?(?:\.\d+|(?<=\d))(?:[eE][+-]?\d+)?"
    r"(?:\s+\d+/\d+|\s*/\s*\d[\d,]*(?:\.\d+)?|:\d+)?)",
    re.DOTALL,
)
_NEGATIVE = re.compile(r"\b(?:minus|negative)\s+(?=[$€£¥₹]?\d)", re.IGNORECASE)
# What states the item after it.
_STATED = re.compile(
    r"\b(?:(?:is|are|was|were)(?! (?:used|needed|enough) to\b)|be|equals?"
    r"|(?<!needed to )(?<!used to )(?:mak|giv|leav)(?:es?|ing)|gets?|total(?:s|ing)?|so|but)\b"
    r"|\b(?:it|that|there|answer)['’]s\b|(?<![!<>])=",
    re.IGNORECASE,
)
# What joins two items, so that neither is the answer alone.
_JOINED = re.compile(
    r"\b(?:or|and|to|through|by|base(?=\s*$)|out of|times|plus|minus|divided|oder|und|bis|ou|et|или)\b"
    r"|^\s*(?:[oye]\s+|[或和与到至])|^\s*(?:of(?:\s+\w+)?\s*)?$"
    r"|[-–+*/×^_<>]\s*$|\b[b-h]\)\s*$|^\s*[-–,;:+*/×^<>]",
    re.IGNORECASE,
)
# What states the item before it: `55 in all`.
_SUMMED = re.compile(r"(?:\s+[A-Za-z]+)?\s+(?:in (?:all|total)|altogether)\b", re.IGNORECASE)
# `3x = 12 and x =`: what follows solves the equation.
_SOLVED = re.compile(r"(?:(?<=\d)([A-Za-z])\b|\b([A-Za-z])\s*[-+*/^]).{0,200}\s+and\s+(?:\1|\2)\s*=\s*$")
# What begins a circumstance after an answer: `in` of `72 clips in 2 months`.
_ASIDE = re.compile(
    r"(?:^|[A-Za-z])\s+(?:in|per|for|at|with|during|on|every|each|within|over|after|before|from|if)\b", re.IGNORECASE
)
# What begins a circumstance of its own before a quantity: `In 2 weeks 14 days pass`.
_PERIOD = re.compile(r"(?:^|[,;:]|\bthat)\W*(?:in|after|before|within|for|of|from)(?: (?:the|every|each))?\s*$", re.I)
_DENIED = re.compile(
    r"\b(?:not|never|no|none|neither|nor|than|least|most|between|half|quarter|past|twice|double|triple|root|sqrt"
    r"|up to|far from|(?:maybe|perhaps|possibly)(?=\s+$)|doubt|unlikely|hardly|impossible|whether"
    r"|(?:false|untrue|wrong) that)\b|n't\b|√"
    r"|不(?!过)|没|非(?!常)|超过|至[少多]|最[少多]|[大小多少低高]于"
    r"|\b(?:nicht|keine?|als|mindestens|höchstens|pas|plus de|moins|más|menos|не)\b"
    r"|\b(?:january|february|march|april|may|june|july|august|(?:sept|nov|dec)ember|october)\s+$"
    r"|\b(?:if|(?:might|may) have|over|under|above|below|before|exceeds?|problem|question|step|chapter|section|page"
    r"|example|exercise|without(?: the)?|(?:except|excluding)(?: for)?(?: the)?|(?<!\bthe )(?:figure|table|equation)"
    r"|(?:division|divided?|divisible|both sides) by"
    r"|(?:multiple|factor|divisor|power) of)\s+$"
    r"|\b(?:log|ln|exp|sin|cos|tan|mod|gcd|lcm)(?:\s+of|_\{?\d+\}?)?\s*\(?$",
    re.IGNORECASE,
)
# The end of what supposes, denies or asks for an answer: `If the answer is`, `the wrong answer is`.
_SUPPOSED = (
    r"(?:(?:^|[.!?]\s+|\n)(?:if|suppose)|\bI do(?: not|n['’]t) (?:think|believe)"
    r"|\b(?:I doubt|you (?:may|might) (?:say|think)|(?:false|wrong|untrue) that))"
    r"(?: that)? the answer\s+\S+[\s:*]*$|\b(?:incorrect|wrong|false) answer\s+\S+[\s:*]*$"
    r"|\b(?:can|could|may|might) the answer be\s*$"
)
SUPPOSED = re.compile(_SUPPOSED, re.IGNORECASE)
# The end of what denies its verb: `it can't be`, `anything but`; `it might be`, which `in May is` is not.
_DENIED_VERB = re.compile(
    r"(?:n['’]t|\b(?:not|never|cannot|any(?:thing|where)|everything|nothing|all)|\bdoubt(?:\s+\w+){1,3})\s+\S+$"
    r"|\b(?:could|might|may|unlikely to)\s+be$|\b(?:(?:false|wrong|untrue|unlikely|only) that|whether)\s+\S+\s+\S+$"
    rf"|\bor equal$|{_SUPPOSED}",
    re.IGNORECASE,
)
# The end of what stands before an item that is a part of an expression, or the value of another variable.
_PARTIAL = re.compile(r"(?:[!<>]=|[-+*/^_<>≤≥≠≈±√×÷\\]|\\[A-Za-z]+|^['′])\s*$|^\s*\($|(?<=[A-Za-z])\$?$")
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


def read_phrase(content: str, rest: str) -> list[str]:
    """Return the answer at the start of a phrase, without the explanation after it, and the item that it states.

    Empty if the phrase, or the `rest` of the response after it, gives another answer too.
    """
    phrase = _strip_fillers(content.strip(" *`\"'"))
    other = _ALTERNATIVE.search(phrase, 1) or _ALTERNATIVE.match(rest)
    if other and other.string is phrase:
        phrase = phrase[: other.start()]
    head = phrase[:1] + _EXPLANATION.sub("", phrase[1:])
    if other:
        whole = re.split(r"[),;\n]", other.string[other.start(other.lastindex or 0) :])[0]
        # `90 minutes (or 1.5 hours)`; `1/2 (or 0.5)`
        is_converted = other[0][0] == "(" and not units_agree(split_unit(head)[1], split_unit(whole)[1])
        if not (is_converted or answers_equal(head, other[other.lastindex or 0]) or answers_equal(head, whole)):
            return []
    items = _items(head)
    if items and items[0][0] == 0:
        return [head, *_read_first(head, items)]
    return [head, _ARTICLE.sub("", head), *(_read_last(strip_circumstance(head)) or _read_last(phrase))]


def read_loose(text: str) -> list[str]:
    """Return the last item of a text that marks no answer."""
    if not re.search(r"[^\W\d_]{2}|[一-鿿]", text):
        return []  # an expression: its last number is not its value
    start, sentence, before = 0, "", ""
    for end in [*(match.end() for match in SENTENCE.finditer(text)), len(text)]:
        if _items(text[start:end]):
            sentence, before = text[start:end], text[:start]
        start = end
    if _REFUSED.search(text, len(before)) or _STEP.match(sentence):
        return []
    phrase = _strip_fillers(sentence.strip(" *`\"'.!\n"))
    listed = [
        match[1] for match in _LISTED.finditer(phrase) if not _DENIED_VERB.search(phrase[: match.start(1)].strip())
    ]
    short = _REASON.sub("", strip_circumstance(phrase))
    return list(dict.fromkeys((*listed, *(_read_last(short, before) or _read_last(phrase, before)))))


def _strip_fillers(text: str) -> str:
    """Return a text without filling words before its answer, and without what is rounded to it."""
    return _FILLERS.sub("", _ROUNDED.sub("", _NEGATIVE.sub("-", text)))


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
    is_sum = len(items) > 1 and _SUMMED.match(text, end)
    if not is_sum and _is_unclear(text, items, before):
        return []
    *left, value = _EQUALS.split(content)
    whole = text[:start] + "=".join(left) + "="
    if not left or re.search(r"[,;<>]|\\[lgn]eq?\b", content) or _asks_unknown(whole, value + text[end:], before):
        return [content + text[end:]]
    return [content + text[end:], value + text[end:]]


def _is_unclear(text: str, items: list[tuple[int, int, str]], before: str) -> bool:
    """Whether the last item may not be what a text states: it is denied, joined with another or a part of one."""
    start, end, content = items[-1]
    first = items[-2][1] if len(items) > 1 else 0
    stated = max((match.end() for match in _STATED.finditer(text, first, start)), default=0)
    link, near = text[first:start], text[stated or first : start]
    other = _OTHER_NAME.search(link)
    is_list = items[0][0] == 0 and link.rstrip().endswith(",")
    return bool(
        (stated and _DENIED_VERB.search(text[first:stated]))
        or _DENIED.search(near)
        or (first and re.search(r"(?<!given) by\s+$|\b(?:if|unless)\b[^,]*$", link))
        or (first and _is_compound(link.strip(), f"{content}{text[end:]}") and not _PERIOD.search(text[: items[-2][0]]))
        or (re.search(r"\b(?:or|and)\b", link if first else near) and not _SOLVED.search(text[:start]))
        or _PARTIAL.search(near)
        or _asks_unknown(text[:start], content + text[end:], before)
        # `x = 3, y = 4`; not `in total, x = 4`
        or (other and re.search(r"[\d=]", text[: first + other.start()]))
        or re.match(r" (?:to|from|on) both sides\b", text[end:])
        or (not stated and first and (is_list or _JOINED.search(link) or _ASIDE.search(link)))
        # of `x -5`
        or (content[0] in "-−+" and re.search(r"(?:\b[A-Za-z]|[\d)}])\s*$", near))
    )


def _is_compound(unit: str, item: str) -> bool:
    """Whether an item is only a part of a quantity: `6 in` of `5 ft 6 in`, `30` of `45° 30'`."""
    smaller = re.match(r"\d+\s?([A-Za-z]+)", item)
    return unit == "°" or bool(smaller and measure_alike(unit.rstrip(".,"), smaller[1]))


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
