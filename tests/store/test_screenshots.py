"""The image store: what is put comes back, as it was or as a WebP of the same pixels, or is refused by name."""

import hashlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.records.builders import png
from tests.store.disk import disk_full_at
from webgym_cli.errors import StoreError
from webgym_cli.store.screenshots import LEDGER, Recoded, ScreenshotStore, data_url_type
from webgym_cli.util.files import write_atomic

WEBP = b"RIFF....WEBPVP8L: any bytes will do"


@pytest.fixture
def store(tmp_path):
    return ScreenshotStore(tmp_path / "screenshots")


def recode(store, kept, content=WEBP, recoded=WEBP):
    """Put a WebP in the place of a PNG, as earlier versions did: file, ledger, and the PNG goes."""
    sha256 = kept.sha256
    write_atomic(store.webp(sha256), content)
    names = {"sha256": sha256, "recoded_sha256": hashlib.sha256(recoded).hexdigest()}
    line = Recoded(**names, bytes_before=100, bytes_after=len(content))
    store.note_recoded(sha256[:2], [line])
    store.png(sha256).unlink(missing_ok=True)
    return line


def test_an_image_comes_back_and_is_stored_once(store):
    first, again = store.put(png(1)), store.put(png(1))
    assert (first, first.width, first.height) == (again, 40, 32)
    assert store.get(first.sha256) == png(1)
    assert [path for path in store.root.rglob("*") if path.is_file()] == [store.path(first.sha256)]
    assert store.path(first.sha256) == store.root / first.sha256[:2] / f"{first.sha256}.png"
    assert data_url_type(store.get(first.sha256)) == "image/png"
    os.utime(store.path(first.sha256), (0, 0))
    store.put(png(1))  # what is put again is young again
    assert store.path(first.sha256).stat().st_mtime > 0


def test_what_is_missing_is_named_and_what_is_no_png_refused(store):
    with pytest.raises(StoreError, match=r"00/0{64}\.png: the screenshot can't be read: No such file"):
        store.get("0" * 64)
    for content in (b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff" + b"0" * 50):
        with pytest.raises(ValueError, match="not a PNG"):
            store.put(content)
    assert not store.root.exists()


def test_an_image_and_its_folder_are_durable_when_put_returns(store, monkeypatch):
    synced, real = [], os.fsync

    def fsync(handle):
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    folder = store.path(store.put(png(1)).sha256).parent
    *texts, image, last = synced
    assert texts == [str(store.root.parent), str(store.root)]
    assert image.startswith(f"{folder}/.") and last == str(folder)


def test_a_full_disk_leaves_no_image_and_no_rest(store):
    with disk_full_at(20), pytest.raises(StoreError, match="can't be written"):
        store.put(png(1))
    assert [path for path in store.root.rglob("*") if path.is_file()] == []


def test_a_webp_stands_in_for_its_png(store):
    kept = store.put(png(1))
    store.webp(kept.sha256).write_bytes(b"half of a WebP")
    assert store.path(kept.sha256) == store.png(kept.sha256)  # it counts while it is there
    assert store.get(kept.sha256) == png(1)
    line = recode(store, kept)
    assert store.path(kept.sha256) == store.webp(kept.sha256)
    assert store.get(kept.sha256) == WEBP
    assert data_url_type(store.get(kept.sha256)) == "image/webp"
    assert store.find_recoded(kept.sha256) == line
    assert store.put(png(1)) == kept
    assert not store.png(kept.sha256).exists()


def test_a_reader_that_began_before_sees_the_ledger_grow(store):
    first, second = store.put(png(1)), store.put(png(2))
    reader = ScreenshotStore(store.root)
    assert reader.get(first.sha256) == png(1)
    recode(store, first)
    assert reader.get(first.sha256) == WEBP
    assert reader.get(second.sha256) == png(2)
    recode(store, second)
    assert reader.get(second.sha256) == WEBP


@pytest.mark.parametrize("harm", ["png", "webp", "ledger"])
def test_an_altered_image_is_not_given_out(store, harm):
    kept = store.put(png(1))
    if harm == "png":
        store.path(kept.sha256).write_bytes(png(2))
    else:
        recode(store, kept, content=WEBP + b"x" if harm == "webp" else WEBP)
    if harm == "ledger":
        (store.root / kept.sha256[:2] / LEDGER).unlink()
    with pytest.raises(StoreError, match=r"\.png: .*altered" if harm == "png" else r"\.webp: .*altered"):
        store.get(kept.sha256)


def test_the_newest_line_that_can_be_read_counts(store):
    kept = store.put(png(1))
    older = recode(store, kept, content=b"older", recoded=b"older")
    newer = recode(store, kept)
    assert store.find_recoded(kept.sha256) == newer != older
    with (store.root / kept.sha256[:2] / LEDGER).open("ab") as file:
        file.write(newer.model_dump_json().encode()[:100])
    assert store.find_recoded(kept.sha256) == newer
    assert store.get(kept.sha256) == WEBP


def test_an_image_that_changes_its_form_is_always_there(store):
    kept = store.put(png(1))
    done = threading.Event()

    def read():
        seen = set()
        while not done.is_set():
            seen.add(store.get(kept.sha256))
        return seen

    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(read)
        try:
            for _ in range(50):
                recode(store, kept)
                write_atomic(store.png(kept.sha256), png(1))
        finally:
            done.set()
        assert reader.result() <= {png(1), WEBP}


def test_folders_and_their_images_are_listed(store):
    kept = [store.put(png(shade)).sha256 for shade in range(5)]
    (store.root / "notes").mkdir()
    (store.root / kept[0][:2] / "notes.png").write_bytes(b"")
    (store.root / kept[0][:2] / f".{kept[0]}.png.abcdefgh").write_bytes(b"")
    assert store.folders() == sorted({sha256[:2] for sha256 in kept})
    assert sorted(sha256 for folder in store.folders() for sha256, _ in store.images(folder)) == sorted(kept)
    assert ScreenshotStore(store.root / "nothing").folders() == []
