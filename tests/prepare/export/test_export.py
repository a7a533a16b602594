"""What an export takes, what it leaves out, and where it writes."""

import json
import tracemalloc

import pytest

from tests.prepare.buffer import fill, settings
from tests.prepare.exported import digest, exported, ids
from tests.records.builders import CRASHED, SOLVED, UNSOLVED, shot, step, trajectory
from webgym_cli.errors import StoreError, UsageError, WebGymError
from webgym_cli.prepare.export.export import Export
from webgym_cli.prepare.export.options import ExportObjective, ExportOptions, ExportUnit
from webgym_cli.prepare.sft.filters import DropReason
from webgym_cli.records.failure import Stop
from webgym_cli.records.task import Split, Task
from webgym_cli.records.trajectory import Outcome, ParseErrorKind
from webgym_cli.store.index.selection import TrajectoryQuery
from webgym_cli.store.run import create_or_open
from webgym_cli.store.screenshots import ScreenshotStore

UNJUDGED = Outcome(stop=Stop.ANSWERED)


def test_without_ids_it_takes_what_prepare_could_use(run):
    hard = Task(id="hard", start_url="https://shop.example.com/", environment="web", difficulty=7)
    fill(run, trajectory(0), trajectory(1, outcome=UNSOLVED), trajectory(2, outcome=CRASHED))
    fill(run, trajectory(3, outcome=UNJUDGED), trajectory(4, steps=1), trajectory(5, split=Split.TEST))
    fill(run, trajectory(6, iteration=1, task=hard))
    assert ids(exported(run)[1]) == ["00000/0", "00000/1", "00006/0", "00006/1"]
    assert ids(exported(run, query=TrajectoryQuery(iteration=1))[1]) == ["00006/0", "00006/1"]
    assert ids(exported(run, query=TrajectoryQuery(split=Split.TEST))[1]) == ["00005/0", "00005/1"]
    assert ids(exported(run, query=TrajectoryQuery(expression="difficulty < 4"))[1]) == ["00000/0", "00000/1"]
    assert ids(exported(run, None, 'filters.exclude_sites=["example.com"]')[1]) == ["00000/0", "00000/1"]
    assert ids(exported(run, None, "algorithm_config.min_trajectory_steps=1")[1])[2] == "00004/0"
    assert len(exported(run, None, "algorithm_config.filter_successful_only=false")[1]) == 6


def test_named_trajectories_come_as_they_are_in_stored_order_and_an_unknown_id_is_named(run, tmp_path):
    fill(run, trajectory(0), trajectory(1), trajectory(2, outcome=UNSOLVED), trajectory(3, outcome=CRASHED))
    wanted = ["train-0000-00003", "train-0000-00002", "train-0000-00000"]
    tally, records = exported(run, ids=wanted)
    assert ids(records) == ["00000/0", "00000/1", "00002/0", "00002/1", "00003/0", "00003/1"]
    assert (tally.records, tally.trajectories) == (6, 3)
    assert exported(run, ids=[])[1] == []
    assert ids(exported(run, ids=wanted, query=TrajectoryQuery(expression="success"))[1]) == ["00000/0", "00000/1"]
    with pytest.raises(UsageError, match=r"no trajectory 'x' \(and 1 more\)"):
        exported(run, tmp_path / "out.jsonl", ids=["train-0000-00000", "x", "y"])
    assert not (tmp_path / "out.jsonl").exists()


def test_steps_that_are_not_fit_are_counted(run):
    bad = step(0, response="Hm.", action=None, parse_error=ParseErrorKind.NO_TOOL_CALL)
    steps = (bad, step(1, page_changed=False), step(2, response="Look: <image>"), step(3))
    fill(run, trajectory(0, steps=steps))
    tally, records = exported(run)
    assert ids(records) == ["00000/3"]
    reasons = (DropReason.NO_ACTION, DropReason.SAME_SCREENSHOT, DropReason.RESPONSE_HAS_PLACEHOLDER)
    assert tally.dropped == dict.fromkeys(reasons, 1)
    assert len(exported(run, None, "algorithm_config.filter_same_screenshot=false")[1]) == 2


def test_kto_labels_judged_trajectories(run):
    bad = step(0, response="Hm.", action=None, parse_error=ParseErrorKind.NO_TOOL_CALL)
    fill(run, trajectory(0), trajectory(1, steps=(bad, step(1, response=" ")), outcome=UNSOLVED))
    fill(run, trajectory(2, steps=(bad, step(1))), trajectory(3, outcome=UNJUDGED))
    fill(run, trajectory(4, outcome=CRASHED), trajectory(5, steps=1))
    tally, records = exported(run, objective=ExportObjective.KTO)
    rows = [(name, record["kto_tag"]) for name, record in zip(ids(records), records, strict=True)]
    # what is not wanted need not be an action, but it must be something
    assert rows == [("00000/0", True), ("00000/1", True), ("00001/0", False), ("00002/1", True)]
    assert tally.dropped == {DropReason.RESPONSE_TOO_SHORT: 1, DropReason.NO_ACTION: 1}


def test_kto_by_id_leaves_out_what_has_no_label(run):
    fill(run, trajectory(0, outcome=UNJUDGED), trajectory(1, outcome=CRASHED), trajectory(2, outcome=UNSOLVED))
    named = [f"train-0000-0000{number}" for number in range(3)]
    tally, records = exported(run, ids=named, objective=ExportObjective.KTO, unit=ExportUnit.TRAJECTORY)
    assert [(record["id"], record["kto_tag"]) for record in records] == [("train-0000-00002/1", False)]
    assert tally.dropped == {DropReason.REWARD_UNKNOWN: 1, DropReason.FAILURE: 1}


def test_a_missing_or_altered_screenshot_is_named_and_its_records_are_left_out(run):
    fill(run, trajectory(0, steps=3))
    store = ScreenshotStore(run.screenshots)
    store.path(shot(1).sha256).write_bytes(b"another")
    tally, records = exported(run)
    assert ids(records) == ["00000/0"]  # the window of the third step shows the second
    assert (tally.damaged, len(tally.problems)) == (2, 1)
    assert f"{shot(1).sha256}.png: the screenshot was altered" in tally.problems[0]
    store.path(shot(1).sha256).unlink()
    assert "can't be read" in exported(run)[0].problems[0]


@pytest.mark.parametrize("indexed", [True, False])
def test_a_damaged_line_is_named_and_the_others_are_exported(run, indexed):
    fill(run, trajectory(0), trajectory(1))
    if indexed:
        assert len(exported(run)[1]) == 4
    part = run.part(Split.TRAIN, 0)
    part.write_bytes(part.read_bytes().replace(b'"schema":1', b'"schema":7', 1))
    tally, records = exported(run)
    assert ids(records) == ["00001/0", "00001/1"]
    assert tally.damaged == 1
    assert f"{part}: the line at byte 0 is damaged" in tally.problems[0]


@pytest.mark.parametrize("form", ["jsonl", "json"])
def test_memory_does_not_grow_with_the_export(run, tmp_path, form):
    """Ten times the records: more than a megabyte more on the disk, and next to nothing in memory."""
    peaks = []
    for count in (30, 300):
        fill(run, *(trajectory(number) for number in range(len(peaks) * 30, count)))
        exported(run, tmp_path / f"warm{count}", format=form)
        tracemalloc.start()
        exported(run, tmp_path / f"{count}", format=form)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 200_000, peaks


def test_a_file_appears_only_when_it_is_whole(run, tmp_path):
    fill(run, trajectory(0))
    exported(run, tmp_path / "new" / "a.jsonl")
    exported(run, tmp_path / "new" / "a.json", format="json")
    lines = (tmp_path / "new" / "a.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == json.loads((tmp_path / "new" / "a.json").read_text())
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["a.json", "a.jsonl"]


def test_a_folder_describes_itself_and_is_the_same_each_time(run, tmp_path):
    fill(run, trajectory(0), trajectory(1, outcome=UNSOLVED))
    for name in "ab":
        exported(run, tmp_path / name, copy_images=tmp_path / name / "images")
    assert digest(tmp_path / "a") == digest(tmp_path / "b")
    images = sorted(f"images/{shot(number).sha256}.png" for number in range(2))
    assert list(digest(tmp_path / "a")) == ["dataset_info.json", "export.json", *images, "train.jsonl"]
    first = json.loads((tmp_path / "a" / "train.jsonl").read_text().splitlines()[0])
    assert first["images"] == [f"images/{shot(0).sha256}.png"]  # the folder can be moved
    assert json.loads((tmp_path / "a" / "export.json").read_text())["records"] == 2


def test_copies_beside_are_named_in_full_and_made_good(run, tmp_path):
    fill(run, trajectory(0))
    copy = tmp_path / "images" / f"{shot(0).sha256}.png"
    copy.parent.mkdir()
    copy.write_bytes(b"torn")
    _, records = exported(run, copy_images=tmp_path / "images")
    assert records[0]["images"] == [str(copy)]
    assert copy.read_bytes() == ScreenshotStore(run.screenshots).get(shot(0).sha256)
    assert len(list((tmp_path / "images").iterdir())) == 2


def test_nothing_is_overwritten_and_a_folder_of_nothing_is_refused(run, tmp_path):
    fill(run, trajectory(0, steps=(step(0, response="<image>"), step(1, response=" "))))
    with pytest.raises(WebGymError, match=r"nothing to export \(1 x response_has_placeholder, 1 x response_too_short"):
        exported(run, tmp_path / "out", format="hf")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    fill(run, trajectory(1))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "note.txt").write_text("keep")
    with pytest.raises(UsageError, match="there is something already"):
        exported(run, tmp_path / "mine")
    assert (tmp_path / "mine" / "note.txt").read_text() == "keep"
    (tmp_path / "empty").mkdir()
    assert exported(run, tmp_path / "empty")[0].records == 2


def test_what_breaks_off_leaves_nothing(run, tmp_path):
    fill(run, trajectory(0), trajectory(1))

    def full(line):
        raise OSError(28, "No space left on device")

    export = Export(run, settings(), ExportOptions("jsonl"))
    with pytest.raises(StoreError, match="stdout: can't be written: No space left on device"):
        export.execute(full, lambda event: None)
    blocked = tmp_path / "blocked"
    blocked.write_text("")
    with pytest.raises(StoreError, match="can't be written"):
        exported(run, blocked / "a.jsonl")
    with pytest.raises(StoreError, match="can't be written"):
        exported(run, tmp_path / "out", copy_images=blocked)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["blocked", "run"]


@pytest.mark.parametrize(
    ("options", "reply"),
    [
        ({"objective": ExportObjective.DPO, "unit": ExportUnit.TRAJECTORY}, "has no --unit trajectory"),
        ({"objective": ExportObjective.KTO, "format": "openai"}, "no form for --objective kto"),
        ({"embed_images": True}, "belongs to --format openai"),
        ({"format": "hf"}, "makes a folder"),
        ({"format": "openai", "embed_images": True, "copy_images": "x"}, "inside the records already"),
    ],
    ids=str,
)
def test_what_can_not_go_together_is_refused(run, options, reply):
    with pytest.raises(UsageError, match=reply):
        exported(run, **options)


@pytest.mark.parametrize(
    "name", ["config.json", "metrics.jsonl", "train_trajectories/iteration_0000/part-9.jsonl", "new", "screenshots"]
)
@pytest.mark.parametrize("linked", [False, True])
def test_nothing_is_written_into_a_run(run, tmp_path, name, linked):
    fill(run, trajectory(0, outcome=SOLVED))
    create_or_open(run, settings())
    before = {path: path.read_bytes() for path in run.root.rglob("*") if path.is_file()}
    (tmp_path / "link").symlink_to(run.root)
    out = (tmp_path / "link" if linked else run.root) / name
    for place, options in ((out, ExportOptions()), (tmp_path / "out.jsonl", ExportOptions(copy_images=out))):
        export = Export(run, settings(), options, out=place)
        with pytest.raises(UsageError, match="is in the run"):
            export.execute(lambda line: None, lambda event: None)
    assert {path: path.read_bytes() for path in run.root.rglob("*") if path.is_file()} == before
