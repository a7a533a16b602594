"""Reward functions for textual answers: SQuAD's metrics (Rajpurkar et al. 2016), the response format, and a judge."""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from webgym_cli.scoring.define import reward
from webgym_cli.scoring.statements import extract_boxed, strip_thoughts
from webgym_cli.util.json_values import as_list
from webgym_cli.util.optional import when
from webgym_cli.util.text import find_between

Messages = Sequence[Mapping[str, Any]]
"""An episode's messages in OpenAI's format."""

_ARTICLES = frozenset({"a", "an", "the"})
_PUNCTUATION = frozenset(string.punctuation)
_DASHES = str.maketrans(dict.fromkeys("−–‐‑‒—―﹘﹣－", "-"))
# SQuAD drops all punctuation; but these signs make another answer.
_NUMERIC = re.compile(
    r"""(?<=\d)(?:[^\w\s]|_)(?=\d)      # 3.5 is not 35, 1,2 not 12
    | (?<=\d)\+(?!\w) | (?<=\w)\+(?=\w) # 5+, a+b
    | [<>](?==?\s*[$€£]?\.?\d) | (?<=[<>])=  # <5, <= 5
    | (?<=\w)\^(?=\w) | (?<=\d)\*(?=\*?\d)   # x^2, 2**3
    | (?<=\d)[′″‰‱]                          # 5′ is not 5″
    | -(?=\\) | (?<=\de)-(?=\d)              # -\infty, 1e-5
    | (?<![\w.)])-(?=[$€£]?\.?\d) | (?<!\w)\.(?=\d)  # -5, .5
    | (?:(?<=\b[a-z])|(?<=\bab)|(?<=\brh))(?:\+\+?|\#|-(?=\W*$))(?!\w)  # C++, C#, A+, AB-, Rh-""",
    re.VERBOSE,
)
# A text that is a formula, whose letters have signs: `-x`, `n-k`, `y = -x`. The names J-K and H-E-B are none.
_FORMULA = re.compile(
    r"-[a-z]|[a-z]-[a-z]|(?=.*[=+])(?:[\d\s.,()=+*/^<>-]|(?<![A-Za-z])[A-Za-z](?![A-Za-z]))+"
    r"|(?=\D*\d)(?:[\d\s.,()*/^<>-]|(?<![a-z])[a-z](?![a-z]))+"
)
_LETTER_SIGN = re.compile(r"(?:(?<![\w.)\s])|(?<==\s)|(?<=\b[a-z]))-(?=[a-z]\b)")
_THOUSANDS = re.compile(r"(?<=\d),(?=(?:\d{2},)*\d{3}(?!\d))")
_LISTED = re.compile(r"(?<=\d)[,;](?=\d)")
_WRAPPED = re.compile(r"\\(?:text|mathrm|textbf|mbox)\s*\{([^{}]*)\}")
_MEASURES = ("f1", "precision", "recall", "em")
_CLOSED = frozenset({"yes", "no", "noanswer"})


@reward
def qa_em_reward(final_response: str, answer: Any) -> dict[str, float]:
    """1 where the answer is one of the record's after SQuAD's normalisation (case, punctuation, articles), else 0."""
    given = _extract_answer(final_response)
    exact = float(any(_is_same(given, wanted) for wanted in list_answers(answer)))
    return {"reward": exact, "em": exact}


@reward
def qa_f1_reward(final_response: str, answer: Any) -> dict[str, float]:
    """Precision and recall over words as one number, after SQuAD's normalisation; of several answers the best."""
    return _measures(_extract_answer(final_response), list_answers(answer))


@reward
def qa_f1_reward_tool(final_response: str, answer: Any, trajectory: Messages) -> dict[str, float]:
    """The reward of `qa_f1_reward` where two tools or more were called, the last of them to answer; else 0."""
    if count_tool_results(trajectory) <= 1:
        return _measures("", ())
    return _measures(_extract_answer(final_response), list_answers(answer))


@reward
def qa_em_reward_tool_call(final_response: str, answer: Any, trajectory: Messages) -> dict[str, float]:
    """Exact match of the last tool's result or, where the last message is not a tool's, of the final response."""
    last = next(reversed(trajectory), {})
    answered = last.get("role") == "tool"
    given = str(last["content"]) if answered else strip_thoughts(final_response)
    measures = _measures(given, list_answers(answer))
    called = float(count_tool_results(trajectory) > 0)
    return {**measures, "reward": measures["em"], "has_tool_calling": called, "has_tool_call_answer": float(answered)}


@reward
def qa_em_format_reward(final_response: str, answer: Any, trajectory: Messages) -> dict[str, float]:
    """1 for an exact match, 0.1 for another answer, 0 without `<answer>` tags or an earlier response's `</think>`."""
    earlier = [str(message["content"]) for message in trajectory if message.get("role") == "assistant"][:-1]
    thought = all("</think>" in content for content in earlier if content)  # a template may have written <think>
    measures = _measures(_extract_answer(final_response), list_answers(answer))
    well_formed = thought and bool(find_between(strip_thoughts(final_response), "answer"))
    reward = max(0.1, measures["em"])
    return {**measures, "reward": when(well_formed, reward), "fmt": float(well_formed), "fmt_think": float(thought)}


@reward
def ok_vqa_reward(final_response: str, answers: Any) -> float:
    """F1 over words; of several answers the best."""
    return _measures(strip_thoughts(final_response), list_answers(answers))["f1"]


@reward
def infoseek_reward(final_response: str, answer: Any, answer_eval: Any = ()) -> float:
    """F1 over words; the best of the answers and of the texts in `answer_eval`."""
    answers = [*list_answers(answer), *(item for item in as_list(answer_eval) if isinstance(item, str))]
    return _measures(strip_thoughts(final_response), answers)["f1"]


@reward
def format_reward(final_response: str) -> float:
    """1 where the response gives its answer in exactly one `\\boxed{...}` or `<answer>...</answer>`, else 0."""
    response = strip_thoughts(final_response)
    boxes, tags = response.count("\\boxed{"), find_between(response, "answer")
    content = extract_boxed(response) if boxes else "".join(tags)
    return float(boxes + len(tags) == 1 and bool(content and content.strip()))


def normalise(text: str) -> str:
    """Normalise a text as SQuAD does: lower case, without punctuation, articles and superfluous spaces.

    Unlike there, numbers keep their signs and points, and a text of articles or of punctuation alone stays.
    """
    is_formula = _FORMULA.fullmatch(text.strip(" .$()\n"))
    text = _LISTED.sub(" ", _THOUSANDS.sub("", _WRAPPED.sub(r"\1", text.lower().translate(_DASHES))))
    kept = {match.start() for match in _NUMERIC.finditer(text)}
    if is_formula:
        kept |= {match.start() for match in _LETTER_SIGN.finditer(text)}
    # neither punctuation of another script nor invisible
    kinds = {sign: unicodedata.category(sign) for sign in {*text} - _PUNCTUATION}
    plain = {sign for sign, kind in kinds.items() if kind[0] != "P" and kind != "Cf"}
    letters = "".join(sign for place, sign in enumerate(text) if place in kept or sign in plain)
    words = letters.split() or text.split()
    # The answer `A` of a choice is no article, nor is that of `A, B`.
    is_choice = all(len(word) == 1 and word.isalpha() for word in words)
    return " ".join([word for word in words if is_choice or word not in _ARTICLES] or words)


def _is_same(given: str, wanted: str) -> bool:
    """Whether two texts are the same after SQuAD's normalisation; `j-k` is `J-K`, though only one is a formula."""
    return normalise(given) == normalise(wanted) or given.strip().lower() == wanted.strip().lower()


def count_tool_results(trajectory: Messages) -> int:
    """Return the number of tool results in an episode."""
    return sum(message.get("role") == "tool" for message in trajectory)


def _compare(given: str, wanted: str) -> dict[str, float]:
    """Return F1, precision and recall over words, and exact match; no partial credit for `yes`, `no`, `noanswer`.

    F1 is 1 for the same words in another order, too; exact match is not.
    """
    ours, theirs = normalise(given), normalise(wanted)
    if _is_same(given, wanted):
        return dict.fromkeys(_MEASURES, 1.0)
    if {ours, theirs} & _CLOSED or not ours or not theirs:
        return dict.fromkeys(_MEASURES, 0.0)
    words, wanted_words = ours.split(), theirs.split()
    # Words that occur twice count twice, as in SQuAD.
    shared = sum((Counter(words) & Counter(wanted_words)).values())
    return {
        "f1": 2 * shared / (len(words) + len(wanted_words)),
        "precision": shared / len(words),
        "recall": shared / len(wanted_words),
        "em": 0.0,
    }


def _measures(given: str, answers: Sequence[str]) -> dict[str, float]:
    """Return the metrics for the best-matching answer, with F1 as the reward; all 0 without answers."""
    compared = [_compare(given, wanted) for wanted in answers]
    best = max(compared, key=lambda it: (it["f1"], it["em"]), default=dict.fromkeys(_MEASURES, 0.0))
    return {"reward": best["f1"], **best}


@reward
async def llm_as_judge_reward(final_response: str, question: str, answer: Any, judge: Any) -> dict[str, Any]:
    """1 where the model of the settings `judge` finds that the response gives the record's answer, else 0."""
    ruling = await judge(
        "Does the response answer the question as the reference answer does? Other words for the same are right; a "
        "response with several answers is not.",
        question=question,
        reference=answer,
        response=final_response,
    )
    return {"reward": float(ruling.yes), "reason": ruling.reason}


def _extract_answer(final_response: str) -> str:
    """Return the content of the last box, else of the last `<answer>` tags, else the whole response."""
    response = strip_thoughts(final_response)
    if (boxed := extract_boxed(response)) is not None:
        return boxed
    return next(reversed(find_between(response, "answer")), response)


def list_answers(answer: Any) -> list[str]:
    """Return the texts of a record's answer, or of several; of 72.0, as tables write a column with gaps, also 72."""
    items = [item for item in as_list(answer) if item is not None]
    whole = (int(item) for item in items if isinstance(item, float) and item.is_integer())
    return [str(item) for item in (*items, *whole)]
