"""Readers of the answers of published judge protocols. All of them fail closed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from webgym_cli.agent.client.chat import JudgeReply, UnreadableError
from webgym_cli.util.text import remove_between

# Characters at the end of an answer in which its verdict stands.
_END = 300
# Emphasis is dropped, and punctuation of other scripts is read as ASCII's: models decorate what they were asked for.
_PLAIN = str.maketrans(dict.fromkeys("*`#")) | str.maketrans("“”„«»‘’：＝。！？—–_", '"""""\'\':=.!?-- ')
# Fences, a chat template's tokens, and marks that agree with the verdict beside them; others may contradict it.
_MARKS = re.compile(
    r"^```\w*\s*(?:\n|\Z)|<\|\w+\|>|\A\s*<(?:answer|verdict)>|</(?:answer|verdict)>\s*\Z|\\boxed\{|\}\s*\Z|[✅✔✓🎉\ufe0f]"
    r"|[❌✗✘]\s*(?=\**NOT\b|\**fail)|(NOT SUCCESS|failure)\W{1,4}[❌✗✘]",
    re.MULTILINE,
)
_THEN = r"\b(?:therefore|thus|hence|so),? (?:the|my) (?:final |overall )?"
_JUDGES = r"\b(?:verdict|evaluation|conclusion|judge?ment|decision|assessment)(?: result)?"
# What SUCCESS may follow: the judge's word for it, what pages say too only where no page is meant, a line that ended.
# NOT SUCCESS may follow anything: read wrongly, it opens nothing.
_VERDICT = re.compile(
    rf"(?:(?:(?:{_JUDGES}|{_THEN}(?:result|outcome|status))(?: ?[:=-]| (?:is|was)(?: an?)?:?)"
    r"|\bI (?:would |therefore |thus )?(?:conclude|judge|rate|call)(?: (?:this|it))?(?: as)?(?: an?)?:?"
    # At a sentence's start alone: after other words it may be a condition or what a page says.
    r"|(?:\A|(?<=[.!?][ \n])|(?<=[.!?]\n\n))(?:(?:thus|therefore|hence|so),? |based on (?:the|all) screenshots, )?"
    r"(?:I (?:therefore |thus )?conclude that (?:the task|this|it) (?:is|was)"
    r"|(?:the task|this|it) is (?:judged|deemed|considered|rated)(?: to be| as)?)(?: an?)?:?"
    rf"|^(?:(?:my|final|overall) )?{_JUDGES}\n"
    r"|^(?:最[终終])?(?:裁[定决決]|[结結][论論果]|判[定断斷]):|^(?:fazit|urteil|ergebnis|veredicto|conclusión|résultat|вердикт):)\s*"
    r"|(?P<upper>(?<=\S)[.!?]|^(?:(?:my|final|overall) )?(?:result|outcome|answer) ?[:=-]) ?"
    r"|(?<![^\W\d]\n)(?<![❌✗✘]\n)(?P<line>^)|(?=[\"'(\[]?NOT\b))"
    r"(?P<open>[\"'(\[])?(?P<word>(?P<no>NOT[\s-]+)?SUCCESS)"
    r"(?(no)(?-i:FUL)?(?: (?:as|because|since)\b(?:(?!SUCCESS)[^.!?\n])*)?)[.!]?(?(open)[\"')\]])[.!]?\Z",
    re.IGNORECASE | re.MULTILINE,
)
_SENTENCE = re.compile(r"[.!?]|(?<!:)\n\n")
# Words before the verdict that unsay it: any verdict, one that is another's (in its clause), and SUCCESS alone.
_UNDECIDED = re.compile(
    r"\b(?:can ?not|can't|either|or|whether|if|unless|unable|unsure|might|could|glance|success\w*)\b", re.IGNORECASE
)
_QUOTED = re.compile(
    r"\b(?:says?|said|shows|reads|claims|its|their|(?:page|site|agent)'s)\b[^,]*\Z"
    r"|\baccording to [^,]*\b(?:page|site|website|agent)\b[^,]*, the \w+ (?:is|was)? *\Z",
    re.IGNORECASE,
)
# The line before a verdict that stands alone, if it ends with a colon and does not announce a verdict.
_UNNAMED = re.compile(
    rf"^(?!.*{_JUDGES})(?:(?!.*\b(?:final|result|outcome|answer|task)\b)|the final (?:message|banner|alert)\b).*:\s*\Z",
    re.IGNORECASE | re.MULTILINE,
)
# What may be the number of a point or step, before a verdict: `1. SUCCESS`, `Step 3. SUCCESS`.
_NUMBER = re.compile(
    r"^(?:(?:step|(?:key )?point|part|criterion|version) )?\(?(?:[a-z]|v?\d[\d.]*)\)?\Z", re.IGNORECASE | re.MULTILINE
)
_DENIED = re.compile(
    r"\b(?:not?|never|nor|neither|without|kein\w*|nicht|pas|не)\b|n't\b|\b(?:false|wrong|untrue) that\b|[不没未非]",
    re.IGNORECASE,
)
_DENIAL = re.compile(
    rf"\bNOT[\W_]*SUCCESS|(?:{_JUDGES}|\b(?:result|outcome))\W{{1,4}}"
    r"(?:fail|false|incomplete|no(?:[.,;]|$)|unsuccessful)|^\W{0,9}fail(?:ed|ure)?(?:\W{0,9}$|\.)",
    re.IGNORECASE | re.MULTILINE,
)
# The end of a sentence right before a success that denies it; earlier ones tell what was so at first.
_GOAL = r"(?:task|goals?|objective|request|requirements?)"
_DENIAL_BEFORE = re.compile(
    rf"(?:(?:{_JUDGES}|\b(?:result|outcome)) (?:is|was) (?:an? )?(?:fail\w*|false|incomplete|no|unsuccessful)"
    r"|(?<!\b(?:that|what) )(?<!\bwhich )\b(?:is|was|has|are|were|have|remains?)(?: still)?(?: (?:incorrect|incomplete"
    r"|wrong|missing|unfinished)|(?: not| never|n't)(?: been)?"
    r" (?:complete|done|met|shown|(?!needed|required|requested)\w+ed)"
    rf")|\b{_GOAL} (?:has )?failed"
    rf"|\b(?:answer|{_GOAL}) (?:is|was|has)(?: not|n't) (?:been )?(?:done|completed|supported) by the \w+"
    r"|\b(?:did not|didn't|never|failed to|could not|couldn't) (?:do|did|meet|met"
    rf"|(?:complete|finish|achieve|accomplish|reach|fulfill?)(?:e?d)?)"
    rf" (?:(?:the|its|this)(?: user's)? {_GOAL}|it|all (?:the )?steps)"
    r"|(?:^|[.!?:]\s?|\n)(?:the agent (?:failed(?: to \w+(?: (?:the|an?|any))? \w+)?|has failed|gave up)"
    r"|(?:however, )?the agent (?:did not|didn't|could not|couldn't|(?:has )?(?:not|never)|was (?:not able|unable) to)"
    r" (?:find|found|locate)d? (?:the|an?|any) (?:item|product|answer)"
    r"|the \w+ (?:was|were|could)(?: not|n't) (?:made|found|sent|bought|paid|be (?:made|found|\w+ed))"
    r"|not all (?:the |of the )?(?:(?:key )?points|requirements|conditions|criteria|constraints)"
    r" (?:are|were|have been) (?:met|fulfilled|satisfied)|no screenshots? shows? the (?:result|answer)"
    r"|the (?:answer|result|response|output|item|product)s? do(?:es)?(?: not|n't) (?:match|address)(?: the \w+)?"
    # In other languages.
    r"|l['’]agent n['’]a pas trouvé (?:l['’]article|le produit)|el agente no encontró el (?:producto|artículo)"
    r"|der agent hat (?:den artikel|das produkt) nicht gefunden"
    r"|(?:智能体|代理)(?:没有|没|未)能?(?:找到该?(?:商品|产品|答案)|完成任务)"
    r"|(?:任务|要求|目标)(?:没有|没|未)(?:能|成功){0,2}(?:完成|满足|达到)"
    r"|die (?:aufgabe|anforderungen) (?:ist|sind|wurden?) nicht (?:erfüllt|erledigt|erreicht)"
    r"|la tâche n['’](?:est|a) pas (?:été )?(?:accompli|atteint)\w*|la tarea no (?:se|fue|está) (?:complet|cumpli)\w+"
    r"|(?:задача|задание) не (?:был[ао] )?(?:выполнен|завершен)\w*|a tarefa não foi (?:conclu|complet)\w+"
    r"|il compito non è stato completato"
    r"|タスクは(?:完了|達成)[しさ]れ?ていません|작업이 (?:완료|성공)되지 않았습니다))\W*\Z"
    r"|\b(?:expected|desired|claimed) \Z",
    re.IGNORECASE,
)
# Words after a success that may take it back: an explanation has its place before the verdict.
_DOUBTED = re.compile(
    r"\b(?:not?|never|none|neither|nor|without|cannot|in(?:corr|compl|valid|accur|suff)\w*|impossible|hardly"
    r"|un(?:succ|met|able|sure|clear|cert|verif|finish|fulfil|satisf|done)\w*|(?:wrong|false|fail|doubt|mistak)\w*"
    r"|miss(?:ing|e[ds])?|lack\w*|differ\w*|contradict\w*|partly|partial\w*|only|but|yet|however|(?:al)?though|except"
    r"|wait|hmm+|actually|correction|rather|instead|sorry|oops|scratch|kidding|reflection|disagree|should have"
    r"|(?:second|I) thought|(?:it|that|this) back|aber|kein\w*|nicht|nein|mais|pas|pero|но|не|нет)\b"
    r"|n['’]t\b|[没未但误]|不(?!错)|非(?!常)|(?<!不)错",
    re.IGNORECASE,
)
# Words that a success is told in, too: `Nothing is missing`, `without errors`, `but with an extra step`.
_HARMLESS = re.compile(
    r"\b(?:nothing|none of [^.,!?\n]{1,40}|no \w+(?: \w+)?) (?:is|was|are|were|seems) (?:missing|wrong|needed)\b"
    r"|\b(?:no|without)(?: any| further| other)? (?:errors?|issues?|problems?|warnings?|need|actions?)\b"
    r"|(?: not|n't) (?:need|require|\w+ anything else)\b|\bonly [^.,!?\n]{1,40} w(?:as|ere) requested\b"
    r"|\b(?:but|actually)(?: (?:with|in|by|it|an?|the|some|two|took|needed))* (?:extra|additional|more|longer)"
    r" (?:steps?|way|route|clicks?|time)\b",
    re.IGNORECASE,
)
# That it refuses, or saw nothing; not that it could not see one screenshot, but another.
_SEEN = r"(?: (?:the|any|these|your))? (?:screenshot|image|picture)"
_EXCUSED = re.compile(
    r"(?:^|[.!?,;] )\W*(?:(?:thoughts:|so|but|since|as an AI(?: \w+){0,2},?) )*I(?:'m| am)? (?:(?:do not|don't) have"
    rf" access to{_SEEN}|(?:can ?not|can't|could not|couldn't|unable to) (?:(?:see|view|open|access){_SEEN}"
    r"|(?:assist|help|evaluate|judge|tell|verify|confirm|determine)"
    r"(?=\W*$|[.!]| (?:with|whether|if|this|the (?:task|result|outcome))\b)))(?![^.!?\n]*\bbut\b)",
    re.IGNORECASE | re.MULTILINE,
)
_QUOTATION = re.compile(r"\"[^\"\n]*\"|(?<!\w)'[^'\n]*'(?!\w)")
_POINT = re.compile(r"^\W{0,9}(?:\d{1,3}[.):、．]\W{0,9}|[-*•] {1,3})\w", re.MULTILINE)
_SCORE = re.compile(
    r"\bscore\W*(?<!-)([1-5])\b(?!(?:\s*[-–.,]|\s+or|\s+to)\s*\d| *(?:/|(?:out )?of) *(?!5\b)\d| *%)", re.IGNORECASE
)
_STATUS = re.compile(
    r"(?:^|[.!?] )(?:(?:final|overall) )?(?:status|状态)(?: ?[:=-]\s{0,9}|\s?\n\s{0,9})"
    r"([\"'(\[<])?(\w+)[.!]?(?(1)[\"')\]>])[.!]?\s*$(?!\s*(?-i:[a-z(]))",  # a sentence that goes on quotes it
    re.IGNORECASE | re.MULTILINE,
)
# What takes a status back: words after it, or a sentence before it that tells what would be written.
_TURN = re.compile(r"\b(?:fail(?:ed|ure)|wait|actually|but|however)\b", re.IGNORECASE)
_SUPPOSED = re.compile(
    r"(?:\b(?:would|will|not|never|can't|cannot)|'d)\b[^.!?\n]*\b(?:write|say|give|answer|reply)\W*\Z"
    r"|\b(?:reply|answer|verdict|status) (?:would|could|might|should) (?:be|have been)\W*\Z"
    r"|(?:\A|[.!?\n]\s*)if\b[^.!?\n]*:\s*\Z",
    re.IGNORECASE,
)
_OWN_LINE = re.compile(
    r"(?:^|[>:.])\s{0,9}<success>[^<]*</success>\s{0,9}(?:$(?!\s*(?:and|but)\b)|<)", re.MULTILINE | re.IGNORECASE
)
# What the other tags of AgentRewardBench say, as numbers.
_ANSWERS = {"yes": 1.0, "no": 0.0}
_OPTIMALITY = {
    form: float(rank)
    for rank, name in enumerate(("complete failure", "suboptimal", "somewhat optimal", "completely optimal"), 1)
    for form in (str(rank), name, f"{rank}. {name}")
}
_ANNOTATIONS = {
    "side": ("side_effect", _ANSWERS),
    "optimal": ("optimality", _OPTIMALITY),
    "loop": ("looping", _ANSWERS),
}
_ANNOTATION = re.compile(
    rf"<?\b(?:{'|'.join(_ANNOTATIONS)})[\w ]*[>:]\W*(?:{'|'.join((*_ANSWERS, *_OPTIMALITY))})\W*(?=<|\n|\Z)|</?\w+>",
    re.IGNORECASE,
)
_TAG = re.compile(r"<success>(?:[\s\"']*(\w+)[\s\"'.!]*</success>)?", re.IGNORECASE)


def _reply(text: str, verdict: Literal["yes", "no"]) -> JudgeReply:
    return JudgeReply(reason=text.strip(), verdict=verdict)


def _simplify(text: str) -> str:
    """Return an answer without emphasis, fences, marks, and markers of lists and quotations."""
    lines = _MARKS.sub(r"\1", text).translate(_PLAIN).strip("- \t\r\n").split("\n")
    return "\n".join(" ".join(line.lstrip(" \t>•+-").split()) for line in lines)


def read_webvoyager(text: str) -> JudgeReply:
    """Read SUCCESS or NOT SUCCESS at the end. Raises `UnreadableError` for neither and for both."""
    plain = _simplify(text.strip()[-_END:])
    verdict = _VERDICT.search(plain)
    if verdict is None or not verdict["word"].isascii() or (verdict["upper"] and not verdict["word"].isupper()):
        raise UnreadableError("the end is neither SUCCESS nor NOT SUCCESS")
    sentence = _SENTENCE.split(plain[: verdict.start("word")])[-1]
    unsaid = bool(_UNDECIDED.search(sentence) or _QUOTED.search(sentence))
    if verdict["no"] is None:
        before = plain[: verdict.start()]
        quoted = _NUMBER.search(before) or (verdict["line"] is not None and _UNNAMED.search(sentence))
        denied = _is_denied(before, "") or bool(_DENIAL.search(text) or _DENIED.search(sentence))
        unsaid = unsaid or bool(quoted) or denied
    if unsaid:
        raise UnreadableError("the last sentence is no verdict, or both were said")
    return _reply(text, "no" if verdict["no"] else "yes")


def read_key_points(text: str) -> JudgeReply:
    """Read a list of key points, whole. Raises `UnreadableError` without one."""
    if not _POINT.search(text) or _EXCUSED.search(_QUOTATION.sub("", text)):
        raise UnreadableError("no numbered list of key points")
    return _reply(text, "yes")


def read_score(text: str) -> JudgeReply:
    """Read a screenshot's score: yes if it is kept. Raises `UnreadableError`."""
    return _read_word(_SCORE, text, yes="345", no="12")


def read_status(text: str) -> JudgeReply:
    """Read `Status: success` or `Status: failure`. Raises `UnreadableError` for none, both, or a retraction."""
    plain = _simplify(text)
    reply = _read_word(_STATUS, plain, yes=("success", "successful"), no=("failure", "failed", "unsuccessful"))
    *_, last = _STATUS.finditer(plain)
    before, after = plain[: last.start()][-_END:], plain[last.end() :]
    return _refuse_unless(reply, not (_SUPPOSED.search(before) or _TURN.search(after) or _is_denied(before, after)))


def read_tags(text: str) -> JudgeReply:
    """Read the tag `success`. Raises `UnreadableError`, also for one that the reasoning or a sentence quotes."""
    plain = _remove_reasoning(text)
    reply = _read_word(_TAG, plain, yes=("successful",), no=("unsuccessful",))
    before, _, after = text.translate(_PLAIN).lower().rpartition("<success>")
    is_own = _OWN_LINE.search(plain) and not _is_denied(before, _remove_reasoning(after))
    return _reply(text, _refuse_unless(reply, bool(is_own)).verdict)


def _is_denied(before: str, after: str) -> bool:
    """Whether the judge's own words before or after a success deny it; what it quotes does not."""
    before, after = (_HARMLESS.sub("", _QUOTATION.sub("", _ANNOTATION.sub("\n", part))) for part in (before, after))
    return any(pattern.search(before) for pattern in (_EXCUSED, _DENIAL_BEFORE)) or bool(_DOUBTED.search(after))


def _remove_reasoning(text: str) -> str:
    plain = remove_between(text.translate(_PLAIN), "<!--", "-->")
    return remove_between(plain, "<reasoning>", "</reasoning>")


def read_annotations(text: str) -> dict[str, float]:
    """Return what the other tags say: `side_effect` and `looping` as 1 or 0, `optimality` from 1 to 4.

    One that is missing, unclear or contradicts itself is left out.
    """
    plain, known = _remove_reasoning(text), {}
    for tag, (name, numbers) in _ANNOTATIONS.items():
        answers = re.findall(rf"<{tag}>([^<]*)</{tag}>", plain, re.IGNORECASE)
        given = {numbers.get(" ".join(answer.casefold().split()).strip(" .\"'")) for answer in answers}
        if len(given) == 1 and (number := given.pop()) is not None:
            known[name] = number
    return known


def _refuse_unless(reply: JudgeReply, is_valid: bool) -> JudgeReply:
    """Return a reply. Raises `UnreadableError` for a success that the text around it takes back."""
    if reply.yes and not is_valid:
        raise UnreadableError("the text around the verdict takes it back")
    return reply


def _read_word(pattern: re.Pattern[str], text: str, *, yes: Sequence[str], no: Sequence[str]) -> JudgeReply:
    """Read the word that all matches have, in small letters. Raises `UnreadableError` for none, several and others."""
    words = {str(match[match.lastindex or 0]).lower() for match in pattern.finditer(text)}
    if len(words) != 1 or not words <= {*yes, *no}:
        raise UnreadableError(f"one of {', '.join((*yes, *no))} is missing, or several were said")
    return _reply(text, "yes" if words <= {*yes} else "no")
