"""The part of a response that states its answer: in a box, in tags, after `####` or `the answer is`, or a number."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain

from webgym_cli.scoring.number_words import join_repeated
from webgym_cli.scoring.sentences import SENTENCE, SUPPOSED, read_loose, read_phrase
from webgym_cli.util.text import skip_match

# Characters, from the end, in which the answer is looked for; phrases; characters between boxes and before corrections.
_MAX_CHARACTERS, _MAX_PHRASES, _BETWEEN = 20_000, 20, 40

# The content of boxes is found in one pass: a response of thousands of open ones would else take quadratic time.
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{|\\[{}]|[{}]")
# Markdown within a sentence: `She has **64 apples**`; not the operators of `2**3` and `2 * 3 * 4`.
_EMPHASIS = re.compile(r"(?<![\w*_)\]}\\])(\*{1,3}|_{1,2}|`)(?=[^\s*_`])([^*_`\n]{1,300})(?<=\S)\1(?![\w*])")
_BETWEEN_BOXES = re.compile(
    r"(?:[\s,;$.]|\\q?quad|\\[()])*(?:(?:\\text\{)?\s*(?:and|or)\s*\}?)?(?:[\s$]|\\q?quad|\\[()])*", re.IGNORECASE
)
# LaTeX boxes the next token, too.
_BARE_BOX = re.compile(r"(\\boxed)\s*(-?\d+(?:\.\d+)?)(?![\w{])")
# Formatting, tokens of chat templates, what is struck out, and the number of a source: `42[1]`.
_HTML = re.compile(
    r"</?(?:b|i|u|s|em|strong)>|<\|\w{1,30}\|>|~~[^~\n]{1,300}~~|(?<=[\d%])\[\d{1,2}\](?=[\s.,;]|$)", re.IGNORECASE
)
# Where reasoning starts, and ends; a sentence may mention the tags: `I used <think> tags`.
_THOUGHT = re.compile(r"^[ \t]*<think(?:ing)?>", re.MULTILINE)
_THOUGHT_END = re.compile(r"</think(?:ing)?>")
_BARE_END = re.compile(r"(?<![^.!?\n][ \"'`(])</think(?:ing)?>|</think(?:ing)?>(?! +[a-z]|[\"'`).,;])")
_PUNCTUATION = str.maketrans(
    {"。": ". ", "，": ", ", "；": "; ", "：": ": ", "！": "! ", "？": "? ", "、": ", ", "－": "-", "﹣": "-"}
)
_TAGGED = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.DOTALL | re.IGNORECASE)
_HASHES = re.compile(r"####\s*(.+)")
# In an object that ends the response.
_FIELD = re.compile(
    r"\"(?:final[_ ])?answer\"\s*:\s*\"?((?<=\")(?:[^\"\\\n]|\\.)*(?=\")|[^\s,}\[{\"]+)\"?"
    r"(?=\s*(?:,[^{}]*+)?\}[\s}\]`]*\Z)",
    re.IGNORECASE,
)
_PHRASE = re.compile(
    r"答案(?:[是为]|应[该当]?[是为])?:?\s*(?=[^\s是为应不])"
    r"|\b(?<!check our )(?<!check the )(?:answer|correct (?:option|choice))\b(?:\s*\*\*)?"
    r"(?:,?\s*(?:therefore|thus|then|hence"
    r"|should|would|will|must|to (?:the|this|your) (?:question|problem)|in \w+|choice)\b){0,3},?\s*"
    r"(?:\b(?:is|are|be|equals)\b|[:=])[:\s*]*"
    # What two published prompts end with.
    r"|\b(?:therefore|thus|hence|so),? the answer \((?:arabic numerals|yes or no)\) is(?!:?\s*_)[:\s*]*",
    re.IGNORECASE,
)
# A letter that a sentence names as the choice: `So it is (B).`, `Option B is correct.`
_LETTER = r"(\((?-i:[A-J])\)|(?-i:[A-J])(?![\w'’]))"
_CHOSEN = re.compile(
    r"(?:^|[.!?]\s+|\b(?:(?<!if )so|thus|therefore|hence|I (?:think|believe|guess)),?\s+(?:that )?)"
    rf"(?:(?:it(?:['’]s| is| must be)|i (?:choose|select|pick)|choose|go with) (?:option )?{_LETTER}(?=[.:]|\s*$)"
    r"|(?:the (?:right|best) (?:option|choice) is|i(?: would|['’]d) (?:choose|select|pick|go with))"
    rf" (?:option )?{_LETTER}(?=\W*\Z)"
    rf"|(?:(?:the )?(?:option|choice) )?{_LETTER} is (?:therefore |thus )?(?:the )?(?:correct|right|best)"
    rf"(?: answer| choice| option)?(?=[.!]|\s*$| because))|故选:?\s*{_LETTER}"
    rf"|(?:^|[.!?]\s+)(?:so|thus|therefore|hence),? {_LETTER}(?=[\s.!*]*\Z)",
    re.IGNORECASE | re.MULTILINE,
)
# What takes a statement back at once; `It is incorrect because ...` may explain another, as `It can't be reduced` does.
_WITHDRAWN = re.compile(
    r"[\W_]*(?:(?:(?:hmm+|wait|oh|no|oops|sorry|actually|but)\W+)+|(?=that(?:['’]s wrong| can| does)))"
    r"(?:that|this|it)(?:(?:['’]s| is| was) (?:wrong|incorrect|not right)(?!-| (?:of|to|because|since|as)\b)"
    r"|(?: does(?:n['’]t| not) (?:look|seem) right| can(?:['’]t|not) be(?: right| correct| true| it)?"
    r"|(?:['’]s| is| was) (?:impossible|not (?:correct|possible)))(?=\s*(?:[.,;!?\n]|$)))"
    r"|[\W_]*(?:(?:hmm+|oh|wait|oops|actually)\W+)+no(?=\W*(?:[.,;!]|$))",
    re.IGNORECASE,
)
_RETRACTED = re.compile(
    r"\b(?:wait|correction|mistake|sorry|scratch that|(?<!n['’]t )actually|oops|on second thought|make that)\b"
    r"|\b(?:I mean|or rather|rather(?=,))\b(?=\W+(?:(?:it|that)(?:['’]s| is) )?(?:[^\sA-Za-z]{0,3}\d|\w+\s?=|\$?\\))"
    r"|\b(?:no,|oh,|edit:|not quite[:,]|just kidding)|\b(?:re-?check|redo|try again)\b[^\n]{0,300}?"
    r"\b(?:it|the (?:answer|result))(?:['’]s| is| should be)(?=\s+\W?\d)",
    re.IGNORECASE,
)
# Another answer in words after it, which is short: `Rome.`, `it is New York.`, not `this follows from it.`
_CORRECTION = re.compile(r"\W*(?:(?:it|that)(?:['’]s| is| should be) )?(?!the |an? )\S+?(?: \S+?)?\W*(?:[.,;!]|\Z)")
# A number after this is no answer: `. However, this is wrong.`
_DISOWNED = re.compile(r"\W*(?:(?:however, )?this )?is (?:wrong|incorrect)\s*[.!]", re.IGNORECASE)
# Before a box: `It is not \\boxed{42}`.
_NOT = re.compile(r"\b(?:is not|isn['’]t|can(?:not|['’]t) be)[\s$*]*\Z", re.IGNORECASE)
_FORMULA = re.compile(r"\s*(?:\$\$.{1,300}?\$\$|\\\[.{1,300}?\\\])", re.DOTALL)


def find_answers(response: str) -> list[str]:
    """Return what a response may give as its one answer: the last statement, whole and without explanations.

    Empty if no statement is clear, as in `42 or 43`.
    """
    response = _EMPHASIS.sub(r"\2", _BARE_BOX.sub(r"\1{\2}", strip_thoughts(response)[-_MAX_CHARACTERS:]))
    response = join_repeated(_HTML.sub("", response).translate(_PUNCTUATION))
    marked = _last_statement(response)
    if marked is None:
        return [response, *_find_choice(response), *read_loose(response)]
    content, end, is_exact = marked
    rest = response[end:]
    withdrawn, number = _WITHDRAWN.match(rest), re.search(r"\d", content)
    if number is not None and _DISOWNED.match(rest):
        return []
    within = None if is_exact or number is None else _RETRACTED.search(content, number.end())
    for retracted in filter(None, (withdrawn or _RETRACTED.search(rest), within)):
        if (corrected := read_loose(f"so {retracted.string[retracted.end() :]}")) or retracted is withdrawn:
            return corrected
    if number is None and any(_CORRECTION.match(rest, it.end()) for it in _RETRACTED.finditer(rest, 0, _BETWEEN)):
        return []  # a correction in words is not read
    if is_exact:
        return [content]
    phrases = read_phrase(content, rest)
    return phrases and [content, *phrases]


def _find_choice(response: str) -> list[str]:
    """Return the letter that a response names as its choice; none of several, or if what follows takes it back."""
    matches = list(_CHOSEN.finditer(response))
    letters = {match[match.lastindex or 0] for match in matches}
    if len(letters) != 1 or _WITHDRAWN.match(response, matches[-1].end()):
        return []
    return [] if _RETRACTED.search(response, matches[-1].end()) else [*letters]


def strip_thoughts(response: str) -> str:
    """Return a response without the reasoning between thinking tags, which may be cut off at either end."""
    end = _THOUGHT_END if _THOUGHT.search(response) else _BARE_END
    return _THOUGHT.split(end.split(response)[-1])[0].strip()


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
    exact = [
        (start, end, "" if _NOT.search(text, max(0, start - _BETWEEN), start) else content or "", True)
        for start, end, content in _boxes(text)
    ]
    matches = chain.from_iterable(pattern.finditer(text) for pattern in (_TAGGED, _HASHES, _FIELD))
    exact += [(match.start(), match.end(), match[1].strip(), False) for match in matches]
    supposed = False
    _, last_end, last, is_alone = max(exact, default=(0, 0, "", False), key=lambda it: it[1])
    for match in reversed(list(_PHRASE.finditer(text, last_end))[-_MAX_PHRASES:]):
        # The sentence that follows; a formula may span lines.
        ended = SENTENCE.search(text, skip_match(_FORMULA, text, match.end()))
        end = ended.start() if ended else len(text)
        content = text[match.end() : end].strip()
        if SUPPOSED.search(text, max(0, match.start() - _BETWEEN), match.end()) and re.match(r"\W*\d", content):
            supposed = True
        elif content and "\\boxed" not in content and (not exact or re.search(r"\d", content)):
            return content, end, False
    if not exact:
        return ("", len(text), True) if supposed else None
    return last, last_end, is_alone
