"""Parser of the page locations in WebArena's tasks. An unknown form is an error, never a score."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlsplit

from webgym_cli.environments.web.tasks import shorten
from webgym_cli.records.webarena import HtmlTarget
from webgym_cli.util.literal_calls import BadCall, Call, Identifier, read_call

LAST = "last"
# Placeholder for the last page's URL in a helper's argument.
LAST_URL = "__last_url__"
_FUNC, _LAMBDA = "func:", "lambda:"
# Prefixes of JavaScript expressions.
_SCRIPTS = ("document.", "[...document.")


class BadLocationError(ValueError):
    """Unknown form of a location."""


class HelperName(StrEnum):
    """Helper functions that tasks can call, with WebArena's names."""

    LATEST_ORDER = "shopping_get_latest_order_url"
    """URL of the customer's newest order."""
    REVIEW_AUTHOR = "shopping_get_sku_latest_review_author"
    """Author of the newest review of the product with this SKU."""
    REVIEW_RATING = "shopping_get_sku_latest_review_rating"
    """Rating (0-100) of the newest review of the product with this SKU."""
    POST_URL = "reddit_get_post_url"
    """URL of the post to which the page with this URL belongs."""
    MEMBER_ROLE = "gitlab_get_project_memeber_role"
    """Role of an account in the open list of members."""


@dataclass(frozen=True, slots=True)
class HelperCall:
    """A call of a helper."""

    name: HelperName
    argument: str | None = None


@dataclass(frozen=True, slots=True)
class ContentLocation:
    """Location of a content."""

    url: str | HelperCall | None
    """A URL; None for the page on which the episode ended."""
    locator: str | HelperCall | None
    """A JavaScript function without arguments that the page evaluates; None: the whole page."""
    preparations: tuple[str, ...]
    """Functions that the page runs before."""


_ON_PAGE = Identifier("__page__")
# Arguments of each helper: texts, or the page.
_SIGNATURES: dict[HelperName, tuple[object, ...]] = {
    HelperName.LATEST_ORDER: (),
    HelperName.REVIEW_AUTHOR: (str,),
    HelperName.REVIEW_RATING: (str,),
    HelperName.POST_URL: (str,),
    HelperName.MEMBER_ROLE: (_ON_PAGE, str),
}
_FOR_ADDRESSES = frozenset({HelperName.LATEST_ORDER, HelperName.POST_URL})


def parse_location(target: HtmlTarget) -> ContentLocation:
    """Return the location of a target. Raises `BadLocationError`."""
    preparations = tuple(f"() => {{ {action} }}" for action in target.prep_actions)
    return ContentLocation(_url(target.url.strip()), _locator(target.locator.strip()), preparations)


def post_url(address: str) -> str:
    """Return the URL of the post to which a forum page belongs; the given URL if there is none."""
    parts = urlsplit(address)
    match parts.path.split("/"):
        case ["", "f", forum, number, *_] if forum and number.isdecimal():
            return f"{parts.scheme}://{parts.netloc}/f/{forum}/{number}/"
    return address


def _url(text: str) -> str | HelperCall | None:
    if text == LAST:
        return None
    if text.startswith(_FUNC):
        helper = _helper(text)
        if helper.name not in _FOR_ADDRESSES:
            raise BadLocationError(f"url: {helper.name} gives no address")
        return helper
    if not text.startswith(("http://", "https://")):
        raise BadLocationError(f"url: {shorten(text)} is neither {LAST!r}, nor an address, nor a helper ({_FUNC}...)")
    return text


def _locator(text: str) -> str | HelperCall | None:
    if not text:
        return None
    if text.startswith(_FUNC):
        helper = _helper(text)
        if helper.name in _FOR_ADDRESSES:
            raise BadLocationError(f"locator: {helper.name} gives an address, no content")
        return helper
    if text.startswith(_LAMBDA):
        return text.removeprefix(_LAMBDA).strip()
    if text.startswith(_SCRIPTS):
        return f"() => ({text.rstrip(';')})"
    raise BadLocationError(f"locator: {shorten(text)} is none of: empty, {', '.join((*_SCRIPTS, _LAMBDA, _FUNC))}")


def _helper(text: str) -> HelperCall:
    written = text.removeprefix(_FUNC).strip()
    try:
        call = read_call(written)
        name = HelperName(call.name)
    except ValueError as error:
        unknown = f"there is no such helper; there are: {', '.join(HelperName)}"
        reason = str(error) if isinstance(error, BadCall) else unknown
        raise BadLocationError(f"{shorten(text)}: {reason}") from None
    signature = _SIGNATURES[name]
    if call.end != len(written) or call.named or not _fits(call, signature):
        raise BadLocationError(f"{shorten(text)}: it takes {_spell(signature)}")
    texts = (value for value in call.positional if isinstance(value, str))
    return HelperCall(name, next(texts, None))


def _fits(call: Call, signature: tuple[object, ...]) -> bool:
    given = [str if isinstance(value, str) else value for value in call.positional]
    return given == list(signature)


def _spell(signature: tuple[object, ...]) -> str:
    return " and ".join(item.name if isinstance(item, Identifier) else "a text" for item in signature) or "nothing"
