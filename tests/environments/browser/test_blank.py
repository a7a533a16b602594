"""What counts as a blank picture."""

from __future__ import annotations

import io

import pytest
from PIL import Image

from webgym_cli.environments.browser.snapshot import is_blank


def png(image: Image.Image) -> bytes:
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def plain(size=(1280, 768), colour=(255, 255, 255), mode="RGB") -> Image.Image:
    return Image.new(mode, size, colour)


@pytest.mark.parametrize("colour", [(255, 255, 255), (0, 0, 0), (17, 120, 200)])
def test_one_colour_is_blank(colour):
    assert is_blank(png(plain(colour=colour)))


@pytest.mark.parametrize(("difference", "blank"), [(3, True), (4, False)])
def test_a_shade_that_nobody_sees_is_blank(difference, blank):
    image = plain(colour=(200, 200, 200))
    image.putpixel((5, 5), (200, 200 + difference, 200))
    assert is_blank(png(image)) is blank


def test_one_pixel_is_something():
    image = plain()
    image.putpixel((640, 384), (0, 0, 0))
    assert not is_blank(png(image))


def test_transparency_is_no_content():
    assert is_blank(png(plain(mode="RGBA", colour=(9, 9, 9, 128))))
    assert is_blank(png(plain(mode="L", colour=7)))


def test_a_large_file_is_not_decoded(monkeypatch):
    noisy = Image.effect_noise((1280, 768), 80)
    data = png(noisy)
    monkeypatch.setattr(Image.Image, "convert", None)
    assert not is_blank(data)
