"""The pages' side of a web server: visits, replies, routes and templates. Knows nothing of sockets."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from jinja2 import Environment


class SeededState(Protocol):
    """What an episode changed on a site."""

    seed: int


World = TypeVar("World", bound=SeededState)
T = TypeVar("T")


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


class MissingPageError(LookupError):
    """What an address names does not exist: answered with 404."""


class SitePages(Generic[World]):
    """The pages of one site: its routes, and the templates in the folder of its name."""

    def __init__(self, name: str, world: Callable[[int], Any], **names: Any) -> None:
        """`world`: makes what a seed decided. `names`: what all templates can name, beside `world` and `state`."""
        self._name = name
        self._world = world
        self._names = names
        self._routes: list[tuple[str, re.Pattern[str], Handler[World]]] = []

    def get(self, path: str) -> Callable[[Handler[World]], Handler[World]]:
        """Answer GET requests for a path, such as `/product/{id}`, by the decorated function."""
        return lambda handler: self._add("GET", path, handler)

    def post(self, path: str) -> Callable[[Handler[World]], Handler[World]]:
        """Answer POST requests for a path by the decorated function."""
        return lambda handler: self._add("POST", path, handler)

    def show(self, path: str, template: str) -> None:
        """Answer GET requests for a path by a template that needs no more than the state."""
        self._add("GET", path, lambda state, request: self.page(template, state))

    def page(
        self, template: str, state: World, /, status: int = 200, errors: Sequence[str] = (), **values: Any
    ) -> SiteResponse:
        """Return a page; one with errors, of what was sent, has the status 422."""
        given = {"state": state, "world": self._world(state.seed), "errors": errors, **self._names}
        return render_page(f"{self._name}/{template}.html", 422 if errors else status, **given, **values)

    def answer(self, state: World, request: SiteRequest) -> SiteResponse:
        """Answer a request by the first route that fits; else with a page that says 404 or 405."""
        known = False
        for method, pattern, handler in self._routes:
            if match := pattern.fullmatch(request.path):
                known = True
                if method == request.method:
                    try:
                        return handler(state, replace(request, parts=match.groupdict()))
                    except MissingPageError:
                        return not_found_page()
        if known:
            return message_page("That can't be done here", f"This page does not take {request.method} requests.", 405)
        return not_found_page()

    def _add(self, method: str, path: str, handler: Handler[World]) -> Handler[World]:
        self._routes.append((method, re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]*)", path)), handler))
        return handler


def require(item: T | None) -> T:
    """Return what an address names. Raises `MissingPageError` where it does not exist."""
    if item is None:
        raise MissingPageError
    return item


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
    return SiteResponse(load_templates().get_template(template).render(values, status=status), status)


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
