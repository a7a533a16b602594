"""Consistent observations: a screenshot and the page state read with it, retaken until they match."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable
from dataclasses import replace

from webgym_cli.environments.base import RawObservation
from webgym_cli.records.trajectory import Element

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
