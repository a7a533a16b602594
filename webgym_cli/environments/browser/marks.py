"""Set-of-marks labels: a numbered box around each element of a screenshot."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from webgym_cli.records.trajectory import Element

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

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
# From this many CSS pixels on, labels are drawn twice as large, unless their box is small.
_WIDE = 640
# Maximum share of a box that a large label covers; a larger share takes a small label.
_SHARE = 0.25
_PNG_LEVEL = 6
# From this contrast on a pixel is the edge of a letter or a line, which is marked so.
_EDGE, _INK = 48, 255
# Distance below which two labels need different colours.
_NEAR = 3
# Distance of a label beside a box whose text reaches its edge.
_GAP = 2
_Rect = tuple[int, int, int, int]


def draw_marks(png: bytes, elements: tuple[Element, ...]) -> bytes:
    """Return the picture with a numbered box around each element. The same input gives the same bytes.

    An element without room for a legible label is not drawn.
    """
    from PIL import Image as Images
    from PIL import ImageDraw as Drawing

    with Images.open(io.BytesIO(png)) as opened:
        picture = opened.convert("RGB")
    draw, drawn = Drawing.Draw(picture), list[tuple[str, _Rect, tuple[int, int, int]]]()
    for element, label in zip(elements, place_labels(picture, elements), strict=True):
        if label is None:
            continue
        near = {colour for _, other, colour in drawn if _overlap(_grow(other, _NEAR), label)}
        first = element.id % len(_COLOURS)
        colours = (*_COLOURS[first:], *_COLOURS[:first])
        colour = next((one for one in colours if one not in near), colours[0])
        drawn.append((str(element.id), label, colour))
        draw.rectangle(_pixels(element.box, picture.size), outline=colour, width=1)
    for text, label, colour in drawn:
        _write(draw, label, text, colour)
    out = io.BytesIO()
    picture.save(out, "PNG", compress_level=_PNG_LEVEL)
    return out.getvalue()


def place_labels(picture: Image, elements: Sequence[Element]) -> list[_Rect | None]:
    """Return where the elements' labels go; None for an element without room.

    A label lies within its own box where that hides no text, else beside it, and never over another label, or in the
    box of an element that does not contain its own.
    """
    from PIL import ImageFilter as Filters

    ink = picture.convert("L").filter(Filters.FIND_EDGES).point([0] * _EDGE + [_INK] * (256 - _EDGE))
    boxes = [_pixels(element.box, picture.size) for element in elements]
    labels: list[_Rect | None] = []
    for element, box in zip(elements, boxes, strict=True):
        text, scales = str(element.id), (2, 1) if picture.width >= _WIDE else (1,)
        around = _grow(box, max(_size(text, scales[0])) + _GAP + 1)
        taken = [_grow(other, -1) for other in boxes if _overlap(other, around) and not _contains(other, box)]
        taken += [label for label in labels if label is not None and _overlap(label, around)]
        labels.append(_place(ink, box, text, scales, taken))
    return labels


def _size(text: str, scale: int) -> tuple[int, int]:
    return (6 * len(text) + 1) * scale, 9 * scale


def _place(ink: Image, box: _Rect, text: str, scales: Sequence[int], taken: Sequence[_Rect]) -> _Rect | None:
    """Return the first place that hides nothing, else the one in the box that hides least; None if there is no room."""
    x0, y0, x1, y1 = box
    crowded: list[tuple[int, _Rect]] = []
    for scale in scales:
        width, height = _size(text, scale)
        if scale > 1 and width * height > _SHARE * (x1 - x0 + 1) * (y1 - y0 + 1):
            continue
        for label in _candidates(box, width, height):
            if label[0] < 0 or label[1] < 0 or label[2] >= ink.width or label[3] >= ink.height:
                continue
            if any(_overlap(label, other) for other in taken):
                continue
            hidden = _count_ink(ink, label)
            if not hidden:
                return label
            if _contains(box, label):
                crowded.append((hidden, label))
    return min(crowded)[1] if crowded else None


def _candidates(box: _Rect, width: int, height: int) -> Iterator[_Rect]:
    """Yield the places of a label: the corners and side centres within the box, then beside it."""
    x0, y0, x1, y1 = box
    left, top, right, bottom = x0, y0, x1 - width + 1, y1 - height + 1
    middle, centre = (y0 + bottom) // 2, (x0 + right) // 2
    places = []
    for gap in (0, _GAP):
        above, below, before, after = y0 - height - gap, y1 + 1 + gap, x0 - width - gap, x1 + 1 + gap
        places += [(left, above), (right, above), (after, top), (before, top)]
        places += [(left, below), (right, below), (after, middle), (before, middle)]
    if right >= left and bottom >= top:
        within = [(left, top), (right, top), (left, bottom), (right, bottom)]
        places = [*within, (left, middle), (right, middle), (centre, top), (centre, bottom), *places]
    for x, y in places:
        yield x, y, x + width - 1, y + height - 1


def _count_ink(ink: Image, area: _Rect) -> int:
    """Return the number of pixels of letters in an area. A line across it is a border, which a label may cover."""
    crop = ink.crop((area[0], area[1], area[2] + 1, area[3] + 1))
    data, width = crop.tobytes(), crop.width
    rows = [data[start : start + width] for start in range(0, len(data), width)]
    crossed = [row for row in rows if row.count(_INK) < width]
    counts = [column.count(_INK) for column in zip(*crossed, strict=True)]
    return sum(count for count in counts if count < len(crossed))


def _overlap(one: _Rect, other: _Rect) -> bool:
    return one[0] <= other[2] and other[0] <= one[2] and one[1] <= other[3] and other[1] <= one[3]


def _contains(outer: _Rect, inner: _Rect) -> bool:
    return outer[0] <= inner[0] and outer[1] <= inner[1] and inner[2] <= outer[2] and inner[3] <= outer[3]


def _grow(rect: _Rect, by: int) -> _Rect:
    return rect[0] - by, rect[1] - by, rect[2] + by, rect[3] + by


def _pixels(box: tuple[float, float, float, float], size: tuple[int, int]) -> _Rect:
    """Return the pixels of a box. Boxes that only touch have none in common."""
    left, top, width, height = box
    x0, y0 = min(max(0, int(left + 0.5)), size[0] - 1), min(max(0, int(top + 0.5)), size[1] - 1)
    x1, y1 = int(left + width + 0.5) - 1, int(top + height + 0.5) - 1
    return x0, y0, max(x0, min(size[0] - 1, x1)), max(y0, min(size[1] - 1, y1))


def _write(draw: ImageDraw, label: _Rect, text: str, colour: tuple[int, int, int]) -> None:
    draw.rectangle(label, fill=colour)
    scale = (label[3] - label[1] + 1) // 9
    for index, digit in enumerate(text):
        left, top = label[0] + (6 * index + 1) * scale, label[1] + scale
        for row, bits in enumerate(_DIGITS[int(digit)]):
            for column in range(5):
                if bits >> (4 - column) & 1:
                    x, y = left + column * scale, top + row * scale
                    draw.rectangle((x, y, x + scale - 1, y + scale - 1), fill="white")
