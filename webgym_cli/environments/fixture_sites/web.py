"""Minimal web framework of the sites: requests, routes and templates, without sockets."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from aiohttp import web
from jinja2 import Environment, FileSystemLoader, StrictUndefined

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SiteRequest:
    """One complete request."""

    method: str
    """`GET` or `POST`."""
    path: str
    """Decoded, without the query."""
    query: Mapping[str, str] = field(default_factory=dict)
    """Last value of each name."""
    form: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """All values of each form field."""
    parts: Mapping[str, Any] = field(default_factory=dict)
    """Objects named in the path, for routes with `{name}`."""

    def field(self, name: str, default: str = "") -> str:
        """Return a form field, stripped; the default if it is missing."""
        return self.form.get(name, (default,))[-1].strip()


# Takes the changes of an episode on the site, and a request.
Handler = Callable[[Any, SiteRequest], web.Response]


class SitePages:
    """One site: its seeded content and state, its routes, and the templates in the folder with its name."""

    def __init__(
        self,
        module: ModuleType,
        world: Callable[[int], Any],
        new_state: Callable[[int], Any],
        parts: Mapping[str, Callable[[Any, str], Any]],
    ) -> None:
        """`world`: makes the immutable content of a seed. `new_state`: makes its initial state.

        `module`: provides names for templates and tasks. `parts`: find the object of a route's `{name}`; None is 404.
        """
        self.world = world
        self.new_state = new_state
        self.names = vars(module)
        self._folder = module.__name__.rpartition(".")[2]
        self._parts = parts
        self._routes: list[tuple[str, re.Pattern[str], Handler]] = []

    def get(self, path: str) -> Callable[[Handler], Handler]:
        """Register the decorated function for GET requests to a path such as `/product/{product}`."""
        return lambda handler: self._add("GET", path, handler)

    def post(self, path: str) -> Callable[[Handler], Handler]:
        """Register the decorated function for POST requests to a path."""
        return lambda handler: self._add("POST", path, handler)

    def show(self, path: str, template: str) -> None:
        """Register a template for GET requests that needs only state and request."""
        self._add("GET", path, lambda state, request: self.page(template, state, request))

    def page(
        self, template: str, state: Any, request: SiteRequest, /, errors: Sequence[str] = (), **values: Any
    ) -> web.Response:
        """Return a page; with validation errors its status is 422."""
        given = {"state": state, "world": self.world(state.seed), "request": request, "errors": errors}
        values = {**self.names, **given, **request.parts, **values}
        return render_page(f"{self._folder}/{template}.html", 422 if errors else 200, **values)

    def answer(self, state: Any, request: SiteRequest) -> web.Response:
        """Return the response of the first matching route, or a page with status 404 or 405."""
        matches = [
            (method, match, handler)
            for method, pattern, handler in self._routes
            if (match := pattern.fullmatch(request.path))
        ]
        for method, match, handler in matches:
            if method == request.method:
                try:
                    parts = {name: self._find_part(state, name, text) for name, text in match.groupdict().items()}
                    return handler(state, replace(request, parts=parts))
                except web.HTTPNotFound:
                    return not_found_page()
        if matches:
            return message_page("That can't be done here", f"This page does not take {request.method} requests.", 405)
        return not_found_page()

    def _find_part(self, state: Any, name: str, text: str) -> Any:
        return require(self._parts[name](state, text)) if name in self._parts else text

    def _add(self, method: str, path: str, handler: Handler) -> Handler:
        self._routes.append((method, re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]*)", path)), handler))
        return handler


def require(item: T | None) -> T:
    """Return the object named in a URL. Raises `HTTPNotFound` if it does not exist."""
    if item is None:
        raise web.HTTPNotFound
    return item


def list_errors(*checks: tuple[object, str]) -> list[str]:
    """Return the messages of the failed checks."""
    return [message for holds, message in checks if not holds]


def not_found_page() -> web.Response:
    """Return the page for status 404."""
    return message_page("Page not found", "There is no such page on this site.", 404)


def message_page(title: str, message: str, status: int) -> web.Response:
    """Return a page with one message."""
    return render_page("notice.html", status, title=title, message=message)


def redirect(location: str) -> web.Response:
    """Redirect after a form submission."""
    return _respond("", 303, Location=location)


def render_page(template: str, status: int = 200, /, **values: Any) -> web.Response:
    """Return a rendered template. All values are escaped."""
    return _respond(_load_templates().get_template(template).render(values, status=status), status)


def _respond(body: str, status: int, **headers: str) -> web.Response:
    headers["Cache-Control"] = "no-store"
    return web.Response(text=body, status=status, content_type="text/html", headers=headers)


def parse_whole(text: str, least: int, most: int) -> int | None:
    """Return the integer in a text if it is within the limits, else None."""
    digits = text.strip()
    if not digits.isascii() or not digits.isdigit() or len(digits) > 9:
        return None
    number = int(digits)
    return number if least <= number <= most else None


def take_page(items: Sequence[T], request: SiteRequest, size: int) -> tuple[Sequence[T], int, int]:
    """Return the items of the requested page, its number, and the number of pages."""
    pages = max(1, -(-len(items) // size))
    number = parse_whole(request.query.get("page", "1"), 1, pages) or 1
    return items[(number - 1) * size : number * size], number, pages


@cache
def _load_templates() -> Environment:
    return Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
