"""The choice of episodes for a page, and their small pictures."""

from __future__ import annotations

import base64
import io
from collections import Counter

import pytest
from PIL import Image

from tests.inspect.buffers import made
from tests.records.made import CRASHED, png, shot, step, store_images
from tests.report.runs import did
from webgym_cli.errors import StoreError
from webgym_cli.records.task import Task
from webgym_cli.records.trajectory import Observation
from webgym_cli.report.changes import read_changes
from webgym_cli.report.gallery import LARGEST, TEXT, choose_cards, make_thumbnail, read_examples
from webgym_cli.store.index.query import open_index
from webgym_cli.store.screenshots import ScreenshotStore


def chosen(run, count):
    with open_index(run) as index:
        return list(choose_cards(index, ScreenshotStore(run.screenshots), count))


@pytest.fixture
def run(tmp_path):
    """Two iterations with many solved episodes and few of other kinds."""
    episodes = []
    for iteration in range(2):
        episodes += [did(n, "a", solved=True, iteration=iteration) for n in range(20)]
        episodes += [did(20 + n, "a", solved=False, iteration=iteration) for n in range(3)]
        episodes.append(did(30, "a", solved=False, iteration=iteration, outcome=CRASHED))
        episodes.append(did(31, "a", solved=None, iteration=iteration))
    hard = Task(id="h", difficulty=9, start_url="http://h.test/")
    return made(tmp_path / "run", *episodes, did(40, "h", solved=True, iteration=1, task=hard))


def test_each_kind_is_shown_before_any_is_shown_again(run):
    found = [(card.facts["iteration"], card.facts["outcome"], card.facts["band"]) for card in chosen(run, 9)]
    assert Counter(found) == Counter(
        [
            (iteration, outcome, "easy")
            for iteration in range(2)
            for outcome in ("solved", "not solved", "failure", "not judged")
        ]
        + [(1, "solved", "hard")]
    )
    assert [iteration for iteration, _, _ in found] == [1] * 5 + [0] * 4


def test_where_there_is_little_room_the_newest_come_first(run):
    assert {card.facts["iteration"] for card in chosen(run, 5)} == {1}
    assert chosen(run, 0) == []


def test_all_are_shown_where_there_is_room_and_always_the_same_first(run):
    assert len(chosen(run, 1000)) == 51
    ids = [card.facts["id"] for card in chosen(run, 20)]
    assert (len(ids), ids) == (20, [card.facts["id"] for card in chosen(run, 20)])


def test_the_last_screenshot_is_shown_small(tmp_path):
    wide = step(1, observation=Observation(url="http://a/", screenshot=shot(1, 1280, 800)))
    episode = did(0, "a", solved=True).model_copy(update={"steps": (step(0), wide)})
    run = made(tmp_path / "run", episode)
    store_images(run, episode)
    (card,) = chosen(run, 1)
    content = base64.b64decode(card.image.removeprefix("data:image/webp;base64,"))
    with Image.open(io.BytesIO(content)) as image:
        assert (image.format, image.size) == ("WEBP", (320, 200))
    assert (card.width, card.height, card.missing) == (320, 200, "")


def test_small_pictures_stay_as_they_are():
    assert make_thumbnail(png(3, 40, 32))[1:] == (40, 32)
    assert make_thumbnail(png(3, 40, 6400))[1:] == (2, LARGEST)


@pytest.mark.parametrize("content", [b"", b"no image", png(1, 400, 400)[:60]], ids=["empty", "text", "torn"])
def test_what_is_no_image_is_said_to_be_none(content):
    with pytest.raises(StoreError, match="the screenshot is no image"):
        make_thumbnail(content)


def test_lost_screenshots_and_episodes_without_any_are_told(tmp_path):
    run = made(tmp_path / "run", did(0, "a", solved=True), did(1, "b", solved=False, steps=0))
    lost, none = sorted(chosen(run, 2), key=lambda card: card.facts["id"])
    assert "can't be read" in lost.missing
    assert (none.missing, none.image, none.width) == ("no step, no screenshot", "", 0)


def test_long_texts_are_cut(tmp_path):
    run = made(tmp_path / "run", did(0, "a", solved=True, instruction="x" * 5000))
    (card,) = chosen(run, 1)
    assert card.facts["instruction"] == "x" * TEXT + "…"


def test_examples_are_pairs_in_the_order_of_the_changes(tmp_path):
    episodes = [
        did(n, "a", solved=n < 2 or iteration > 0, iteration=iteration) for iteration in range(2) for n in range(4)
    ]
    run = made(tmp_path / "run", *episodes)
    with open_index(run) as index:
        pairs = read_examples(index, ScreenshotStore(run.screenshots), read_changes(index))
    assert [(of["change"], before.facts["iteration"], after.facts["iteration"]) for of, before, after in pairs] == [
        ("gained", 0, 1)
    ] * 2
    assert [(before.facts["id"], after.facts["id"]) for _, before, after in pairs] == [
        (of["before"], of["after"]) for of, _, _ in pairs
    ]
    assert {card.facts["outcome"] for _, card, _ in pairs} == {"not solved"}
    assert {card.facts["outcome"] for _, _, card in pairs} == {"solved"}
