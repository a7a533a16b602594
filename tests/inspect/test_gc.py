"""What nothing names goes, and nothing else does."""

import json
import os
import time

import pytest

from tests.app import invoke
from tests.prepare.buffer import fill
from tests.records.builders import png, shot, trajectory
from webgym_cli.errors import RunLockedError, StoreError
from webgym_cli.inspect.gc import GRACE, WasteKind, find_waste, remove_waste
from webgym_cli.inspect.verify import verify
from webgym_cli.records.task import Split
from webgym_cli.store.buffer import append
from webgym_cli.store.index import build
from webgym_cli.store.index.build import update
from webgym_cli.store.run import RunDir
from webgym_cli.store.screenshots import ScreenshotStore
from webgym_cli.store.status import lock_run
from webgym_cli.util.files import write_json

TRAIN = Split.TRAIN
LONG_AGO = time.time() - 10 * GRACE


@pytest.fixture
def run(run):
    """A run whose trajectories name the images 0 to 2; 10 and 11 are named by none. All are old."""
    fill(run, trajectory(0, steps=3), trajectory(1))
    for shade in (10, 11):
        ScreenshotStore(run.screenshots).put(png(shade))
    aged(run)
    return run


def aged(run):
    for path in run.root.rglob("*"):
        os.utime(path, (LONG_AGO, LONG_AGO))


def image(run, shade):
    return ScreenshotStore(run.screenshots).path(shot(shade).sha256)


def wasted(run, **options):
    return {(waste.kind, waste.path.name) for waste in find_waste(run, **options)}


@pytest.mark.parametrize("name", ["s1.open.jsonl", "s1.jsonl"])
def test_images_of_an_agent_s_calls_stay(run, name):
    run.sessions.mkdir()
    (run.sessions / name).write_text(json.dumps({"event": "call", "screenshot": {"sha256": shot(10).sha256}}) + "\n")
    aged(run)
    assert wasted(run) == {(WasteKind.UNNAMED, f"{shot(11).sha256}.png")}


def test_only_images_that_nobody_names_go(run):
    freed = remove_waste(find_waste(run), dry_run=False)[WasteKind.UNNAMED]
    assert (freed["files"], freed["bytes_freed"]) == (2, len(png(10)) + len(png(11)))
    assert [image(run, shade).exists() for shade in (0, 1, 2, 10, 11)] == [True, True, True, False, False]
    assert verify(run, lambda event: None)["findings"] == []
    assert wasted(run) == set()


def outside(run, tmp_path, linked):
    """Move a part of the run elsewhere, and put a link in its place; return an unnamed image there."""
    theirs = tmp_path / "theirs"
    part = run.screenshots if linked == "screenshots" else image(run, 10).parent
    name = image(run, 10).relative_to(part)
    part.rename(theirs)
    part.symlink_to(theirs)
    (theirs / f".{'x' * 9}.png.abcdefgh").write_bytes(b"torn")
    aged(RunDir(theirs))
    return theirs / name


@pytest.mark.parametrize("linked", ["screenshots", "folder"])
def test_nothing_outside_of_the_run_goes(run, tmp_path, linked):
    theirs, events = outside(run, tmp_path, linked), []
    before = sorted(theirs.parent.rglob("*"))
    remove_waste(find_waste(run, sink=events.append), dry_run=False)
    assert theirs.exists()
    assert sorted(theirs.parent.rglob("*")) == before
    assert image(run, 11).exists() == (linked == "screenshots" or image(run, 11).parent == image(run, 10).parent)
    assert any("leads out of the run" in event.get("message", "") for event in events)


def test_a_link_in_place_of_an_image_goes_and_not_what_it_names(run, tmp_path):
    theirs = tmp_path / "theirs.png"
    image(run, 10).rename(theirs)
    image(run, 10).symlink_to(theirs)
    os.utime(image(run, 10), (LONG_AGO, LONG_AGO), follow_symlinks=False)
    remove_waste(find_waste(run), dry_run=False)
    assert theirs.exists()
    assert not image(run, 10).is_symlink()


def test_a_young_image_stays_for_its_line_is_still_to_come(run):
    os.utime(image(run, 10))
    assert wasted(run) == {(WasteKind.UNNAMED, image(run, 11).name)}
    assert len(wasted(run, grace=-1)) == 2


def test_images_of_every_split_iteration_and_rank_are_named(run):
    for episode, rank in ((trajectory(5, split=Split.TEST, steps=11), 0), (trajectory(5, iteration=7, steps=12), 3)):
        fill(run, episode, rank=rank)
    aged(run)
    assert wasted(run) == set()


def test_the_truth_decides_and_not_the_index(run):
    update(run)
    episode = trajectory(5, steps=11)  # names image 10, and the index has not heard of it
    fill(run, episode)
    aged(run)
    assert {name for kind, name in wasted(run) if kind is WasteKind.UNNAMED} == {image(run, 11).name}


def test_images_of_the_prepared_dataset_stay(run):
    write_json(run.dataset / "finetune_train.json", [{"images": [str(image(run, 10))]}])
    (run.dataset / "empty.json").touch()
    aged(run)
    assert wasted(run) == {(WasteKind.UNNAMED, image(run, 11).name)}


def test_both_forms_of_an_image_go(run):
    webp = ScreenshotStore(run.screenshots).webp(shot(10).sha256)
    webp.write_bytes(b"RIFF")
    aged(run)
    remove_waste(find_waste(run), dry_run=False)
    assert not webp.exists() and not image(run, 10).exists()


def test_while_a_line_is_damaged_nothing_goes_but_what_even_its_rest_does_not_name(run):
    fill(run, trajectory(5, steps=11))  # its line alone names image 10; it can't be read, but its names can
    path = run.part(TRAIN, 0)
    path.write_bytes(path.read_bytes().replace(b'"id":"train-0000-00005"', b'"id":"train-0000-0\xff005"'))
    aged(run)
    before = sorted(run.root.rglob("*"))
    with pytest.raises(StoreError, match=r"part-0\.jsonl: byte \d+$") as caught:
        remove_waste(find_waste(run), dry_run=False)
    assert "--even-with-damage" in caught.value.hint
    assert sorted(run.root.rglob("*")) == before
    assert wasted(run, even_with_damage=True) == {(WasteKind.UNNAMED, image(run, 11).name)}


@pytest.mark.parametrize(
    ("place", "goes"),
    [
        ("screenshots/{0}/.{1}.png.abc_1234", True),
        ("screenshots/{0}/.{1}.webp.abcdefgh", True),
        (".config.json.abcdefgh", True),
        (".lock.holder.abcdefgh", True),
        ("tasks/.train.iteration_0000.jsonl.abcdefgh", True),
        ("status/.rollout-0.json.abcdefgh", True),
        ("index.parquet/v1/steps/.train.0000.part-0.0-100.new", True),
        (".notes.markdown", False),
        ("screenshots/{0}/notes.png", False),
        ("screenshots/{0}/recoded.jsonl", False),
        ("config.json", False),
        ("checkpoints/model_1/.config.json.abcdefgh", False),
        ("notes/.a.json.abcdefgh", False),
    ],
)
def test_rests_of_torn_writes_go_when_they_are_old(run, place, goes):
    path = run.root / place.format(shot(0).sha256[:2], shot(0).sha256)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * 7)
    assert all(kind is WasteKind.UNNAMED for kind, _ in wasted(run))
    aged(run)
    assert ((WasteKind.TORN, path.name) in wasted(run)) is goes
    remove_waste(find_waste(run), dry_run=False)
    assert path.exists() is not goes


def test_replaced_index_files_go(run, monkeypatch):
    update(run)
    append(run, trajectory(8))
    monkeypatch.setattr(build, "_join", lambda *_: None)
    update(run)
    monkeypatch.undo()
    append(run, trajectory(9))
    update(run)  # joins all three, and what they replace stays for queries that began before
    old = run.index / "v0" / "steps" / "x.parquet"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"")
    assert all(kind is WasteKind.UNNAMED for kind, _ in wasted(run))
    aged(run)
    assert remove_waste(find_waste(run), dry_run=False)[WasteKind.INDEX]["files"] == 3 * 3 + 1
    assert not old.exists()
    assert verify(run, lambda event: None)["trajectories"] == 4


def test_the_command_removes_and_tells_in_json_and_its_dry_run_names_it(run):
    done = invoke("gc", run.root, "--dry-run")
    assert "unnamed images\t2\t" in done.stdout and f"next: webgym gc {run.root}" in done.stderr
    assert image(run, 10).exists()
    done = invoke("gc", run.root, "--json", "--recode", "webp")  # an option that was removed
    assert (done.exit_code, "--recode has no effect" in done.stderr) == (0, True), done.output
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    freed = len(png(10)) + len(png(11))
    assert rows[0] == {"kind": "unnamed images", "files": 2, "bytes_freed": freed, "dry_run": False}
    assert [row["files"] for row in rows[1:]] == [0, 0]
    assert not image(run, 10).exists()


def test_a_run_that_is_worked_on_is_left_alone(run):
    with lock_run(run, "rollout"):
        assert isinstance(invoke("gc", run.root).exception, RunLockedError)
        assert invoke("gc", run.root, "--dry-run").exit_code == 0
    assert image(run, 10).exists()


def test_the_age_is_an_option(run):
    os.utime(image(run, 10), (time.time() - 7200,) * 2)
    assert "unnamed images\t1\t" in invoke("gc", run.root, "-n", "--older-than", "3").stdout
    assert "unnamed images\t2\t" in invoke("gc", run.root, "-n").stdout
    assert invoke("gc", run.root, "--older-than", "-1").exit_code == 2
