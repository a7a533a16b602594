"""Page observation: lists interactive elements and draws set-of-marks labels on the screenshot."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from webgym_cli.environments.browser.closed_roots import open_closed_roots
from webgym_cli.environments.browser.frames import OBSERVE_JS, PAGE_JS, list_framed
from webgym_cli.environments.browser.session import BrowserSession
from webgym_cli.records.trajectory import Element

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

# JavaScript expression with which scripts find an element's listeners; the last argument of `look()`.
LISTENERS_JS = "typeof getEventListeners === 'function' ? getEventListeners : null"
# Each asks the objects of those before it.
_SCRIPTS = ("names", "kinds", "geometry", "observe", "act", "html")
_LOOK = f"""(options) => ({{
  url: location.href,
  title: {PAGE_JS}.names.title(),
  hosts: options.limit ? {PAGE_JS}.names.mayHide() : false,
  listed: options.limit ? {OBSERVE_JS}.look(options, {LISTENERS_JS}) : [],
  unlisted: {OBSERVE_JS}.unlisted(),
  opaque: options.limit ? {OBSERVE_JS}.opaque() : [],
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


@cache
def observe_script(*, as_text: bool = False, watch_listeners: bool = False) -> str:
    """Return the init script that every document needs before it can be observed and acted on.

    `as_text` also reads pages as text. `watch_listeners` also lists elements that are clickable only because of a
    listener. It replaces a method that pages can inspect, so it is for our own pages and not for sites that look for
    robots.
    """
    names = _SCRIPTS if as_text else _SCRIPTS[:-1]
    source = "".join((Path(__file__).parent / f"{name}.js").read_text(encoding="utf-8") for name in names)
    installed = "Object.defineProperty(window, Symbol.for('webgym'), { value: Object.freeze(webgym) });"
    script = f"(() => {{\nif ({PAGE_JS}) return;\nconst webgym = {{}};\n{source}{installed}\n}})();\n"
    return f"{script}{OBSERVE_JS}.watchListeners();\n" if watch_listeners else script


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
    view: dict[str, Any] = await session.evaluate(_LOOK, {"limit": limit})
    if view["hosts"]:
        await open_closed_roots(session)
        view = await session.evaluate(_LOOK, {"limit": limit})
    listed = view["listed"]
    listed += await list_framed(session, view["opaque"], len(listed), limit - len(listed))
    return view


async def list_elements(session: BrowserSession, *, limit: int = MAX_ELEMENTS) -> list[ElementSnapshot]:
    """List the page's interactive elements, as `look_at`."""
    return parse_elements((await look_at(session, limit))["listed"])


# Digits of 5x7 pixels, a number a row, its highest bit on the left: the same picture on every machine.
_DIGITS = (
    (14, 17, 19, 21, 25, 17, 14),
    (4, 12, 4, 4, 4, 4, 14),
    (14, 17, 1, 2, 4, 8, 31),
    (31, 2, 4, 2, 1, 17, 14),
    (2, 6, 10, 18, 31, 2, 2),
    (31, 16, 30, 1, 1, 17, 14),
    (6, 8, 16, 30, 17, 17, 14),
    (31, 1, 2, 4, 8, 8, 8),
    (14, 17, 17, 14, 17, 17, 14),
    (14, 17, 17, 15, 1, 2, 12),
)
_COLOURS = ((200, 0, 0), (0, 90, 200), (0, 120, 40), (150, 0, 160), (190, 80, 0), (0, 110, 120))
# From this many CSS pixels on, labels are drawn twice as large.
_WIDE = 640
_PNG_LEVEL = 6
# Values of the plan's pixels.
_BOX, _LABEL = 1, 2
# From this contrast on a pixel is the edge of a letter or a line, which is marked so.
_EDGE, _INK = 48, 255
_Rect = tuple[int, int, int, int]


def draw_marks(png: bytes, elements: tuple[Element, ...]) -> bytes:
    """Return the picture with a numbered box around each element. The same input gives the same bytes.

    A label stands beside its box where there is room and no text, else in the corner that hides least.
    """
    from PIL import Image as Images
    from PIL import ImageDraw as Drawing
    from PIL import ImageFilter as Filters

    with Images.open(io.BytesIO(png)) as opened:
        picture = opened.convert("RGB")
    plan = Images.new("L", picture.size, 0)
    ink = picture.convert("L").filter(Filters.FIND_EDGES).point([0] * _EDGE + [_INK] * (256 - _EDGE))
    boxes = [_pixels(element.box, picture.size) for element in elements]
    draw, sketch = Drawing.Draw(picture), Drawing.Draw(plan)
    for box in boxes:
        sketch.rectangle(box, fill=_BOX)
    size = 2 if picture.width >= _WIDE else 1
    for element, box in zip(elements, boxes, strict=True):
        colour = _COLOURS[element.id % len(_COLOURS)]
        draw.rectangle(box, outline=colour, width=1)
        label = _place(plan, ink, box, str(element.id), size)
        sketch.rectangle(label, fill=_LABEL)
        _write(draw, label, str(element.id), size, colour)
    out = io.BytesIO()
    picture.save(out, "PNG", compress_level=_PNG_LEVEL)
    return out.getvalue()


def _pixels(box: tuple[float, float, float, float], size: tuple[int, int]) -> _Rect:
    left, top, width, height = box
    x0, y0 = min(max(0, int(left)), size[0] - 1), min(max(0, int(top)), size[1] - 1)
    return x0, y0, max(x0, min(size[0] - 1, int(left + width))), max(y0, min(size[1] - 1, int(top + height)))


def _place(plan: Image, ink: Image, box: _Rect, text: str, size: int) -> _Rect:
    """Return where the label goes: the first of the candidates that hides least."""
    width, height = (6 * len(text) + 1) * size, 9 * size
    x0, y0, x1, y1 = box
    corners = (
        (x0, y0 - height),
        (x1 - width + 1, y0 - height),
        (x1 + 1, y0),
        (x0 - width, y0),
        (x0, y1 + 1),
        (x1 - width + 1, y1 + 1),
        (x1 - width // 2, y0 - height // 2),
        (x1 - width + 1, y0),
        (x0, y0),
    )
    best, least = (0, 0, width - 1, height - 1), float("inf")
    for x, y in corners:
        left, top = min(max(0, x), plan.width - width), min(max(0, y), plan.height - height)
        area = (max(0, left), max(0, top), left + width, top + height)
        histogram = plan.crop(area).histogram()
        cost = histogram[_BOX] + 8 * histogram[_LABEL] + 6 * ink.crop(area).histogram()[_INK]
        if cost < least:
            best, least = (area[0], area[1], area[2] - 1, area[3] - 1), cost
        if least == 0:
            break
    return best


def _write(draw: ImageDraw, label: _Rect, text: str, size: int, colour: tuple[int, int, int]) -> None:
    draw.rectangle(label, fill=colour)
    for index, digit in enumerate(text):
        left, top = label[0] + (6 * index + 1) * size, label[1] + size
        for row, bits in enumerate(_DIGITS[int(digit)]):
            for column in range(5):
                if bits >> (4 - column) & 1:
                    x, y = left + column * size, top + row * size
                    draw.rectangle((x, y, x + size - 1, y + size - 1), fill="white")
