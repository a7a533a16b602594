"""One moment of a page: its picture and what is read beside it belong together, or both are taken again."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable
from dataclasses import replace

from webgym_cli.environments.base import RawObservation
from webgym_cli.records.trajectory import Element

# So many pictures are taken at least of a page that never stands still.
_TRIES = 3
# And so many by the patient: a busy machine takes few within the seconds.
_PATIENT_TRIES = 8
_BLANK_PAUSE = 0.25
# A PNG of one colour is far smaller than this; a larger one need not be decoded.
_BYTES_A_MEGAPIXEL = 16 * 1024
# Difference of colour, of 255, that still counts as the same.
_ALMOST = 3
# CSS pixels by which an element may move while the picture is taken.
_STILL = 3.0


async def take_moment(
    read: Callable[[], Awaitable[RawObservation]],
    draw: Callable[[], Awaitable[bytes]],
    seconds: float,
    *,
    patient: bool,
) -> tuple[RawObservation, bool]:
    """Return a page with its picture, and whether it stood still: what is read before the picture is read after it.

    A blank picture is taken again for so many seconds, then it is what there is to see; that of a page that changes for
    as long, unless not `patient`. Of a page that never stands still only the elements that stay are listed: those are
    in the picture.
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
    """Tell whether a PNG has one colour only."""
    from PIL import Image

    with Image.open(io.BytesIO(png)) as image:
        if len(png) > _BYTES_A_MEGAPIXEL * max(1.0, image.width * image.height / 1e6):
            return False
        bands = image.convert("RGB").getextrema()
    return all(isinstance(band, tuple) and band[1] - band[0] <= _ALMOST for band in bands)


def _agree(before: RawObservation, after: RawObservation) -> bool:
    """Whether a page was the same twice, but for the smallest of movements."""
    if replace(before, elements=()) != replace(after, elements=()) or len(before.elements) != len(after.elements):
        return False
    pairs = zip(before.elements, after.elements, strict=True)
    return all(_describe(one) == _describe(other) and _shift(one, other) <= _STILL for one, other in pairs)


def _keep_common(before: RawObservation, after: RawObservation) -> RawObservation:
    """Return the later snapshot with those of its elements that were there before, about where they are now."""
    if after.html:  # the text has the elements' ids: it is its own moment
        return after
    known: dict[tuple[str, str, str], list[Element]] = {}
    for element in before.elements:
        known.setdefault(_describe(element), []).append(element)
    kept = (
        element
        for element in after.elements
        if any(_shift(element, other) < min(element.box[2:]) / 2 for other in known.get(_describe(element), ()))
    )
    return replace(after, elements=tuple(kept))


def _describe(element: Element) -> tuple[str, str, str]:
    return element.role, element.name, element.value


def _shift(one: Element, other: Element) -> float:
    """Return by how much the sides of two boxes differ at most."""
    return max(abs(a - b) for a, b in zip(one.box, other.box, strict=True))
