"""Files with altered bytes: read, left out or refused, and never a traceback."""

import contextlib
import functools
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.imports.foreign import pickled, webgym_episode, webgym_pictures
from tests.records.builders import new_run
from webgym_cli.errors import UsageError
from webgym_cli.imports import visualagentbench, webgym
from webgym_cli.imports.execute import Importer
from webgym_cli.imports.files import UnreadableImage, load_png, load_size
from webgym_cli.imports.pickle_stubs import PickleRefused
from webgym_cli.imports.plan import plan_import
from webgym_cli.imports.source import ImportedEpisode, SkippedEpisode
from webgym_cli.records.task import Split
from webgym_cli.store.buffer import scan
from webgym_cli.store.run import RunDir

ODD = (None, -1, 1e300, "x", [], [3], {"role": "assistant"}, True)
PLACES = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=3)


@functools.cache
def whole():
    return pickled({"trajectories": [webgym_episode()], "metadata": {"timestamp": "x"}})


def altered(content, places):
    changed = bytearray(content)
    for place, value in places:
        changed[int(place * len(changed))] = value
    return bytes(changed)


def outcome(read, source):
    try:
        return [type(one) for one in read(source, None)]
    except PickleRefused as error:
        assert "\n" not in str(error)
        return []


@settings(max_examples=200, deadline=None)
@given(places=PLACES)
def test_altered_webgym_files(places):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "x"
        file.write_bytes(altered(whole(), places))
        assert set(outcome(webgym.read, file)) <= {ImportedEpisode, SkippedEpisode}


def replaced(spec, path, value):
    """Return a copy in which what lies at a path is another value."""
    if not path:
        return value
    copy = dict(spec) if isinstance(spec, dict) else list(spec)
    copy[path[0]] = replaced(copy[path[0]], path[1:], value)
    return copy


def places_in(spec):
    """Yield the path of everything within a nested value, and of itself."""
    yield ()
    pairs = spec.items() if isinstance(spec, dict) else enumerate(spec) if isinstance(spec, list) else ()
    for key, part in pairs:
        if key not in ("class", "base", "array", "dtype"):
            yield from ((key, *rest) for rest in places_in(part))


def odd_ones(spec):
    """Return copies with each part replaced by values that have no place there."""
    places = [place for place in places_in(spec) if not place or place[-1] not in ("fields", "items")]
    return [replaced(spec, place, value) for place in places for value in ODD]


def test_episodes_of_webgym_with_odd_parts(tmp_path):
    odd = odd_ones(webgym_episode("one"))
    webgym_pictures(tmp_path, "one")
    file = tmp_path / "x"
    file.write_bytes(pickled({"trajectories": odd, "metadata": {}}))
    result = outcome(webgym.read, file)
    assert len(result) == len(odd) > 500 and result.count(ImportedEpisode) > 100
    run = new_run(tmp_path / "run")
    summary = Importer(plan_import(run, "webgym", file), run, lambda event: None).execute()
    assert summary["imported"] + sum(summary["skipped"].values()) == len(odd)
    assert summary["imported"] == len(list(scan(run, Split.TRAIN, 0))) > 30


SPECIAL = {
    "fifo": lambda path: os.mkfifo(path),
    "device": lambda path: path.symlink_to("/dev/zero"),
    "folder": lambda path: path.mkdir(),
}


@pytest.mark.parametrize("kind", SPECIAL)
def test_what_is_no_file_is_skipped_at_once(kind, tmp_path):
    for folder in ("a/train_trajectories", "c/traces", "c/actions"):
        (tmp_path / folder).mkdir(parents=True)
    of_webgym = tmp_path / "a/train_trajectories/train_trajectories.pt.iteration3"
    trace, actions = (tmp_path / name for name in ("c/traces/1.jsonl", "c/actions/1.json"))
    picture = tmp_path / "picture.png"
    for place in (of_webgym, trace, actions, picture):
        SPECIAL[kind](place)
    for read, source in ((webgym.read, of_webgym), (visualagentbench.read, trace), (visualagentbench.read, actions)):
        with contextlib.suppress(UsageError):
            assert ImportedEpisode not in outcome(read, source)
    for load in (load_png, load_size):
        with pytest.raises(UnreadableImage):
            load(picture)
    for source in (of_webgym, trace, actions):
        with pytest.raises(UsageError):
            plan_import(RunDir(tmp_path / "run"), "auto", source)
