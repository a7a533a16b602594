"""A bounded selection of trajectories for a page, each with a thumbnail of its last screenshot."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from PIL import Image

from webgym_cli.errors import StoreError
from webgym_cli.report.changes import ChangeExample, VersionChange
from webgym_cli.store.index.query import Index
from webgym_cli.store.screenshots import ScreenshotStore, data_url

# Maximum pixels of a thumbnail's longer side.
LARGEST = 320
# WebP quality, 0 to 100.
QUALITY = 60
# Maximum characters of an instruction or an answer.
TEXT = 600

# Outcome class of an episode, in SQL.
OUTCOME = """CASE WHEN failure IS NOT NULL THEN 'failure' WHEN success THEN 'solved'
            WHEN success IS NULL THEN 'not judged' ELSE 'not solved' END"""
# Round robin over the kinds in each iteration, newest iterations first: one of each kind, then a second one, ...
_OF_EACH_KIND = f"""
SELECT file, start FROM (
    SELECT *, row_number() OVER (PARTITION BY split, iteration, outcome, band ORDER BY md5(id), file, start) AS place
    FROM (SELECT file, start, split, iteration, id, band, {OUTCOME} AS outcome FROM trajectories)
) ORDER BY place, iteration DESC, split, outcome, band LIMIT ?
"""
_NAMED = "SELECT file, start FROM trajectories WHERE split = 'test' AND list_contains(?, concat(iteration, '/', id))"
_CARDS = f"""
WITH chosen AS ({{chosen}}), told AS (SELECT *, {OUTCOME} AS outcome FROM trajectories JOIN chosen USING (file, start)
), seen AS (
    SELECT trajectory AS id, split, iteration, arg_max(screenshot, step) AS screenshot FROM steps
    WHERE trajectory IN (SELECT id FROM told) GROUP BY trajectory, split, iteration
)
SELECT id, split, iteration, outcome, band, task, site, instruction, answer, policy, steps, seconds, stop, failure,
    failure_detail, seen.screenshot
FROM told LEFT JOIN seen USING (id, split, iteration)
ORDER BY iteration DESC, split, outcome, band, id
"""


@dataclass(frozen=True, slots=True)
class Card:
    """Data of one trajectory on a page."""

    facts: dict[str, Any]
    """`id`, `split`, `iteration`, `outcome` (solved, not solved, not judged, failure), `band`, `task`, ..."""
    image: str
    """The last screenshot as a data URL; empty when it can't be shown."""
    missing: str
    """Why it can't be shown."""
    width: int
    """Pixels; 0 without an image."""
    height: int
    """Pixels; 0 without an image."""


def choose_cards(index: Index, store: ScreenshotStore, count: int) -> Iterator[Card]:
    """Yield at most `count` trajectories of every outcome and difficulty, the newest first. Raises `StoreError`."""
    return _read_cards(index, store, _OF_EACH_KIND, count)


def read_examples(
    index: Index, store: ScreenshotStore, changes: Sequence[VersionChange]
) -> list[tuple[ChangeExample, Card, Card]]:
    """Return the examples of changes, each with the cards of the earlier and the later version's episode.

    Raises `StoreError`.
    """
    pairs = [
        (one, f"{of['before']}/{one['before']}", f"{of['after']}/{one['after']}")
        for of in changes
        for one in of["examples"]
    ]
    named = [name for _, *names in pairs for name in names]
    cards = {f"{one.facts['iteration']}/{one.facts['id']}": one for one in _read_cards(index, store, _NAMED, named)}
    return [(one, cards[before], cards[after]) for one, before, after in pairs]


def _read_cards(index: Index, store: ScreenshotStore, chosen: str, value: Any) -> Iterator[Card]:
    for row in index.rows(_CARDS.format(chosen=chosen), [value]):
        digest = row.pop("screenshot")
        for name in ("instruction", "answer", "failure_detail"):
            row[name] = _cut(row[name] or "")
        try:
            image, width, height = make_thumbnail(store.get(digest)) if digest else (b"", 0, 0)
            missing = "" if image else "no step, no screenshot"
        except StoreError as error:
            image, width, height, missing = b"", 0, 0, str(error)
        url = data_url(image) if image else ""
        yield Card(row, url, missing, width, height)


def make_thumbnail(content: bytes) -> tuple[bytes, int, int]:
    """Return an image as WebP of at most `LARGEST` pixels a side, with its width and height.

    Raises `StoreError` if the bytes are not an image.
    """
    try:
        with Image.open(io.BytesIO(content)) as image:
            picture = image.convert("RGB")
        # In place, before encoding: keeping a 4k screenshot at full size for every card would exhaust the memory.
        picture.thumbnail((LARGEST, LARGEST))
        packed = io.BytesIO()
        picture.save(packed, "WEBP", quality=QUALITY)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:  # Pillow's for a bad image
        raise StoreError(f"the screenshot is no image: {str(error).partition('<')[0].strip()}") from error
    return packed.getvalue(), picture.width, picture.height


def _cut(text: str) -> str:
    return text if len(text) <= TEXT else f"{text[:TEXT]}…"
