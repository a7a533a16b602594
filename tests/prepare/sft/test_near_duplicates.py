import io

import pytest
from PIL import Image, ImageDraw

from tests.prepare.buffer import converter, planned, settings
from tests.records.made import step, trajectory
from webgym_cli.errors import StoreError
from webgym_cli.prepare.sft.near_duplicates import NearDuplicateIndex, difference_hash
from webgym_cli.prepare.sft.sampler import StepSampler
from webgym_cli.records.task import Task
from webgym_cli.records.trajectory import Observation
from webgym_cli.store.buffer import append
from webgym_cli.store.run import RunDir
from webgym_cli.store.screenshots import ScreenshotStore


def png(picture: Image.Image) -> bytes:
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


def ramp(*, falling: bool = False, scale: int = 1) -> bytes:
    """Return 17x16 pixels, or so many times as many; each column is lighter than the one before, or darker."""
    shades = [column * 10 for column in range(17)]
    picture = Image.frombytes("L", (17, 16), bytes(shades[::-1] if falling else shades) * 16)
    return png(picture.resize((17 * scale, 16 * scale), Image.Resampling.NEAREST))


def page(title: str, *, column: int = 60, extra: str = "") -> bytes:
    """A page with a bar, a heading, a column of boxes and perhaps a word in a corner."""
    picture = Image.new("RGB", (1280, 960), "white")
    draw = ImageDraw.Draw(picture)
    draw.rectangle((0, 0, 1280, 90), fill="navy")
    draw.text((40, 120), title, fill="black", font_size=60)
    for row in range(5):
        draw.rectangle((column, 260 + row * 130, column + 420, 350 + row * 130), fill="grey")
    draw.text((1150, 930), extra, fill="black", font_size=20)
    return png(picture)


def test_the_hash_by_hand():
    assert difference_hash(ramp()) == 2**256 - 1
    assert difference_hash(ramp(falling=True)) == 0
    assert difference_hash(png(Image.new("RGB", (40, 30), "red"))) == 0


def test_one_row_that_differs_are_sixteen_bits():
    picture = Image.open(io.BytesIO(ramp()))
    picture.paste(Image.new("L", (17, 1), 0), (0, 15))
    assert difference_hash(png(picture)) == 2**256 - 2**16


def test_a_word_in_a_corner_is_near_and_another_page_is_far():
    one = difference_hash(page("Shopping cart"))
    assert (one ^ difference_hash(page("Shopping cart", extra="12:31"))).bit_count() <= 10
    assert (one ^ difference_hash(page("Your inbox", column=700))).bit_count() > 20


def test_what_is_no_picture_is_named():
    for broken in (b"", b"GIF", ramp()[:30], ramp()[:45]):
        with pytest.raises(StoreError, match="can't be decoded"):
            difference_hash(broken)


def test_only_pictures_of_one_task_are_compared():
    seen = NearDuplicateIndex(0)
    assert [seen.add(task, ramp()) for task in ("a", "a", "b")] == [True, False, True]
    assert not seen.add("a", ramp(scale=2))
    assert seen.add("a", ramp(falling=True))


def test_how_far_apart_counts():
    almost = Image.open(io.BytesIO(ramp()))
    almost.paste(Image.new("L", (17, 1), 0), (0, 0))
    for bits, new in ((15, True), (16, False)):
        seen = NearDuplicateIndex(bits)
        assert seen.add("a", ramp())
        assert seen.add("a", png(almost)) is new


def stored(run: RunDir, number: int, task: str, *pictures: bytes) -> None:
    store = ScreenshotStore(run.screenshots)
    steps = tuple(
        step(index, observation=Observation(url="http://a/", screenshot=store.put(picture)))
        for index, picture in enumerate(pictures)
    )
    append(run, trajectory(number, steps=0, task=Task(id=task)).model_copy(update={"steps": steps}))


def test_the_draw_leaves_out_what_it_has_seen_and_takes_the_next(tmp_path):
    run = RunDir(tmp_path / "run")
    clock = [page("Shopping cart", extra=f"12:3{minute}") for minute in range(3)]
    stored(run, 0, "buy", *clock)
    stored(run, 1, "buy", page("Your inbox", column=700), clock[0])
    stored(run, 2, "sell", *clock[:2])
    kept = {}
    for count in ("null", "2"):
        chosen = settings("filters.near_duplicate_bits=10", f"algorithm_config.positive_samples_to_train={count}")
        with planned(run, chosen, [0]) as plan:
            assert plan.eligible == 7
            draw = StepSampler(plan, run, chosen, converter(run, chosen), lambda event: None).execute()
        kept[count] = draw
    # of "buy" one clock and the inbox, of "sell" one clock
    assert kept["null"].dropped["near_duplicate"] == 4
    assert len(kept["null"].samples) == 3
    assert len(kept["2"].samples) == 2


def test_it_costs_nothing_when_it_is_off(tmp_path, monkeypatch):
    run = RunDir(tmp_path / "run")
    stored(run, 0, "buy", ramp(scale=2), ramp(scale=2))
    monkeypatch.setattr("webgym_cli.prepare.sft.near_duplicates.difference_hash", lambda png: 1 / 0)
    with planned(run, settings(), [0]) as plan:
        draw = StepSampler(plan, run, settings(), converter(run, settings()), lambda event: None).execute()
    assert len(draw.samples) == 2
    assert "near_duplicate" not in draw.dropped
