"""Published judge protocols: their inputs, steps and answer formats, in our own words. All of them fail closed.

- `webvoyager` (WebVoyager's `auto_eval.py`): task, answer and the last screenshots; SUCCESS or NOT SUCCESS.
- `webjudge` (Online-Mind2Web): key points of the task, each screenshot scored from 1 to 5, then a status by key points,
  actions and the screenshots with 3 or more. It sees the actions and not the answer.
- `agenttrek` (Online-Mind2Web's `agenttrek_eval.py`): one request with the actions and the last screenshot.
- `agentrewardbench`: one request with actions, answer, the last page's elements, first and last screenshot; tags.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal

from webgym_cli.agent.client.chat import ChatError, JudgeReply, UnreadableError
from webgym_cli.jobs.workers import gather_or_cancel
from webgym_cli.records.failure import Stop
from webgym_cli.records.judgement import Verdict
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.rewards.judge.prompts import caption_images, describe_page, describe_step_action
from webgym_cli.rewards.judge.protocol import JudgeProtocol
from webgym_cli.rewards.judge.question import FRAME, JudgeQuestion
from webgym_cli.rewards.judge.session import JudgeSession
from webgym_cli.util.text import remove_between

# WebJudge keeps at most so many of the screenshots with a score of 3 or more.
_MOST = 50
# Characters at the end of an answer in which its verdict stands.
_END = 300
# Number of elements of the last page that are listed.
_ELEMENTS = 300
# Emphasis is dropped, and punctuation of other scripts is read as ASCII's: models decorate what they were asked for.
_PLAIN = str.maketrans(dict.fromkeys("*`#")) | str.maketrans("“”„«»‘’：＝。！？—–_", '"""""\'\':=.!?-- ')
# Fences, a chat template's tokens, and marks that agree with the verdict beside them; others may contradict it.
_MARKS = re.compile(
    r"^```\w*\s*(?:\n|\Z)|<\|\w+\|>|\A\s*<(?:answer|verdict)>|</(?:answer|verdict)>\s*\Z|[✅✔✓🎉\ufe0f]"
    r"|[❌✗✘]\s*(?=\**NOT\b|\**fail)|(NOT SUCCESS|failure)\W{1,4}[❌✗✘]",
    re.MULTILINE,
)
_THEN = r"\b(?:therefore|thus|hence|so),? (?:the|my) (?:final |overall )?"
_JUDGES = r"\b(?:verdict|evaluation|conclusion|judge?ment|decision|assessment)(?: result)?"
# What SUCCESS may follow: the judge's word for it, what pages say too only where no page is meant, a line that ended.
# NOT SUCCESS may follow anything: read wrongly, it opens nothing.
_VERDICT = re.compile(
    rf"(?:(?:(?:{_JUDGES}|{_THEN}(?:result|outcome|status))(?: ?[:=-]| (?:is|was)(?: an?)?:?)"
    r"|\bI (?:would )?(?:conclude|judge|rate|call)(?: (?:this|it))?(?: as)?(?: an?)?:?"
    r"|^(?:最[终終])?(?:裁[定决決]|[结結][论論果]|判[定断斷]):|^(?:fazit|urteil|ergebnis|veredicto|conclusión|résultat|вердикт):)\s*"
    r"|(?P<upper>(?<=\S)[.!?]|^(?:(?:my|final|overall) )?(?:result|outcome|answer) ?[:=-]) ?"
    r"|(?<![^\W\d]\n)(?<![❌✗✘]\n)(?P<line>^)|(?=[\"'(\[]?NOT\b))"
    r"(?P<open>[\"'(\[])?(?P<word>(?P<no>NOT[\s-]+)?SUCCESS)[.!]?(?(open)[\"')\]])[.!]?\Z",
    re.IGNORECASE | re.MULTILINE,
)
_SENTENCE = re.compile(r"[.!?]|(?<!:)\n\n")
# Words before the verdict that unsay it: any verdict, one that is another's (in its clause), and SUCCESS alone.
_UNDECIDED = re.compile(
    r"\b(?:can ?not|can't|either|or|whether|if|unless|unable|unsure|might|could|glance|success\w*)\b", re.IGNORECASE
)
_QUOTED = re.compile(r"\b(?:says?|said|shows|reads|claims|its|their|(?:page|site|agent)'s)\b[^,]*\Z", re.IGNORECASE)
# The line before a verdict that stands alone, if it ends with a colon and does not announce a verdict.
_UNNAMED = re.compile(rf"^(?!.*(?:{_JUDGES}|\b(?:final|result|outcome|answer|task)\b)).*:\s*\Z", re.I | re.M)
_DENIED = re.compile(r"\b(?:not?|never|nor|neither|without|kein\w*|nicht|pas|не)\b|n't\b|[不没未非]", re.IGNORECASE)
_DENIAL = re.compile(
    rf"\bNOT[\W_]*SUCCESS|(?:{_JUDGES}|\b(?:result|outcome))\W{{1,4}}(?:fail|false|incomplete|no(?:[.,;]|$)|unsuccessful)"
    r"|^\W{0,9}fail(?:ed|ure)?(?:\W{0,9}$|\.)",
    re.IGNORECASE | re.MULTILINE,
)
_POINT = re.compile(r"^\W{0,9}(?:\d{1,3}[.):、．]\W{0,9}|[-*•] {1,3})\w", re.MULTILINE)
_SCORE = re.compile(r"score\W*(?<!-)([1-5])\b(?!\s*[-–.,]\s*\d)", re.IGNORECASE)
_STATUS = re.compile(
    r"(?:^|[.!?] )(?:(?:final|overall) )?status(?: ?[:=-]\s{0,9}|\s?\n\s{0,9})"
    r"([\"'(\[<])?(\w+)[.!]?(?(1)[\"')\]>])[.!]?\s*$(?!\s*(?-i:[a-z(]))",  # a sentence that goes on quotes it
    re.IGNORECASE | re.MULTILINE,
)
# What takes a success back: words after it, or a sentence before it that tells what would be written.
_RETRACTED = re.compile(r"\b(?:fail(?:ed|ure)|wait|actually|but|however|not (?:a )?success\w*)\b", re.IGNORECASE)
_SUPPOSED = re.compile(
    r"(?:\b(?:would|will|not|never|can't|cannot)|'d)\b[^.!?\n]*\b(?:write|say|give|answer|reply)\W*\Z", re.IGNORECASE
)
_OWN_LINE = re.compile(r"(?:^|[>:.])\s{0,9}<success>[^<]*</success>\s{0,9}(?:$|<)", re.MULTILINE | re.IGNORECASE)
_TAG = re.compile(r"<success>(?:[\s\"']*(\w+)[\s\"'.!]*</success>)?", re.IGNORECASE)

_STATUS_FORM = 'Reply in two lines: "Thoughts: ..." with your reasons, then "Status: success" or "Status: failure".'
# Job -> the question, and the form of the answer.
_TEXTS: dict[str, tuple[str, str]] = {
    "webvoyager": (
        "Decide whether the agent did what `task` asks for. `answer` is what it replied; the screenshots are its last "
        "pages. If the task has several parts, all must be done. Where the answer contradicts the screenshots, the "
        "screenshots count; what the answer says and no screenshot shows may be believed.",
        "Give your reasons, then end with one verdict: SUCCESS or NOT SUCCESS.",
    ),
    "webjudge_key_points": (
        "List what must hold for `task` to be done: each condition that it states, such as filters, sorting, numbers, "
        "dates, and nothing that it does not state.",
        "Reply with a numbered list, one condition a line.",
    ),
    "webjudge_score": (
        "How much does this screenshot tell about whether `task`, with its `key_points`, was done? 1: nothing; 3: some "
        "part of what is needed; 5: what decides it. Filters, results and confirmations count; the way there does not.",
        'Reply in two lines: "Reasoning: ...", then "Score: N" with a number from 1 to 5.',
    ),
    "webjudge": (
        "Decide whether the agent did `task`. Each of the `key_points` must hold. `actions` is what it did; the "
        "screenshots are those that matter, with `notes` on each. Filters must be applied, not only be there; a range "
        "must be exactly the one asked for; what must be submitted must be submitted; an empty result is a success "
        "only if the right filters led to it. When in doubt it is a failure.",
        _STATUS_FORM,
    ),
    "agenttrek": (
        "Decide whether the agent did `task`. `actions` is what it did and wrote, step by step; the screenshot is its "
        "last page. Where information was asked for, the reply must give it; where something was to be changed, the "
        "page must show it.",
        _STATUS_FORM,
    ),
    "agentrewardbench": (
        "Answer four questions about the agent's work on `task`: was it done, did it do something unnecessary with "
        "side effects, how direct was it, did it repeat itself without effect? `actions` is what it did, `answer` what "
        "it replied, `elements` what the last page holds; the screenshots are its first and its last page.",
        "Reply with these tags: <reasoning>...</reasoning> <success>Successful or Unsuccessful</success> "
        "<side>Yes or No</side> <optimal>a number from 1 to 4</optimal> <loop>Yes or No</loop>",
    ),
}


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
    unsaid = _UNDECIDED.search(sentence) or _QUOTED.search(sentence)
    if verdict["no"] is None:
        quoted = verdict["line"] is not None and _UNNAMED.search(sentence)
        unsaid = unsaid or quoted or _DENIED.search(sentence) or _DENIAL.search(text)
    if unsaid:
        raise UnreadableError("the last sentence is no verdict, or both were said")
    return _reply(text, "no" if verdict["no"] else "yes")


def _read_key_points(text: str) -> JudgeReply:
    if not _POINT.search(text):
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
    return _refuse_unless(reply, not _SUPPOSED.search(before) and not _RETRACTED.search(after))


def read_tags(text: str) -> JudgeReply:
    """Read the tag `success`. Raises `UnreadableError`, also for one that the reasoning or a sentence quotes."""
    plain = remove_between(text.translate(_PLAIN), "<!--", "-->")
    plain = remove_between(plain, "<reasoning>", "</reasoning>")
    reply = _read_word(_TAG, plain, yes=("successful",), no=("unsuccessful",))
    return _reply(text, _refuse_unless(reply, _OWN_LINE.search(plain) is not None).verdict)


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


def _ask(
    job: str,
    trajectory: Trajectory,
    read: Callable[[str], JudgeReply],
    indices: Sequence[int] = (),
    **data: Any,
) -> JudgeQuestion:
    rule, form = _TEXTS[job]
    content = {"task": trajectory.instruction, **data}
    return JudgeQuestion(job, (rule,), content, caption_images(trajectory, indices), form, read)


def _list_shots(trajectory: Trajectory) -> list[int]:
    """Return the indices of the steps with screenshots. Raises `ChatError` if there is none."""
    indices = [step.index for step in trajectory.steps if step.observation.screenshot is not None]
    if not indices:
        raise ChatError("there is no screenshot to judge by")
    return indices


async def _decide(session: JudgeSession, question: JudgeQuestion) -> bool:
    verdict: Verdict = await session.vote(question, question.job)
    session.fields["facts"] = (verdict,)
    return verdict.passed


async def judge_webvoyager(session: JudgeSession) -> bool:
    """Judge by the answer and the last screenshots; without an answer the task was not done."""
    trajectory = session.trajectory
    answer = (trajectory.outcome.answer or "").strip()
    if trajectory.outcome.stop is not Stop.ANSWERED or not answer:
        return False
    shown = _list_shots(trajectory)[-session.settings.max_images :]
    session.fields["key_points"] = tuple(shown)
    return await _decide(session, _ask("webvoyager", trajectory, read_webvoyager, shown, answer=answer))


async def judge_webjudge(session: JudgeSession) -> bool:
    """Judge by key points, actions, and the screenshots that matter."""
    trajectory, shots = session.trajectory, _list_shots(session.trajectory)
    points = (await session.ask(_ask("webjudge_key_points", trajectory, _read_key_points))).reason
    questions = (
        _ask(
            "webjudge_score",
            trajectory,
            read_score,
            [index],
            key_points=points,
            page=describe_page(trajectory.steps[index]),
        )
        for index in shots
    )
    scores = await gather_or_cancel(*map(session.ask, questions))
    limit = min(_MOST, session.settings.max_images)
    kept = [(index, score.reason) for index, score in zip(shots, scores, strict=True) if score.yes][-limit:]
    session.fields["key_points"] = tuple(index for index, _ in kept)
    data = {"key_points": points, "actions": [describe_step_action(step) for step in trajectory.steps]}
    notes = [reason for _, reason in kept]
    shown = [index for index, _ in kept]
    return await _decide(session, _ask("webjudge", trajectory, read_status, shown, **data, notes=notes))


async def judge_agenttrek(session: JudgeSession) -> bool:
    """Judge by what the agent did and wrote, and the last screenshot."""
    trajectory, shots = session.trajectory, _list_shots(session.trajectory)
    actions = [{"action": describe_step_action(step), "response": step.response} for step in trajectory.steps]
    session.fields["key_points"] = (shots[-1],)
    return await _decide(session, _ask("agenttrek", trajectory, read_status, shots[-1:], actions=actions))


async def judge_agentrewardbench(session: JudgeSession) -> bool:
    """Judge by actions, answer, the last page's elements, first and last screenshot."""
    trajectory, shots = session.trajectory, _list_shots(session.trajectory)
    last = trajectory.steps[-1].observation
    listed = [f"[{one.id}] {one.role} {one.name} {one.value}".strip() for one in last.elements[:_ELEMENTS]]
    shown = sorted({shots[0], shots[-1]})
    session.fields["key_points"] = tuple(shown)
    data = {
        "actions": [{"url": step.observation.url, "action": describe_step_action(step)} for step in trajectory.steps],
        "answer": trajectory.outcome.answer or "",
        "elements": listed or last.html,
    }
    return await _decide(session, _ask("agentrewardbench", trajectory, read_tags, shown, **data))


def _texts(*jobs: str) -> list[Any]:
    return [FRAME, *(_TEXTS[job] for job in jobs)]


WEBVOYAGER = JudgeProtocol(judge_webvoyager, _texts("webvoyager"))
WEBJUDGE = JudgeProtocol(judge_webjudge, _texts("webjudge_key_points", "webjudge_score", "webjudge"))
AGENTTREK = JudgeProtocol(judge_agenttrek, _texts("agenttrek"))
AGENTREWARDBENCH = JudgeProtocol(judge_agentrewardbench, _texts("agentrewardbench"))
