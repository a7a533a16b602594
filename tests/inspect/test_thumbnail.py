"""Small images of screenshots."""

import io

import pytest
from PIL import Image

from tests.records.builders import png
from webgym_cli.errors import StoreError
from webgym_cli.inspect.viewer import LARGEST, make_thumbnail


@pytest.mark.parametrize(
    ("size", "small"), [((1280, 800), (320, 200)), ((40, 32), (40, 32)), ((40, 6400), (2, LARGEST))]
)
def test_an_image_is_made_small_and_never_larger(size, small):
    with Image.open(io.BytesIO(make_thumbnail(png(3, *size)))) as image:
        assert (image.format, image.size) == ("WEBP", small)


@pytest.mark.parametrize("content", [b"", b"no image", png(1, 400, 400)[:60]], ids=["empty", "text", "torn"])
def test_what_is_no_image_is_said_to_be_none(content):
    with pytest.raises(StoreError, match="the screenshot is no image"):
        make_thumbnail(content)
