"""Marks: drawn the same each time, readable, and hiding as little as they can."""

import io

import pytest
from PIL import Image, ImageChops, ImageDraw

from webgym_cli.environments.browser.marks import _DIGITS, draw_marks, place_labels
from webgym_cli.records.trajectory import Element


def as_png(picture: Image.Image) -> bytes:
    out = io.BytesIO()
    picture.save(out, "PNG")
    return out.getvalue()


def drawn(picture: Image.Image, *elements: Element) -> Image.Image:
    return Image.open(io.BytesIO(draw_marks(as_png(picture), elements)))


def blank(width: int, height: int) -> Image.Image:
    return Image.new("RGB", (width, height), "white")


def test_nothing_to_mark_changes_no_pixel_and_the_same_input_gives_the_same_bytes():
    marked = drawn(blank(50, 40))
    assert (marked.size, marked.getcolors()) == ((50, 40), [(50 * 40, (255, 255, 255))])
    elements = tuple(element(number, 5 + 40 * (number % 3), 60 + 20 * (number // 3), 35, 15) for number in range(12))
    page = as_png(blank(160, 210))
    assert draw_marks(page, elements) == draw_marks(page, elements)
    elements = (element(0, 0, 0, 160, 210), element(199, 150, 200, 40, 40), element(3, 159, 209, 3, 3))
    assert drawn(blank(160, 210), *elements).size == (160, 210)  # at and beyond the edges


def test_a_label_stands_within_its_box_where_that_hides_no_text():
    marked = drawn(blank(160, 210), element(7, 60, 100, 40, 20))
    assert ImageChops.invert(marked.convert("L")).getbbox() == (60, 100, 100, 120)


def element(number: int, *box: float) -> Element:
    return Element(id=number, role="button", box=(box[0], box[1], box[2], box[3]))


TEXTS = ("Meeting 0", "Meeting 10", "May 5, 2026", "Tuesday", "Help", "Il", "WWWW", "a long name", "jggy", "EEE")


@pytest.mark.parametrize("bordered", [False, True])
@pytest.mark.parametrize("text", TEXTS)
def test_a_label_hides_no_text_that_reaches_the_edge_of_its_box(text: str, bordered: bool):
    picture = Image.new("RGB", (700, 120), "white")
    draw = ImageDraw.Draw(picture)
    box = draw.textbbox((60, 50), text, font_size=15)
    draw.text((60, 50), text, "black", font_size=15)
    if bordered:
        draw.rectangle((box[0] - 2, box[1] - 2, box[2] + 1, box[3] + 1), outline="grey")
    (label,) = place_labels(picture, [element(8, box[0], box[1], box[2] - box[0], box[3] - box[1])])
    assert label is not None
    under = picture.crop((label[0], label[1], label[2] + 1, label[3] + 1)).convert("L")
    assert under.getextrema()[0] >= 120


def read_label(marked: Image.Image, label: tuple[int, int, int, int]) -> str:
    """Read a label's number back: its white pixels against the templates of digits."""
    scale = (label[3] - label[1] + 1) // 9
    text = ""
    for left in range(label[0] + scale, label[2], 6 * scale):
        pixels = [
            [marked.getpixel((left + x * scale, label[1] + (y + 1) * scale)) == (255, 255, 255) for x in range(5)]
            for y in range(7)
        ]
        rows = tuple(sum(bit << 4 - x for x, bit in enumerate(row)) for row in pixels)
        text += str(_DIGITS.index(rows)) if rows in _DIGITS else "?"
    return text


GRIDS = {
    "a palette": (160, [(8 + 14 * (n % 10), 8 + 14 * (n // 10), 14, 14) for n in range(60)]),
    "a calendar": (700, [(10 + 40 * (n % 7), 10 + 36 * (n // 7), 40, 36) for n in range(42)]),
    "a table's cells": (800, [(5.4 + 75.3 * (n % 10), 5.7 + 20.2 * (n // 10), 75.3, 20.2) for n in range(100)]),
    "buttons in clickable rows": (
        700,
        [(10, 10 + 30 * n, 600, 30) for n in range(9)] + [(580, 14 + 30 * n, 22, 22) for n in range(9)],
    ),
}


@pytest.mark.parametrize("name", GRIDS)
def test_labels_are_read_back_and_stand_in_no_other_box(name: str):
    width, boxes = GRIDS[name]
    elements = tuple(element(number, *box) for number, box in enumerate(boxes))
    labels = place_labels(blank(width, 400), elements)
    marked = drawn(blank(width, 400), *elements)
    assert [label and read_label(marked, label) for label in labels] == [str(n) for n in range(len(boxes))]
    for label, (left, top, across, down) in zip(labels, boxes, strict=True):
        assert label is not None
        assert left - 1 <= label[0] and label[2] <= left + across and top - 1 <= label[1] and label[3] <= top + down


def test_what_has_no_room_for_a_label_is_not_drawn():
    elements = tuple(element(n, 8 + 8 * (n % 10), 8 + 8 * (n // 10), 8, 8) for n in range(100))
    labels = place_labels(blank(160, 160), elements)
    assert labels[55] is None and labels[0] is not None


def test_a_label_hides_no_text_where_it_can_stand_elsewhere():
    page = blank(160, 210)
    text = (20, 60, 140, 98)  # above the button, where labels stand otherwise
    for x in range(text[0], text[2], 4):
        page.paste("black", (x, text[1], x + 2, text[3]))
    marked = drawn(page, element(7, 60, 100, 40, 20))
    assert marked.convert("RGB").crop(text).tobytes() == page.crop(text).tobytes()
