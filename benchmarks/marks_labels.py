"""How legible the labels of a marked screenshot are: what they cover, and whether they can be read back."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Sequence
from typing import Any

from PIL import Image as Images
from PIL.Image import Image

from webgym_cli.environments.browser.marks import _DIGITS, draw_marks, place_labels
from webgym_cli.environments.browser.session import BrowserSession
from webgym_cli.records.trajectory import Element

Rect = tuple[float, float, float, float]
# Boxes of the visible lines of text: left, top, right, bottom.
_TEXTS = """() => {
  const lines = [], range = document.createRange();
  const read = (root) => {
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT);
    for (let node = walker.currentNode; node; node = walker.nextNode()) {
      if (node.shadowRoot) read(node.shadowRoot);
      if (node.nodeType !== Node.TEXT_NODE || !node.data.trim() || !node.parentElement?.checkVisibility()) continue;
      range.selectNodeContents(node);
      for (const box of range.getClientRects()) lines.push([box.left, box.top, box.right, box.bottom]);
    }
  };
  read(document.body);
  return lines;
}"""
# A box may reach this many pixels into a label: both are rounded to whole pixels.
_SLACK = 1.5
# Minimum brightness of a digit's pixel, contrast of a text's ink, and number of its pixels that a label hides.
_BRIGHT, _CONTRAST, _HIDDEN = 250, 90, 6


async def count_labels(session: BrowserSession, elements: Sequence[Element]) -> Counter[str]:
    """Return how many labels are drawn, cover another label or element, hide text, and can't be read."""
    png = await session.screenshot()
    texts: list[Rect] = await session.page.evaluate(_TEXTS)
    with Images.open(io.BytesIO(png)) as plain, Images.open(io.BytesIO(draw_marks(png, tuple(elements)))) as marked:
        bare, drawn = plain.convert("RGB"), marked.convert("L")
    labels = {one.id: label for one, label in zip(elements, place_labels(bare, elements), strict=True) if label}
    boxes = {one.id: (one.box[0], one.box[1], one.box[0] + one.box[2], one.box[1] + one.box[3]) for one in elements}
    counts = Counter(labels=len(labels), undrawn=len(elements) - len(labels))
    for number, (left, top, right, bottom) in labels.items():
        label = (left, top, right + 1, bottom + 1)
        others = (one for other, one in labels.items() if other != number)
        over_label = any(_meet(label, (x0, y0, x1 + 1, y1 + 1), 0) for x0, y0, x1, y1 in others)
        over_box = any(
            _meet(label, box, _SLACK) and not _meet_whole(box, boxes[number])
            for other, box in boxes.items()
            if other != number
        )
        ink = sum(_count_ink(bare, label, text) for text in texts if _meet(label, text, _SLACK))
        counts["covering"] += over_label or over_box
        counts["hiding"] += ink >= _HIDDEN
        counts["unread"] += _read(drawn, label) != str(number)
    return counts


def _meet(one: Rect, other: Rect, slack: float) -> bool:
    across, down = min(one[2], other[2]) - max(one[0], other[0]), min(one[3], other[3]) - max(one[1], other[1])
    return across > slack and down > slack


def _meet_whole(outer: Rect, inner: Rect) -> bool:
    grown = outer[0] - _SLACK, outer[1] - _SLACK, outer[2] + _SLACK, outer[3] + _SLACK
    return grown[0] <= inner[0] and grown[1] <= inner[1] and inner[2] <= grown[2] and inner[3] <= grown[3]


def _count_ink(picture: Image, label: Rect, text: Rect) -> int:
    """Return how many pixels of a text, as it was before, lie under a label."""
    area = max(label[0], text[0]), max(label[1], text[1]), min(label[2], text[2]), min(label[3], text[3])
    crop = picture.crop(tuple(map(round, area))).convert("L")
    if not crop.width or not crop.height:
        return 0
    histogram: Any = crop.histogram()
    ground = histogram.index(max(histogram))
    return sum(count for level, count in enumerate(histogram) if abs(level - ground) > _CONTRAST)


def _read(picture: Image, label: tuple[int, int, int, int]) -> str:
    """Read a label's number from the picture by the nearest templates of its digits."""
    crop = picture.crop((label[0], label[1], label[2] + 1, label[3] + 1))
    scale = crop.height // 9
    digits = ""
    for left in range(scale, crop.width - 5 * scale, 6 * scale):
        rows = [
            sum(
                (crop.getpixel((left + column * scale, (row + 1) * scale)) >= _BRIGHT) << (4 - column)
                for column in range(5)
            )
            for row in range(7)
        ]
        distances = [sum((a ^ b).bit_count() for a, b in zip(rows, digit, strict=True)) for digit in _DIGITS]
        digits += str(distances.index(min(distances))) if min(distances) < 3 else "?"
    return digits
