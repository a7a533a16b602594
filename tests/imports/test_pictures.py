"""Pictures as PNG, pixel by pixel what they were."""

import io
import struct
import zlib

import pytest
from PIL import Image

from tests.records.builders import png
from webgym_cli.imports import files
from webgym_cli.imports.files import UnreadableImage, load_png, load_size
from webgym_cli.store.screenshots import PNG_SIGNATURE


def pixels(data):
    with Image.open(io.BytesIO(data)) as image:
        return image.format, image.mode, image.size, image.tobytes()


def test_an_opaque_png_stays_as_it_is_in_any_mode(tmp_path):
    file, upright = tmp_path / "a.png", Image.Exif()
    upright[0x0112] = 1
    for mode in ("RGBA", "LA", "RGB"):
        Image.new(mode, (4, 2), "white").save(file, "PNG", exif=upright)
        assert load_png(file.read_bytes()) == load_png(file) == file.read_bytes()
        assert load_size(file) == (4, 2)
    assert load_png(png(7)) == png(7)  # without EXIF


@pytest.mark.parametrize(("kind", "mode"), [*(("PNG", mode) for mode in ("RGBA", "LA", "P")), ("WEBP", "RGBA")])
def test_what_is_transparent_is_on_white(kind, mode):
    out, nothing = io.BytesIO(), Image.new("RGBA", (4, 2))
    (nothing.quantize(2) if mode == "P" else nothing.convert(mode)).save(out, kind)
    assert pixels(load_png(out.getvalue())) == ("PNG", "RGB", (4, 2), b"\xff" * 24)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_what_a_camera_turned_is_upright(kind):
    out, turned, shown = io.BytesIO(), Image.Exif(), Image.new("L", (32, 16))
    turned[0x0112] = 8
    shown.paste(255, (0, 0, 16, 16))
    shown.convert("RGB").save(out, kind, exif=turned, quality=100)
    with Image.open(io.BytesIO(load_png(out.getvalue()))) as image:
        corners = [max(image.getpixel((8, at))) for at in (4, 28)]
        assert (image.size, corners, len(image.getexif())) == ((16, 32), [0, 255], 0)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_what_a_camera_wrote_and_is_cut_off_is_left_out(kind):
    out = io.BytesIO()
    Image.new("RGB", (4, 2)).save(out, kind, exif=b"Exif\0\0MM\0*\0")
    result = load_png(out.getvalue())
    assert pixels(result) == ("PNG", "RGB", (4, 2), bytes(24))
    assert b"eXIf" not in result


def undecodable():
    """Return a PNG whose checksums are right and whose pixels are not compressed."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 40, 32, 8, 2, 0, 0, 0)
    return PNG_SIGNATURE + chunk(b"IHDR", head) + chunk(b"IDAT", b"nope") + chunk(b"IEND", b"")


def encode(kind):
    out = io.BytesIO()
    Image.new("RGB", (40, 32)).save(out, kind)
    return out.getvalue()


@pytest.mark.parametrize(
    ("ending", "mode"), [("jpg", "RGB"), ("jpg", "L"), ("webp", "RGBA"), ("bmp", "RGB"), ("gif", "P")]
)
def test_others_keep_each_pixel(tmp_path, ending, mode):
    file = tmp_path / f"a.{ending}"
    Image.linear_gradient("L").resize((30, 20)).convert(mode).save(file)
    with Image.open(file) as image:
        expected = ("PNG", image.mode, image.size, image.tobytes())
    assert pixels(load_png(file)) == expected
    Image.new("CMYK", (4, 4), (10, 20, 30, 40)).save(tmp_path / "printed.jpg")
    assert pixels(load_png(tmp_path / "printed.jpg"))[1] == "RGB"


@pytest.mark.parametrize(
    "data",
    [b"", b"text", png()[:60], png()[:-20] + b"x" * 20, undecodable(), encode("TIFF"), encode("EPS")],
    ids=["empty", "text", "cut", "altered", "undecodable", "tiff", "eps"],
)
def test_a_broken_file_is_named(tmp_path, data):
    file = tmp_path / "a.png"
    file.write_bytes(data)
    with pytest.raises(UnreadableImage, match=r"a\.png: ") as refused:
        load_png(file)
    assert "\n" not in str(refused.value)


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    for read in (load_png, load_size):
        with pytest.raises(UnreadableImage, match=r"b\.png: not there"):
            read(tmp_path / "b.png")
        with pytest.raises(UnreadableImage, match="no regular file"):
            read(tmp_path)


def test_a_huge_picture_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_PIXELS", 100)
    file = tmp_path / "a.png"
    file.write_bytes(png())
    with pytest.raises(UnreadableImage, match="40x32 pixels"):
        load_png(file)
