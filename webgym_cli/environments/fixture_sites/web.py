"""The pages' side of a web server: visits, replies, routes and templates. Knows nothing of sockets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from jinja2 import Environment

World = TypeVar("World")


@dataclass(frozen=True, slots=True)
class SiteRequest:
    """One request, read completely."""

    method: str
    """`GET` or `POST`."""
    path: str
    """Decoded, without the query."""
    query: Mapping[str, str] = field(default_factory=dict)
    """The last value of each name."""
    form: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """All values of each posted field."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """What stood in the path where the route has `{name}`."""

    def field(self, name: str) -> str:
        """Return a posted field without the spaces around it; empty when it was not sent."""
        return self.form.get(name, ("",))[-1].strip()


@dataclass(frozen=True, slots=True)
class SiteResponse:
    """What a site answers: a page, or the way to another one."""

    body: str = ""
    """HTML."""
    status: int = 200
    location: str | None = None
    """Where to go instead."""


Handler = Callable[[World, SiteRequest], SiteResponse]
# Method, path (`/product/{id}`), handler.
Route = tuple[str, str, Handler[World]]


def dispatch(routes: Sequence[Route[World]], world: World, request: SiteRequest) -> SiteResponse:
    """Answer a request by the first route that fits; else with a page that says 404 or 405."""
    known = False
    for method, pattern, handler in routes:
        parts = _match(pattern, request.path)
        if parts is None:
            continue
        known = True
        if method == request.method:
            return handler(world, replace(request, parts=parts))
    if known:
        return message_page("That can't be done here", f"This page does not take {request.method} requests.", 405)
    return not_found_page()


def not_found_page() -> SiteResponse:
    """Return the page for what does not exist."""
    return message_page("Page not found", "There is no such page on this site.", 404)


def message_page(title: str, message: str, status: int) -> SiteResponse:
    """Return a page with one message."""
    return render_page("notice.html", status, title=title, message=message)


def redirect(location: str) -> SiteResponse:
    """Send the visitor on, as after a form that changed something."""
    return SiteResponse(status=303, location=location)


def render_page(template: str, status: int = 200, /, **values: Any) -> SiteResponse:
    """Return a template filled with values. Everything is escaped."""
    return SiteResponse(load_templates().get_template(template).render(values), status)


def parse_whole(text: str, least: int, most: int) -> int | None:
    """Return the number that the text writes, if it is a whole one within the limits."""
    digits = text.strip()
    if not digits.isascii() or not digits.isdigit() or len(digits) > 9:
        return None
    number = int(digits)
    return number if least <= number <= most else None


@cache
def load_templates() -> Environment:
    """Return the templates of this package."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _match(pattern: str, path: str) -> dict[str, str] | None:
    wanted, found = pattern.split("/"), path.split("/")
    if len(wanted) != len(found):
        return None
    parts: dict[str, str] = {}
    for want, have in zip(wanted, found, strict=True):
        if want.startswith("{"):
            parts[want[1:-1]] = have
        elif want != have:
            return None
    return parts
