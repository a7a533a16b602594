"""Page observation: lists interactive elements, and retakes a screenshot until it matches what was read with it."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from webgym_cli.environments.base import RawObservation
from webgym_cli.environments.browser.frames import OBSERVE_JS, find_listeners, list_framed, open_closed_roots
from webgym_cli.environments.browser.page_connection import PAGE_JS
from webgym_cli.environments.browser.session import BrowserSession
from webgym_cli.records.trajectory import Element, PageState

# Each asks the objects of those before it.
_READING = ("roles", "texts", "names", "values", "sections")
_LISTING = (*_READING, "hovers", "kinds", "frames", "geometry", "repeats", "observe")
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
# Minimum number of screenshots of a page that keeps changing.
_TRIES = 3
# The same if `patient`: a busy machine takes few screenshots within the time limit.
_PATIENT_TRIES = 8
_BLANK_PAUSE = 0.25
# A PNG of one colour has at most 18,000 bytes a megapixel; a larger one need not be decoded.
_BYTES_A_MEGAPIXEL = 24 * 1024
# Colour difference (of 255) below which pixels count as equal.
_ALMOST = 3
# CSS pixels by which an element may move while the picture is taken.
_STILL = 3.0


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


async def take_snapshot(
    read: Callable[[], Awaitable[RawObservation]],
    draw: Callable[[], Awaitable[bytes]],
    seconds: float,
    *,
    patient: bool,
) -> tuple[RawObservation, bool]:
    """Return an observation with its screenshot, and whether the page was equal before and after the screenshot.

    A blank screenshot is retaken for up to `seconds`. That of a changing page is retaken `_TRIES` times, or, if
    `patient`, at least `_PATIENT_TRIES` times and until `seconds` have passed. For a page that is never stable only the
    elements present both before and after the screenshot are listed.
    """
    clock, tries = asyncio.get_running_loop(), 0
    end = clock.time() + seconds
    before = await read()
    while True:
        png = await draw()
        after = await read()
        if await asyncio.to_thread(is_blank, png) and clock.time() < end:
            await asyncio.sleep(_BLANK_PAUSE)
            before = await read()
            continue
        tries += 1
        if _agree(before, after):
            return replace(after, png=png), True
        if tries >= _TRIES and (not patient or (tries >= _PATIENT_TRIES and clock.time() >= end)):
            return replace(_keep_common(before, after), png=png), False
        before = after


def is_blank(png: bytes) -> bool:
    """Whether a PNG has a single colour."""
    from PIL import Image

    with Image.open(io.BytesIO(png)) as image:
        if len(png) > _BYTES_A_MEGAPIXEL * max(1.0, image.width * image.height / 1e6):
            return False
        bands = image.convert("RGB").getextrema()
    return all(isinstance(band, tuple) and band[1] - band[0] <= _ALMOST for band in bands)


def _agree(before: RawObservation, after: RawObservation) -> bool:
    """Whether two observations of a page are equal, up to tiny movements of elements."""
    if replace(before, elements=()) != replace(after, elements=()) or len(before.elements) != len(after.elements):
        return False
    return all(map(_is_still, before.elements, after.elements))


def _is_still(one: Element, other: Element) -> bool:
    sides = zip(one.box, other.box, strict=True)
    return one.model_copy(update={"box": other.box}) == other and all(abs(a - b) <= _STILL for a, b in sides)


def _keep_common(before: RawObservation, after: RawObservation) -> RawObservation:
    """Return the later observation, reduced to the elements that the earlier one has too.

    A countdown's button, or a target that moves, stays with its newest name and box.
    """
    if after.html or after.tree:  # the text has the elements' ids: it is its own snapshot
        return after
    known = set(before.nodes)
    pairs = [pair for pair in zip(after.elements, after.nodes, strict=True) if pair[1] in known]
    return replace(after, elements=tuple(pair[0] for pair in pairs), nodes=tuple(pair[1] for pair in pairs))
