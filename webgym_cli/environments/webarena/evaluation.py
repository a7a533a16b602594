"""Evaluation of an episode by a WebArena task's own rules: the product of its parts, each 0 or 1."""

from __future__ import annotations

import asyncio
import html
import json
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from urllib.parse import ParseResult, parse_qsl, unquote, urlparse

from webgym_cli.environments.webarena.evaluation_browser import EvaluationBrowser, PageScriptError
from webgym_cli.environments.webarena.locators import (
    LAST_URL,
    ContentLocation,
    HelperCall,
    HelperName,
    parse_location,
    post_url,
)
from webgym_cli.environments.webarena.text_match import (
    FuzzyContext,
    FuzzyJudgeFn,
    matches_expected,
    parse_comparisons,
    plain_number,
)
from webgym_cli.records.webarena import OR, EvalType, Evaluation, UrlRule


def check_evaluation(evaluation: Evaluation) -> None:
    """Raise `ValueError` with the location for an unsupported evaluation."""
    answers = evaluation.reference_answers
    for comparison in (answers and answers.required_values) or ():
        _name_place("reference_answers.required_values", partial(parse_comparisons, comparison))
    for number, target in enumerate(evaluation.targets):
        _name_place(f"program_html.{number}", partial(parse_location, target))
        for comparison in target.required_contents.required_values or ():
            place = f"program_html.{number}.required_contents.required_values"
            _name_place(place, partial(parse_comparisons, comparison))


async def grade(
    evaluation: Evaluation | None,
    *,
    intent: str,
    answer: str | None,
    pages: EvaluationBrowser,
    judge: FuzzyJudgeFn | None,
) -> dict[EvalType, float] | None:
    """Return the parts of an episode's evaluation, each 0 or 1; None for a generated task, which has none.

    Parts after the first 0 are not evaluated. `intent`: the agent's instruction. Raises `ValueError` for an unsupported
    evaluation before any page is opened, and `UsageError` if a judge is needed and missing.
    """
    if evaluation is None or evaluation.is_dummy:
        return None
    check_evaluation(evaluation)
    asker, parts = FuzzyContext(intent, evaluation.string_note, judge), dict[EvalType, float]()
    # The last page's URL is checked before other pages are opened.
    for kind in (EvalType.URL_MATCH, EvalType.STRING_MATCH, EvalType.PROGRAM_HTML):
        if kind in evaluation.eval_types and all(parts.values()):
            parts[kind] = float(await _meets(kind, evaluation, answer, pages, asker))
    return parts


async def _meets(
    kind: EvalType, evaluation: Evaluation, answer: str | None, pages: EvaluationBrowser, asker: FuzzyContext
) -> bool:
    if kind is EvalType.URL_MATCH:
        return url_matches(await pages.address(), evaluation.reference_url or "", evaluation.url_note)
    if kind is EvalType.STRING_MATCH:
        expected = evaluation.reference_answers
        return answer is not None and expected is not None and await matches_expected(answer, expected, asker)
    last = await pages.address()
    places = [(target, parse_location(target)) for target in evaluation.program_html]
    # The page on which the episode ended comes first: it contains text that was typed but not submitted.
    for target, place in sorted(places, key=lambda pair: pair[1].url is not None):
        content = await _content(place, last, pages)
        if content is None or not await matches_expected(content, target.required_contents, asker):
            return False
    return True


async def _content(place: ContentLocation, last: str, pages: EvaluationBrowser) -> str | None:
    """Return the content at a location, without HTML entities as in WebArena; None if it does not exist."""
    if place.url is not None:
        url = await _call_helper(place.url, last, pages) if isinstance(place.url, HelperCall) else place.url
        if url is None:
            return None
        await pages.open(url)
    for preparation in place.preparations:
        with suppress(PageScriptError):  # the page may have opened it already; the locator will show
            await pages.run(preparation)
    if place.locator is None:
        content: str | None = await pages.html()
    elif isinstance(place.locator, HelperCall):
        content = await _call_helper(place.locator, last, pages)
    else:
        content = await _evaluate(place.locator, pages)
    return None if content is None else await asyncio.to_thread(html.unescape, content)


async def _call_helper(helper: HelperCall, last: str, pages: EvaluationBrowser) -> str | None:
    argument = helper.argument and helper.argument.replace(LAST_URL, last)
    if helper.name is HelperName.POST_URL:
        return post_url(argument or "")
    return await pages.ask(helper.name, argument)


async def _evaluate(script: str, pages: EvaluationBrowser) -> str | None:
    """Return a script's value as text, as JavaScript formats it; None if it is empty or fails."""
    try:
        value = await pages.run(script)
    except PageScriptError:
        return None
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, ensure_ascii=False)


def _name_place(place: str, read: Callable[[], object]) -> None:
    try:
        read()
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


_LOCAL = {"localhost": "127.0.0.1"}
_DEFAULT_PORTS = (None, 80, 443)


def url_matches(address: str, reference_url: str, rule: UrlRule) -> bool:
    """Whether a URL equals one of the expected ones, or is below it."""
    return any(_matches(address, wanted, rule) for wanted in reference_url.split(OR))


def _matches(address: str, wanted: str, rule: UrlRule) -> bool:
    try:
        ours, theirs = (urlparse(url.strip().rstrip("/")) for url in (address, wanted))
        if _origin(ours) != _origin(theirs):
            return False
    except ValueError:  # an invalid IPv6 address or port
        return False
    query, path = _query(theirs), _path(theirs)
    if rule is UrlRule.EXACT:
        return (_path(ours), _query(ours), ours.fragment) == (path, query, theirs.fragment)
    required = Counter({pair: count for pair, count in query.items() if pair[1]})  # `label=` asks for nothing
    return f"{_path(ours)}/".startswith(f"{path}/") and required <= _query(ours)


def _origin(parts: ParseResult) -> tuple[str, int | None]:
    """Return host and port. A site may answer at http or https."""
    host = parts.hostname or ""
    return _LOCAL.get(host, host), None if parts.port in _DEFAULT_PORTS else parts.port


def _path(parts: ParseResult) -> str:
    return "/".join(map(plain_number, unquote(parts.path).rstrip("/").split("/")))


def _query(parts: ParseResult) -> Counter[tuple[str, str]]:
    """Return the query parameters regardless of order, numbers in normal form."""
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    return Counter((name, plain_number(value.strip()) if value.strip() else value) for name, value in pairs)
