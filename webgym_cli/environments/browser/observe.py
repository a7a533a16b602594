"""Page observation: lists interactive elements."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from webgym_cli.environments.browser.frames import OBSERVE_JS, list_framed
from webgym_cli.environments.browser.inspection import find_listeners, open_closed_roots
from webgym_cli.environments.browser.session import BrowserSession
from webgym_cli.environments.browser.worlds import PAGE_JS
from webgym_cli.records.trajectory import Element, PageState

# Each asks the objects of those before it.
_LISTING = ("icons", "roles", "names", "values", "sections", "kinds", "frames", "covers", "geometry", "observe")
_ACTING = ("waits", "scrolls", "act")
_LOOK = f"""(options) => ({{
  url: {PAGE_JS}.scrolls.here(),
  title: {PAGE_JS}.names.title(),
  hosts: options.limit ? {PAGE_JS}.frames.mayHide() : false,
  listed: options.limit ? {OBSERVE_JS}.look(options) : [],
  unlisted: {OBSERVE_JS}.unlisted(),
}})"""
# Maximum number of listed elements; overlays and the elements most likely to be interactive take precedence.
MAX_ELEMENTS = 200


@dataclass(frozen=True, slots=True)
class ElementSnapshot:
    """A listed element with details that the policy does not observe."""

    element: Element
    point: tuple[float, float]
    """A point in CSS pixels where a click lands on the element and not on something that covers it."""
    detail: dict[str, str] = field(default_factory=dict)
    """Its tag, id, data attributes and typed text, when they were asked for."""


def read_script(name: str) -> str:
    """Return the source of a script of this package."""
    return (Path(__file__).parent / f"{name}.js").read_text(encoding="utf-8")


@cache
def observe_script(*, as_text: bool = False, watch_listeners: bool = False) -> str:
    """Return the script that a document needs before it can be observed and acted on.

    It runs in an isolated world, or before a page's own scripts. `as_text` also reads pages as text. `watch_listeners`
    notes listeners as they are added. It replaces a method of the page's own world, so it is for our own pages and not
    for sites that look for robots.
    """
    source = "".join(map(read_script, (*_LISTING, *_ACTING, *["html"] * as_text)))
    installed = "Object.defineProperty(window, Symbol.for('webgym'), { value: Object.freeze(webgym) });"
    script = f"(() => {{\nif ({PAGE_JS}) return;\nconst webgym = {{}};\n{source}{installed}\n}})();\n"
    return f"{script}{PAGE_JS}.kinds.watchListeners();\n" if watch_listeners else script


def parse_elements(listed: list[dict[str, Any]]) -> list[ElementSnapshot]:
    """Parse the element list of the page script."""
    return [
        ElementSnapshot(
            element=Element(**{name: fields[name] for name in Element.model_fields}),
            point=(fields["point"][0], fields["point"][1]),
            detail={key: str(value) for key, value in fields.get("detail", {}).items()},
        )
        for fields in listed
    ]


async def look_at(session: BrowserSession, limit: int) -> dict[str, Any]:
    """Return the page state beside the screenshot: `url`, `title`, `listed` elements, number of `unlisted` ones.

    Element ids stay valid for actions until the next observation. A limit of 0 lists no elements.
    """
    if limit:
        await find_listeners(session)
    options = {"limit": limit}
    view: dict[str, Any] = await session.evaluate(_LOOK, options)
    if view["hosts"]:
        await open_closed_roots(session)
        view = await session.evaluate(_LOOK, options)
    listed = view["listed"]
    listed += await list_framed(session, len(listed), limit - len(listed)) if limit else []
    return view


async def list_elements(session: BrowserSession, *, limit: int = MAX_ELEMENTS) -> list[ElementSnapshot]:
    """List the page's interactive elements, as `look_at`."""
    return parse_elements((await look_at(session, limit))["listed"])


async def measure_extent(session: BrowserSession) -> PageState:
    """Return how far the page can be scrolled, and how many controls are outside the view.

    Nothing of another document or URL than that of the last look.

    Measured once an observation, after its picture: on long pages it costs a quarter of a look.
    """
    return PageState.model_validate(await session.evaluate(f"{PAGE_JS}.scrolls.extent"))
