"""The zoom action: an enlarged region of a page's screenshot."""

from __future__ import annotations

import asyncio
import io
from dataclasses import replace

from webgym_cli.environments.base import RawObservation
from webgym_cli.records.action import NORMALISED, Action
from webgym_cli.records.trajectory import Element

# A region on both axes from 0 to 1: left, top, right, bottom.
Region = tuple[float, float, float, float]
# Minimum region as a share of each side; smaller ones show only blurred pixels.
_SMALLEST = 0.02
# Margin around a zoomed element, in CSS pixels.
_AROUND = 20.0
_ENLARGED = (
    "This picture is the region that you asked for, enlarged; places and numbers are still those of the whole page"
)


async def zoom_into(view: RawObservation, action: Action, size: tuple[int, int]) -> tuple[RawObservation, str | None]:
    """Return the view with an enlarged region as its picture, or unchanged with the reason why there is none.

    `size`: the viewport in CSS pixels.
    """
    region = _find_region(action, view.elements, size)
    if region is None or not view.png:
        return view, "there is no such region"
    png = await asyncio.to_thread(_enlarge, view.png, region)
    return replace(view, png=png, notices=(*view.notices, _ENLARGED)), None


def _find_region(action: Action, elements: tuple[Element, ...], size: tuple[int, int]) -> Region | None:
    """Return the region of an action, given by two corners or an element; None if it has neither."""
    if action.coordinate is not None and action.to_coordinate is not None:
        corners = zip(action.coordinate, action.to_coordinate, strict=True)
        (left, right), (top, bottom) = (sorted((a / NORMALISED, b / NORMALISED)) for a, b in corners)
    else:
        box = next((element.box for element in elements if element.id == action.element_id), None)
        if box is None:
            return None
        left, top = (max(0.0, (box[at] - _AROUND) / size[at]) for at in (0, 1))
        right, bottom = (min(1.0, (box[at] + box[at + 2] + _AROUND) / size[at]) for at in (0, 1))
    left, top = min(left, 1 - _SMALLEST), min(top, 1 - _SMALLEST)
    return left, top, max(right, left + _SMALLEST), max(bottom, top + _SMALLEST)


def _enlarge(png: bytes, region: Region) -> bytes:
    """Return a region of an image, enlarged to the size of the whole with its aspect ratio."""
    from PIL import Image

    with Image.open(io.BytesIO(png)) as opened:
        whole = opened.convert("RGB")
    left, top, right, bottom = (part * whole.size[at % 2] for at, part in enumerate(region))
    part = whole.crop((int(left), int(top), max(int(left) + 1, round(right)), max(int(top) + 1, round(bottom))))
    scale = min(whole.width / part.width, whole.height / part.height)
    sides = (max(1, round(part.width * scale)), max(1, round(part.height * scale)))
    out = io.BytesIO()
    part.resize(sides, Image.Resampling.LANCZOS).save(out, "PNG")
    return out.getvalue()
