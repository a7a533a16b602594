"""Re-encoding loses no pixel, and nothing at all wherever it is stopped."""

from __future__ import annotations

import io
import json
from random import Random

import pytest
from PIL import Image
from typer.testing import CliRunner

from tests.app import app
from tests.records.made import png, trajectory
from webgym_cli.agent.client.chat_request import EncodedImages
from webgym_cli.config.load import load
from webgym_cli.errors import StoreError
from webgym_cli.inspect import recode
from webgym_cli.inspect.recode import encode, execute, plan_recoding
from webgym_cli.inspect.verify import verify
from webgym_cli.records.trajectory import Observation
from webgym_cli.rewards.judge.client import JudgeContext
from webgym_cli.store.buffer import append
from webgym_cli.store.run import RunDir, create_or_open
from webgym_cli.store.screenshots import ScreenshotStore
from webgym_cli.util.files import write_json

COUNT = 6


def picture(number, size=(160, 100), mode="RGB"):
    """Return a PNG of noise over a gradient, so that a WebP is smaller and every pixel counts."""
    noise = Image.frombytes("L", size, bytes(value & 63 for value in Random(number).randbytes(size[0] * size[1])))
    made = Image.merge("RGB", (noise, Image.linear_gradient("L").resize(size), noise.rotate(180)))
    if mode == "RGBA":
        made.putalpha(noise.rotate(90))
    elif mode == "LA":
        made = noise.convert("LA")
    elif mode == "I;16":
        made = noise.convert("I").point(lambda value: value * 200).convert("I;16")
    else:
        made = made.convert(mode)
    content = io.BytesIO()
    made.save(content, "PNG")
    return content.getvalue()


def pixels(content):
    with Image.open(io.BytesIO(content)) as image:
        return image.convert("RGBA").tobytes()


@pytest.fixture
def run(tmp_path):
    made = RunDir(tmp_path / "run")
    create_or_open(made, load())
    return made


@pytest.fixture
def taken(run):
    """The screenshots of a trajectory, by their names."""
    store, found = ScreenshotStore(run.screenshots), {}
    steps = []
    for number, step in enumerate(trajectory(steps=COUNT).steps):
        content = picture(number)
        kept = store.put(content)
        found[kept.sha256] = content
        steps.append(step.model_copy(update={"observation": Observation(url="http://a/", screenshot=kept)}))
    append(run, trajectory().model_copy(update={"steps": tuple(steps)}))
    return found


def same_pictures(run, taken):
    store = ScreenshotStore(run.screenshots)
    return all(pixels(store.get(sha256)) == pixels(content) for sha256, content in taken.items())


def files(run, suffix):
    return sorted(path.name.partition(".")[0] for path in run.screenshots.rglob(f"*{suffix}"))


def test_every_png_gives_way_to_a_webp_of_the_same_pixels(run, taken):
    saved = execute(run, list(plan_recoding(run)))
    assert (saved.recoded, saved.kept, saved.altered) == (COUNT, 0, [])
    assert (files(run, ".png"), files(run, ".webp")) == ([], sorted(taken))
    assert same_pictures(run, taken)
    assert saved.bytes_before == sum(map(len, taken.values()))
    assert saved.bytes_after == sum(path.stat().st_size for path in run.screenshots.rglob("*.webp"))
    assert verify(run, lambda event: None)["findings"] == []
    assert list(plan_recoding(run)) == []


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA"])
def test_no_kind_of_png_loses_a_pixel(mode):
    content = picture(1, mode=mode)
    webp = encode(content)
    assert webp is not None and webp[8:12] == b"WEBP"
    assert pixels(webp) == pixels(content)


def test_colours_under_full_transparency_stay():
    clear = Image.frombytes("RGBA", (64, 1), bytes(value for x in range(64) for value in (x, 2 * x, 255 - x, 0)))
    content = io.BytesIO()
    clear.save(content, "PNG")
    assert pixels(encode(content.getvalue())) == clear.tobytes()


def test_a_colour_profile_stays():
    content = io.BytesIO()
    Image.new("RGB", (9, 9)).save(content, "PNG", icc_profile=b"a profile of colours")
    with Image.open(io.BytesIO(encode(content.getvalue()))) as image:
        assert image.info["icc_profile"] == b"a profile of colours"


def test_what_a_webp_can_not_hold_stays_a_png():
    assert encode(picture(1, mode="I;16")) is None
    assert encode(png(0, width=16384, height=1)) is None
    assert encode(picture(1)[:2000]) is None


def test_an_image_that_would_grow_stays_and_is_not_tried_again(run):
    store = ScreenshotStore(run.screenshots)
    deep = store.put(picture(1, mode="I;16"))
    saved = execute(run, list(plan_recoding(run)))
    assert (saved.recoded, saved.kept, saved.bytes_after) == (0, 1, saved.bytes_before)
    assert store.find_recoded(deep.sha256).recoded_sha256 is None
    assert store.path(deep.sha256).suffix == ".png"
    assert list(plan_recoding(run)) == []


def test_an_altered_png_is_named_and_left_as_it_is(run, taken):
    first = min(taken)
    path = ScreenshotStore(run.screenshots).png(first)
    path.write_bytes(picture(99))
    saved = execute(run, list(plan_recoding(run)))
    assert (saved.recoded, saved.altered) == (COUNT - 1, [str(path)])
    assert path.read_bytes() == picture(99)
    assert [part.images for part in plan_recoding(run)] == [1]


def test_images_of_the_prepared_dataset_stay_for_the_training(run, taken):
    first = ScreenshotStore(run.screenshots).png(min(taken))
    write_json(run.dataset / "finetune_train.json", [{"images": [str(first)]}])
    assert execute(run, list(plan_recoding(run))).recoded == COUNT - 1
    assert first.is_file()
    (run.dataset / "finetune_train.json").unlink()
    assert execute(run, list(plan_recoding(run))).recoded == 1


class Killed(BaseException):
    pass


@pytest.mark.parametrize("calls", range(1, COUNT + 1))
@pytest.mark.parametrize("place", ["write_atomic", "note_recoded", "remove", "unlinked"])
def test_stopped_at_any_point_nothing_is_lost_and_the_next_run_goes_on(run, taken, monkeypatch, place, calls):
    """The effects before the call are on the disk, those after it are not; `unlinked`: it came through."""
    of = ScreenshotStore if place == "note_recoded" else recode
    name = "remove" if place == "unlinked" else place
    real, left = getattr(of, name), [calls]

    def dies(*arguments):
        left[0] -= 1
        if not left[0] and place == "unlinked":
            real(*arguments)
        if not left[0]:
            raise Killed
        return real(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(of, name, dies)
        with pytest.raises(Killed):
            execute(run, list(plan_recoding(run)), workers=1)
    assert same_pictures(run, taken)
    assert verify(run, lambda event: None)["findings"] == []
    execute(run, list(plan_recoding(run)))
    assert same_pictures(run, taken)
    assert (files(run, ".png"), files(run, ".webp")) == ([], sorted(taken))


def test_a_full_disk_loses_nothing(run, taken, monkeypatch):
    def full(path, data):
        raise StoreError(f"{path}: can't be written: No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(recode, "write_atomic", full)
        with pytest.raises(StoreError, match="No space left"):
            execute(run, list(plan_recoding(run)))
    assert files(run, ".png") == sorted(taken)


# --- those who use the images


def test_policy_and_judge_send_the_right_kind(run, taken):
    store, first = ScreenshotStore(run.screenshots), min(taken)
    for kind in (b"image/png", b"image/webp"):
        part = json.loads(EncodedImages(store.get).part(first))
        assert part["image_url"]["url"].startswith(f"data:{kind.decode()};base64,")
        assert JudgeContext(store.get).url(first) == part["image_url"]["url"]
        execute(run, list(plan_recoding(run)))


def test_the_command_re_encodes_after_removing(run, taken):
    def invoke(*options):
        return CliRunner().invoke(app, ["gc", str(run.root), "--recode", "webp", *options])

    dry = [json.loads(line) for line in invoke("--dry-run", "--json").stdout.splitlines()]
    assert (dry[-1]["kind"], dry[-1]["files"]) == ("PNGs to re-encode", COUNT)
    assert dry[-1]["bytes_before"] == sum(map(len, taken.values()))
    assert f"PNGs to re-encode\t{COUNT}\tsome of {dry[-1]['bytes_before']}" in invoke("--dry-run").stdout
    assert files(run, ".png") == sorted(taken)
    done = {row["kind"]: row for row in map(json.loads, invoke("--json", "--workers", "1").stdout.splitlines())}
    row = done["re-encoded images"]
    assert row["files"] == COUNT
    assert row["bytes_freed"] == row["bytes_before"] - row["bytes_after"] > 0
    assert same_pictures(run, taken)
    again = invoke()
    assert "re-encoded images\t0\t0" in again.stdout
