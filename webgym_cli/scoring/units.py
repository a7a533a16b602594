"""Units of answers: which part of `12 cm`, `$5`, `50%` or `5 million` is no number, and whether two units agree."""

from __future__ import annotations

import re

from webgym_cli.scoring.number_words import ONES, TENS

# Names of each unit; the first stands for all. A plural in s is known, too.
_NAMES = """
nm nanometer nanometre|ohm|ampere amp|kb kilobyte|mb megabyte|gb gigabyte|tb terabyte
cm centimeter centimetre|m meter metre|km kilometer kilometre|mm millimeter millimetre|in inch inches|ft foot feet
yd yard|mi mile|kg kilogram|g gram|mg milligram|lb pound|oz ounce|l liter litre|ml milliliter millilitre|gal gallon
h hr hour|min minute|s sec second|day|week|month|year yr|usd dollar $|cent ¢
eur euro €|gbp £|jpy yen ¥|inr rupee rs ₹|cny yuan|chf|cad|aud|degree deg ° ^circ
celsius c|fahrenheit f|% percent pct percentage|n newton|j joule|w watt|v volt|hz hertz|rad radian|mi/h mph
km/h kmh kph|am|pm
"""
_LINES = [line.split() for line in re.split(r"[|\n]", _NAMES) if line]
_CANONICAL = {name: names[0] for names in _LINES for name in names}
_KNOWN = frozenset(_CANONICAL.values())
# Units of one kind, which a quantity may have together: `5 ft 6 in`.
_KINDS = [{*line.split()} for line in ("h min s day week month year", "ft in yd m cm", "lb oz kg g", "usd cent")]
# Words that multiply the number before them.
_FACTORS = {
    **{"ten": 10, "dozen": 12, "hundred": 100, "lakh": 10**5, "crore": 10**7},
    **{"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12},
}

# Months that are spelled in German or French alone, after the day: `3. Oktober`, `3 août`.
FOREIGN_MONTHS = (
    r"(?:januar|februar|märz|oktober|dezember|janvier|février|juillet|août|(?:sept|nov|déc)embre|octobre)\b"
)
# Words after a number that are no unit: they change it or join it with another.
_OPERATORS = re.compile(
    r"\b(?:or|and|to(?!\s+(?!the\b)[a-z]{2,})|than|plus|minus|by|squared|cubed|half|halves"
    r"|times(?!\W*$| (?:per|this|each|every|a) (?:day|week|month|year|hour|minute)\b)"
    r"|(?:third|fourth|fifth|sixth|eighth|tenth|hundredth|thousandth)s?"
    r"|factorial|mod|modulo|remainder|divided|between|not|except|if|pi|sqrt|root"
    r"|over(?! (?:the|a|this) (?:day|week|month|year|summer))|(?:sin|cos|tan|log|ln)(?! [a-z]{3})"
    r"|in an? (?:million|billion)"
    r"|infinity|choose|base|is|are|was|equals?|then|but|no"
    r"|(?:wrong|incorrect|false)(?! [a-z]{3,}s\b)|ago|later|earlier|before|after|bce?"
    r"|jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sep(?:t|tember)?|oct(?:ober)?"
    r"|(?:can|could|should|may|might|must|will|would) (?:not )?be|fails?|\w+n't|cannot"
    rf"|nov(?:ember)?|dec(?:ember)?|{FOREIGN_MONTHS}|(?:{'|'.join(ONES + TENS)})(?!-))\b"
)
# Words that say nothing about the unit, and endings of ordinal numbers.
_EMPTY = frozenset({"of", "the", "a", "in", "total", "altogether", "remaining", "more", "each", "all", "off"})
# What remains, at the end of a unit (`5 apples left in the bowl`); not `5 left turns`. What they are: `9 cars are red`,
# `9 is the answer`.
_LEFT = re.compile(
    r"\bleft(?:[ -]?over)?(?: (?:in|on|for|at|to|from|with|after)\b.*)?$"
    r"|\bis (?:correct|right|the (?:final |correct |right )?answer)$"
    r"|\b(?:are|were) (?!not\b|no\b|wrong|incorrect|false|too\b|more\b|less\b|fewer\b).+$"
)
# A name after a number, as in an address (`10 Downing Street`), and mega, which is no metre or milli.
_PROPER = re.compile(r"[A-Z][a-z]+\.? [A-Z][a-z]|^M[gm]?$")
# Units and counters of other scripts, with a noun after a counter. Other words may change the number: `5万`, `5以上`.
_FIRST_FOREIGN = "\u0400"
_FOREIGN = (
    r"(?:(?:平方|立方)?(?:千米|厘米|分米|毫米|米|公里)(?:/(?:小?时|秒|分钟?))?|千克|公斤|毫?克|吨|毫?升|小时|時間|分[钟間]|秒|[度元円岁歳]"
    r"|[个個只人名位天年本张張枚匹头条件辆台朵颗棵支把瓶杯盒袋箱页道次分]"
    r"(?:[ぁ-鿿](?<![以未不没非错誤误之方万亿億千百十半倍多余几或和与到至加减乘除前后後左右上下内外超過过数第零])){0,6}"
    r"|개|명|원|살|마리|시간|분|초|일|(?=です|입니다)"
    r"|(?:кг|км|см|мм|м|г|л|ч|руб|час|минут|секунд|дн|день|лет|год|градус|рубл|метр|литр|человек|яблок|книг|монет)"
    r"(?:[аеиоуыюяьй][а-яё]{0,2})?)(?:です|입니다)?"
)
_ORDINALS = frozenset({"st", "nd", "rd", "th"})
_WORDS = re.compile(r"(?:\s|~|\\[,;: ])*\\(?:text|mathrm|mbox|textrm|textit|textbf|textnormal|mathbf)\s*\{([^{}\\]*)\}")
# A currency before its number, and bits, which are no bytes: Mb, Mbps.
CODES = r"\b(?:USD|EUR|GBP|JPY|INR|CNY|CHF|CAD|AUD|Rs)(?=\.?\s?\d)\.?"
_BITS = re.compile(r"\b([kKMGT]i?)b(?=ps\b|/s\b|\b)")
_DEGREE = re.compile(r"\s*\^\s*\{?\s*\\(?:circ|degree)\s*\}?|\\degree")
_TAIL = re.compile(
    r"(?:(?<=[\d.)}!])(\s*)|((?<=\S)\s*~\s*|(?<=\\pi)\s+(?=[A-Za-z]{2})))"
    rf"((?:[A-Za-zÀ-ɏ]|[%°¢€£¥])(?:[A-Za-zÀ-ɏ]|[%°¢/ .'~-])*(?:\s*\^\{{?[23]\}}?)?|{_FOREIGN}|[%°$])$"
)
_SIGN = re.compile(rf"(?:US)?\\?(\$)|([€£¥₹])|({CODES})")
# After a number with a currency: `$45k`, and `$3.99/lb`. Without one `5k` may be a product; `3.5M` is none.
_SHORT = re.compile(r"(?<=\d)\s?(k|mn?|bn?)$", re.IGNORECASE)
_SCALES = {"k": "thousand", "m": "million", "mn": "million", "b": "billion", "bn": "billion"}
_PRICE = re.compile(r"(?<=\d)\s?/\s?(?=[A-Za-z]{2})")

# A unit's words, and the factor of a multiplying word among them.
Unit = tuple[frozenset[str], int]
NO_UNIT: Unit = (frozenset(), 1)


def split_unit(text: str) -> tuple[str, Unit]:
    """Return a text without its unit, and the unit. A tail that may be no unit (`5x`, `5 or 6`) is left."""
    signs = {_CANONICAL[(match[1] or match[2] or match[3]).lower().rstrip(".")] for match in _SIGN.finditer(text)}
    if len(signs) == 1 or (not signs and re.search(r"\d\.\d+[MB]$", text)):
        amount = _SHORT.sub(lambda match: f" {_SCALES[match[1].lower()]}", _SIGN.sub("", text).strip())
        number, (words, factor) = split_unit(_PRICE.sub(" per ", amount))
        return number, (words | signs, factor)
    plain = _DEGREE.sub("°", _WORDS.sub(r"~\1", text).replace("\\%", "%")).rstrip(" .")
    tail = _TAIL.search(plain)
    unit = _read_unit(tail[3], spaced=bool(tail[1] or tail[2])) if tail else None
    return (plain[: tail.start()].strip(), unit) if tail and unit else (text, NO_UNIT)


def units_agree(ours: Unit, theirs: Unit) -> bool:
    """Whether two units may be the same: one may be missing or less precise (`degrees` and `degrees Celsius`)."""
    return ours[0] <= theirs[0] or theirs[0] <= ours[0]


def has_known_unit(text: str) -> bool:
    """Whether a number has a unit, or one plural after it: `180 minutes`, `40 pencils`."""
    words = split_unit(text)[1][0]
    return any(map(_is_known, words)) or (len(words) == 1 and re.search(r"\d [A-Za-z]{3,}s\W*$", text) is not None)


def measure_alike(unit: str, other: str) -> bool:
    """Whether two words are different units of one kind: `ft` and `inches`."""
    names = {_canonical(unit.lower()), _canonical(other.lower())}
    return len(names) > 1 and any(names <= kind for kind in _KINDS)


def _read_unit(text: str, *, spaced: bool) -> Unit | None:
    """Return the unit that a text names; None if it may be something else, such as a variable."""
    if _PROPER.search(text):
        return None
    text = "ampere" if text == "A" and spaced else _BITS.sub(r"\1bit", text)  # `a` is an article
    text = re.sub(r"\s*\^\{?([23])\}?", r"^\1", text.lower().strip(" ."))
    text = _LEFT.sub("", text).strip().replace("个", "")
    if _OPERATORS.search(text):
        return None
    text = re.sub(r"\s*(?:/|\bper\s+(?!cent))\s*", "/", text.replace("per cent", "percent"))
    text = re.sub(r"\b(?:square|sq\.?)\s+(\w+)", r"\1^2", re.sub(r"\b(?:cubic|cu\.?)\s+(\w+)", r"\1^3", text))
    words = re.sub(r"([%°])[\s~]*", r"\1 ", text).split()
    if not spaced and words and words[0] in _ORDINALS:
        spaced, words = True, words[1:]
    factor = 1
    while words and (next_factor := _FACTORS.get(_singular(words[0]))):
        factor, words = factor * next_factor, words[1:]
    # A single letter beside a number may be a variable: 5m.
    is_bare = not spaced and words and factor == 1 and words[0] < _FIRST_FOREIGN
    if is_bare and (re.fullmatch("[a-z]", words[0]) or not _is_known(words[0])):
        return None
    # So may an unknown letter, or two at the beginning: 5 x, 5 ab.
    for place, word in enumerate(words):
        if len(word) < (2 if place else 3) and word < _FIRST_FOREIGN and not _is_known(word) and word not in _EMPTY:
            return None
    return frozenset(_canonical(word) for word in words if word not in _EMPTY), factor


def _is_known(word: str) -> bool:
    return _canonical(word).partition("^")[0] in _KNOWN


def _canonical(word: str) -> str:
    """Return the first name of a unit: `cm^2` of `centimeters^2`, `mi/h` of `miles/hour`."""
    name, power, exponent = word.replace(".", "").partition("^")
    name = "/".join(
        _CANONICAL.get(part) or _CANONICAL.get(_singular(part)) or _singular(part) for part in name.split("/")
    )
    return f"{name}{power}{exponent}"


def _singular(word: str) -> str:
    return word.removesuffix("s") if len(word) > 2 else word
