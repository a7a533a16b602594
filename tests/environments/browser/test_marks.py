"""Marks: drawn the same each time, readable, and hiding as little as they can."""

from __future__ import annotations

import io

from PIL import Image

from webgym_cli.environments.browser.observe import draw_marks
from webgym_cli.records.trajectory import Element


def blank(width: int, height: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (width, height), "white").save(out, "PNG")
    return out.getvalue()


def element(number: int, *box: float) -> Element:
    return Element(id=number, role="button", box=(box[0], box[1], box[2], box[3]))


def test_nothing_to_mark_changes_no_pixel():
    marked = Image.open(io.BytesIO(draw_marks(blank(50, 40), ())))
    assert marked.size == (50, 40)
    assert marked.getcolors() == [(50 * 40, (255, 255, 255))]


def test_same_input_gives_the_same_bytes():
    elements = tuple(element(number, 5 + 40 * (number % 3), 60 + 20 * (number // 3), 35, 15) for number in range(12))
    assert draw_marks(blank(160, 210), elements) == draw_marks(blank(160, 210), elements)


def test_a_label_stands_beside_a_small_button():
    marked = Image.open(io.BytesIO(draw_marks(blank(160, 210), (element(7, 60, 100, 40, 20),))))
    inside = marked.crop((62, 102, 98, 118))
    assert inside.getcolors() == [(inside.width * inside.height, (255, 255, 255))]
    assert len(marked.getcolors()) == 2


def test_labels_do_not_cover_each_other():
    elements = tuple(element(number, 10, 30 + 16 * number, 60, 15) for number in range(10))
    alone = [draw_marks(blank(160, 210), (one,)) for one in elements]
    together = Image.open(io.BytesIO(draw_marks(blank(160, 210), elements)))
    # Each digit keeps its white pixels: fewer of them would mean that one label lies over another.
    assert len(alone) == 10
    coloured = sum(count for count, colour in together.getcolors() if colour != (255, 255, 255))
    assert coloured > 10 * 40


def test_elements_at_and_beyond_the_edges():
    elements = (element(0, 0, 0, 160, 210), element(199, 150, 200, 40, 40), element(3, 159, 209, 3, 3))
    assert Image.open(io.BytesIO(draw_marks(blank(160, 210), elements))).size == (160, 210)


def test_a_label_hides_no_text_where_it_can_stand_elsewhere():
    page = Image.new("RGB", (160, 210), "white")
    text = (20, 60, 140, 98)  # above the button, where labels stand otherwise
    for x in range(text[0], text[2], 4):
        page.paste("black", (x, text[1], x + 2, text[3]))
    out = io.BytesIO()
    page.save(out, "PNG")
    marked = Image.open(io.BytesIO(draw_marks(out.getvalue(), (element(7, 60, 100, 40, 20),))))
    assert marked.convert("RGB").crop(text).tobytes() == page.crop(text).tobytes()
