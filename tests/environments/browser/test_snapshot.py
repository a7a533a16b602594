"""Consistent observations: a screenshot and an element list that do not agree are taken again."""

import io
from dataclasses import replace

import pytest
from PIL import Image

from tests.records.builders import png
from webgym_cli.environments.base import RawObservation
from webgym_cli.environments.browser import observe as module
from webgym_cli.environments.browser.observe import _TRIES as TRIES
from webgym_cli.environments.browser.observe import is_blank, take_snapshot
from webgym_cli.records.trajectory import Element

DRAWN = png(1) + b"\0" * 30_000  # too large for a blank picture
BLANK = png(1)


def shows(*names: str, left: float = 0.0, title: str = "t") -> RawObservation:
    boxes = [(left, 20.0 * at, 50.0, 18.0) for at in range(len(names))]
    listed = (Element(id=at, role="button", name=name, box=boxes[at]) for at, name in enumerate(names))
    nodes = tuple(name.split()[0] for name in names)
    return RawObservation("http://a/", title, elements=tuple(listed), nodes=nodes)


class Page:
    """Shows one state after the other; the last one stays."""

    def __init__(self, states, pictures=(DRAWN,)):
        self.states, self.pictures = list(states), list(pictures)
        self.drawn = 0

    async def read(self):
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    async def draw(self):
        self.drawn += 1
        return self.pictures.pop(0) if len(self.pictures) > 1 else self.pictures[0]

    async def take(self, seconds=1.0, *, patient=True):
        view, is_stable = await take_snapshot(self.read, self.draw, seconds, patient=patient)
        assert view.png == self.pictures[0]
        return replace(view, png=b""), is_stable


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch):
    monkeypatch.setattr(module, "_BLANK_PAUSE", 0.0)


TAKEN = {
    "a page that stands still is drawn once": ([shows("a", "b")], [DRAWN], 1.0, 1),
    **{
        f"what changed while it was drawn is drawn again: {name}": ([early, shows("a", "b")], [DRAWN], 1.0, 2)
        for name, early in (
            ("empty", shows()),
            ("less", shows("a")),
            ("other", shows("a", "c")),
            ("title", shows("a", "b", title="loading")),
        )
    },
    "a page that fills while it is blank is read again": ([shows(), shows(), shows("a")], [BLANK, DRAWN], 1.0, None),
    "a page that stays blank is what there is": ([shows()], [BLANK], 0.0, None),
    "a movement that nobody sees is none": ([shows("a"), shows("a", left=2.0)], [DRAWN], 1.0, 1),
    "a page that changes for a while is waited for": ([shows(str(n)) for n in range(20)], [DRAWN], 10.0, None),
}


@pytest.mark.parametrize(("states", "pictures", "seconds", "drawn"), TAKEN.values(), ids=TAKEN)
async def test_what_is_taken_of_a_page(states, pictures, seconds, drawn):
    page = Page(states, pictures)
    assert await page.take(seconds) == (states[-1], True)
    assert drawn in (None, page.drawn)


async def test_of_a_page_that_never_stands_still_what_stays_is_listed():
    page = Page([shows("stays", f"{number}", f"tick {number}", left=40.0 * number) for number in range(99)])
    view, is_stable = await page.take(patient=False)
    assert not is_stable
    newest = f"tick {page.drawn}"  # by its newest name and place
    assert [(one.id, one.name) for one in view.elements] == [(0, "stays"), (2, newest)]
    assert view.elements[0].box[0] == 40.0 * page.drawn
    assert page.drawn == TRIES


# --- what counts as a blank picture


def write_png(image: Image.Image) -> bytes:
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def plain(size=(1280, 768), colour=(255, 255, 255), mode="RGB") -> Image.Image:
    return Image.new(mode, size, colour)


def with_pixel(colour, pixel) -> Image.Image:
    image = plain(colour=colour)
    image.putpixel((640, 384), pixel)
    return image


@pytest.mark.parametrize(
    ("image", "blank"),
    [
        *((plain(colour=colour), True) for colour in ((255, 255, 255), (0, 0, 0), (17, 120, 200))),
        (plain(mode="RGBA", colour=(9, 9, 9, 128)), True),  # transparency is no content
        (plain(mode="L", colour=7), True),
        (with_pixel((200, 200, 200), (200, 203, 200)), True),  # a shade that nobody sees
        (with_pixel((200, 200, 200), (200, 204, 200)), False),
        (with_pixel((255, 255, 255), (0, 0, 0)), False),
    ],
)
def test_a_picture_of_one_colour_is_blank(image, blank):
    assert is_blank(write_png(image)) is blank


def test_a_large_file_is_not_decoded(monkeypatch):
    data = write_png(Image.effect_noise((1280, 768), 80))
    monkeypatch.setattr(Image.Image, "convert", None)
    assert not is_blank(data)
