"""Whatever is wrong with a buffer is named, with its place; a sound one has no findings."""

import json
import re

import pyarrow as pa
import pytest

from tests.prepare.exported import recode, webp
from tests.records.builders import CRASHED, new_run, png, published, shot, step, store_images, trajectory
from tests.records.test_judgement import judgement
from webgym_cli.config.model import Settings
from webgym_cli.inspect.findings import LISTED
from webgym_cli.inspect.verify import verify
from webgym_cli.records.batch import TrainingBatch
from webgym_cli.records.task import Split
from webgym_cli.store.buffer import append, append_judgement, scan
from webgym_cli.store.index import arrow, fragments
from webgym_cli.store.index.build import update
from webgym_cli.store.index.fragments import Catalog
from webgym_cli.store.metrics import append_event
from webgym_cli.store.screenshots import ScreenshotStore

TRAIN = Split.TRAIN
ID = "train-0000-0000{}"


@pytest.fixture
def run(tmp_path):
    """A sound run: two splits, two iterations, two ranks, a failure, judgements, five images that are shared."""
    run_dir = new_run(tmp_path / "run")
    for number in range(4):
        add(run_dir, trajectory(number), rank=number % 2)
    add(run_dir, trajectory(4, steps=0, outcome=CRASHED))
    add(run_dir, trajectory(0, iteration=1, steps=5))
    add(run_dir, trajectory(0, split=Split.TEST, steps=1))
    say(run_dir, 0)
    say(run_dir, 1)
    return run_dir


def add(run, value, rank=0):
    store_images(run, value)
    append(run, value, rank)


def say(run, number):
    append_judgement(run, TRAIN, 0, judgement(trajectory=ID.format(number), success=True))


def checked(run):
    """Return the summary; the findings that were sent as events must be those that it lists."""
    events = []
    result = verify(run, events.append)
    sent = [event for event in events if event["event"] == "finding"]
    assert [{**finding, "event": "finding"} for finding in result["findings"]] == sent[:LISTED]
    assert sum(result["findings_by_kind"].values()) == len(sent)
    return result


def only(run, kind, file):
    """Return the one finding, which is of this kind and file."""
    (finding,) = checked(run)["findings"]
    assert (finding["kind"], finding["file"]) == (kind, str(file))
    return finding


def part(run, rank=0):
    return run.part(TRAIN, 0, rank)


def replace(path, old, new):
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new, 1))


def image(run, shade):
    return ScreenshotStore(run.screenshots).path(shot(shade).sha256)


def test_a_sound_buffer_has_no_findings(run):
    counts = {"trajectories": 7, "steps": 14, "judgements": 2, "unfinished_bytes": 0}
    images = {"named": 5, "stored": 5, "unnamed": 0}
    assert checked(run) == {"run": str(run.root), **counts, "images": images, "findings_by_kind": {}, "findings": []}


def test_progress_is_told_to_its_end(run):
    events = []
    verify(run, events.append)
    for bar in ("lines", "images"):
        last = [event for event in events if event.get("bar") == bar][-1]
        assert last["done"] == last["total"] > 0


def test_a_flipped_byte_is_named_whether_the_index_knew_the_line_or_not(run):
    replace(part(run), b'"id":"train-0000-00002"', b'"id":"train-0000-0\xff002"')
    findings = checked(run)
    (finding,) = findings["findings"]
    start = len(trajectory(0).to_line()) + 1
    assert (finding["kind"], finding["file"], finding["place"]) == ("damaged_line", str(part(run)), f"byte {start}")
    assert "unicode" in finding["detail"] and finding["mend"]
    assert findings["trajectories"] == 6


@pytest.mark.parametrize("stored", ["NaN", "Infinity", '"NaN"', "1e999"])
def test_a_score_that_is_not_finite_is_named_and_is_no_success(run, stored):
    part = run.part(TRAIN, 0, 0)
    lines = part.read_text().splitlines()
    lines[0] = re.sub(r'"reward":[^,]*', f'"reward":{stored}', lines[0])
    part.write_text("\n".join(lines) + "\n")
    (finding,) = [one for one in checked(run)["findings"] if one["kind"] == "damaged_line"]
    assert finding["place"] == "byte 0" and "outcome.reward" in finding["detail"]
    damage = []
    assert ID.format(0) not in [one.id for one in scan(run, TRAIN, 0, damage)]
    assert ["outcome.reward" in line for line in damage] == [True]


def test_an_observation_that_is_not_of_one_moment_is_named(run):
    sound, other = (one.observation for one in trajectory(9).steps)
    digest = sound.compute_digest()
    seen = sound.model_copy(update={"digest": digest}), other.model_copy(update={"digest": digest})
    add(run, trajectory(9, steps=tuple(step(at, observation=seen[at]) for at in (0, 1))))
    assert "step 1 of" in only(run, "observation_altered", part(run))["detail"]


def test_an_unfinished_line_is_counted_and_no_finding(run):
    with part(run).open("ab") as file:
        file.write(trajectory(9).to_line().encode()[:-50])
    findings = checked(run)
    assert findings["findings"] == []
    assert findings["unfinished_bytes"] == len(trajectory(9).to_line()) - 50


def test_an_id_that_stands_twice_is_named(run):
    add(run, trajectory(1), rank=0)
    detail = only(run, "duplicate_id", part(run, 1))["detail"]
    assert ID.format(1) in detail and "part-0.jsonl (byte" in detail


def test_a_line_in_the_file_of_another_iteration_is_named(run):
    with run.part(TRAIN, 1).open("ab") as file:
        file.write(trajectory(1).to_line().encode() + b"\n")
    assert "train iteration 0" in only(run, "misplaced_line", run.part(TRAIN, 1))["detail"]


def fragment(run, table):
    update(run)
    source = next(source_file for source_file in fragments.list_sources(run) if source_file.path == part(run))
    (span,) = Catalog(run).chain(source)
    return source, span, Catalog(run).fragments(table, source.name)[span]


def forged(run, table, change):
    """Replace a fragment by one with other rows and a name that fits."""
    source, span, _ = fragment(run, table)
    paths = {name: Catalog(run).fragments(name, source.name)[span] for name in source.tables}
    tables = {name: arrow.read(path, name) for name, path in paths.items()}
    tables[table] = pa.Table.from_pylist(change(tables[table].to_pylist()), schema=tables[table].schema)
    tail = fragments.read_tail_digest(paths[source.main])
    for path in paths.values():
        path.unlink()
    arrow.write(run, source, span, tables, tail)


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("steps", lambda rows: rows[1:]),
        ("steps", lambda rows: [*rows, rows[-1]]),
        ("trajectories", lambda rows: [{**rows[0], "reward": 0.25, "seed": 99}, *rows[1:]]),
    ],
    ids=["missing", "too many", "other values"],
)
def test_rows_that_the_lines_do_not_give_are_named(run, table, change):
    forged(run, table, change)
    (finding,) = checked(run)["findings"]
    assert (finding["kind"], finding["mend"]) == ("index_differs", f"webgym inspect-buffer {run.root} --reindex")
    assert f"/{table}/" in finding["file"] and str(part(run)) in finding["detail"]


def test_truth_that_was_altered_behind_the_index_is_found(run):
    """The end of the file is what it was, so that catching up sees nothing."""
    for number in range(10, 20):
        add(run, trajectory(number))
    update(run)
    replace(part(run), b'"instruction":"Click', b'"instruction":"Flick')
    (finding,) = checked(run)["findings"]
    assert finding["kind"] == "index_differs" and str(part(run)) in finding["detail"]


def test_a_missing_image_is_named(run):
    image(run, 4).unlink()
    assert f"1 step of {run.part(TRAIN, 1)} (byte 0)" in only(run, "image_missing", image(run, 4))["detail"]
    image(run, 0).unlink()
    assert [one["detail"] for one in checked(run)["findings"] if "6 steps" in one["detail"]], "many show it"


@pytest.mark.parametrize("content", [b"", png(9), png(0)[:-1], png(0)[:30] + b"x" + png(0)[31:]])
def test_an_altered_image_is_named(run, content):
    image(run, 0).write_bytes(content)
    only(run, "image_altered", image(run, 0))


def test_an_image_that_cannot_be_read_is_not_called_altered(run):
    path = image(run, 0)
    path.unlink()
    path.mkdir()  # root reads files without permission
    only(run, "image_unreadable", path)


def test_what_was_no_image_from_the_start_is_named(run):
    broken = png(0)[:40] + b"xxxx" + png(0)[44:]
    kept = ScreenshotStore(run.screenshots).put(broken)
    append(run, showing(kept))
    only(run, "image_broken", ScreenshotStore(run.screenshots).path(kept.sha256))


def showing(kept):
    """Return a trajectory whose only step shows an image."""
    result = step()
    seen = result.observation.model_copy(update={"screenshot": kept})
    return trajectory(7, steps=(result.model_copy(update={"observation": seen}),))


def test_another_size_than_recorded_is_named(run):
    kept = ScreenshotStore(run.screenshots).put(png(77))
    append(run, showing(kept.model_copy(update={"width": 41})))
    detail = only(run, "image_size", image(run, 77))["detail"]
    assert detail.startswith("it is 40x32, ") and detail.endswith("has 41x32")


def test_images_that_nobody_names_are_counted_and_no_finding(run):
    ScreenshotStore(run.screenshots).put(png(200))
    findings = checked(run)
    assert findings["images"] == {"named": 5, "stored": 6, "unnamed": 1}
    assert findings["findings"] == []


def test_an_image_of_a_helper_s_call_is_named_and_checked(run):
    kept = ScreenshotStore(run.screenshots).put(png(200))
    run.sessions.mkdir()
    (run.sessions / "s1.jsonl").write_text(json.dumps({"event": "call", "screenshot": {"sha256": kept.sha256}}) + "\n")
    findings = checked(run)
    assert (findings["images"], findings["findings"]) == ({"named": 6, "stored": 6, "unnamed": 0}, [])
    image(run, 200).unlink()
    only(run, "image_missing", image(run, 200))


def test_re_encoded_images_are_sound_and_altered_ones_named(run):
    kept = ScreenshotStore(run.screenshots).put(png(50))
    append(run, showing(kept))
    recode(ScreenshotStore(run.screenshots), kept.sha256, webp(50))
    assert image(run, 50).suffix == ".webp"
    assert checked(run)["findings"] == []
    image(run, 50).write_bytes(b"RIFF")
    only(run, "image_altered", image(run, 50))


def test_more_findings_than_are_listed_are_counted_and_sent(run):
    for number in range(LISTED + 5):
        say(run, 100 + number)
    findings = checked(run)
    assert findings["findings_by_kind"] == {"lone_judgement": LISTED + 5}
    assert (len(findings["findings"]), findings["findings"][0]["file"]) == (LISTED, str(run.verdicts(TRAIN, 0)))
    assert ID.format(100)[:-2] in findings["findings"][0]["detail"]


def test_a_file_that_was_cut_or_deleted_is_named(run):
    verify(run, lambda event: None)
    cut, result = run.part(TRAIN, 0), run.part(TRAIN, 1)
    cut.write_bytes(b"".join(cut.read_bytes().splitlines(keepends=True)[:-1]))
    result.unlink()
    findings = checked(run)["findings"]
    missing = [finding["file"] for finding in findings if finding["kind"] == "lines_missing"]
    assert missing == [str(cut), str(result)]


def test_lines_that_the_metrics_know_of_are_missed_after_the_index_followed(run):
    append_event(run, {"event": "rollout", "split": "train", "iteration": 0, "episodes": 4})
    append_event(run, {"event": "evaluation", "split": "test", "iteration": 0, "episodes": 1})
    append_event(run, {"event": "rollout", "split": 3, "iteration": "x", "episodes": 9})
    assert checked(run)["findings"] == []
    part = run.part(TRAIN, 0)
    part.write_bytes(b"".join(part.read_bytes().splitlines(keepends=True)[:-2]))
    run.part(Split.TEST, 0).unlink()
    update(run)
    assert [
        (finding["kind"], finding["file"]) for finding in checked(run)["findings"] if "recorded" in finding["detail"]
    ] == [("lines_missing", str(run.part(Split.TEST, 0).parent)), ("lines_missing", str(part.parent))]


def test_damaged_records_beside_the_trajectories_are_named(run):
    record = run.checkpoints / "model_20260101_000000" / "checkpoint.json"
    record.parent.mkdir(parents=True)
    for file, content in ((record, "{"), (run.provenance, "[1"), (run.metrics, '{"event": "x"}\nrubbish\n{"torn')):
        file.write_text(content, encoding="utf-8")
    rows = [(finding["kind"], finding["file"], finding["place"]) for finding in checked(run)["findings"]]
    named = ((record, ""), (run.provenance, ""), (run.metrics, "line 2"))
    assert rows == [("damaged_record", str(file), place) for file, place in named]


def test_a_lost_line_of_the_batches_is_named(run):
    checkpoints = [published(run, Settings(), version) for version in (1, 2)]
    rows = [(finding["kind"], finding["file"], finding["detail"]) for finding in checked(run)["findings"]]
    assert [(kind, file) for kind, file, _ in rows] == [("lines_missing", str(run.batches))] * 2
    assert all(one.name in detail for one, (*_, detail) in zip(checkpoints, rows, strict=True))


def test_a_file_that_is_shorter_than_what_a_batch_read_of_it_is_named(run):
    part = run.part(Split.TRAIN, 0)
    read = {str(part.relative_to(run.root)): part.stat().st_size + 1}
    batch = TrainingBatch(
        parent=0, policy="base", mode="sync", iterations=(0,), groups=(), episodes=0, staleness={}, as_of=read,
        plan_digest="", config_digest="", created_at="2026-01-01T00:00:00+00:00",
    )  # fmt: skip
    run.batches.write_text("rubbish\n" + batch.model_dump_json(by_alias=True) + "\n")
    rows = [(finding["kind"], finding["file"], finding["place"]) for finding in checked(run)["findings"]]
    assert ("damaged_record", str(run.batches), "line 1") in rows
    assert ("lines_missing", str(part), "") in rows
