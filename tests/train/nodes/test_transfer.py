"""What travels to a node of its own file system, how often, and what becomes of it there."""

import hashlib
import json

import pytest
import yaml

from tests.train.nodes.node_runs import ready
from webgym_cli.errors import JobError, UsageError
from webgym_cli.train.nodes.transfer import FileEntry, NodeCache, TransferManifest, build_manifest
from webgym_cli.train.plan import plan_training


def entry(path, content: bytes) -> FileEntry:
    return FileEntry(path=str(path), size=len(content), digest=hashlib.sha256(content).hexdigest())


def manifest(*entries, **facts) -> TransferManifest:
    return TransferManifest(**{"entries": entries, "launch": {}, "folder": "/r/m.partial", "datasets": ()} | facts)


@pytest.fixture
def plan(run, role, tmp_path):
    model = tmp_path / "base"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").write_bytes(b"weights")
    settings = ready(run, role, tmp_path / "images", 5)
    config = yaml.safe_load((run.dataset / "train_config.yaml").read_text()) | {"model_name_or_path": str(model)}
    (run.dataset / "train_config.yaml").write_text(yaml.safe_dump(config))
    return plan_training(run, settings, {})


def test_all_that_the_launch_names_travels(plan, run, tmp_path):
    found = build_manifest(plan)
    by_path = {entry.path: entry for entry in found.entries}
    images = {str(tmp_path / "images" / f"{number}-{name}.png") for number in range(4) for name in ("before", "after")}
    model = {str(tmp_path / "base" / name) for name in ("config.json", "model.safetensors")}
    dataset = {str(run.dataset / name) for name in ("dataset_info.json", "finetune_train.json")}
    assert set(by_path) == images | model | dataset
    weights = by_path[str(tmp_path / "base/model.safetensors")]
    assert (weights.size, weights.digest) == (7, hashlib.sha256(b"weights").hexdigest())
    assert found.datasets == (str(run.dataset / "finetune_train.json"),)
    assert found.folder == str(plan.folder)


def test_an_image_that_is_gone_is_named(plan, tmp_path):
    (tmp_path / "images/2-after.png").unlink()
    with pytest.raises(UsageError, match=r"2-after.png: can't be sent to the other nodes: No such file"):
        build_manifest(plan)


def test_a_name_on_the_hub_does_not_travel(plan, monkeypatch):
    launch = plan.config | {"model_name_or_path": "Qwen/Qwen3-VL-8B-Instruct"}
    monkeypatch.setattr(type(plan), "launch", property(lambda self: launch))
    assert not [found.path for found in build_manifest(plan).entries if "base" in found.path]


def test_pieces_make_a_file_and_a_piece_may_come_twice(tmp_path):
    depot, sent = NodeCache(tmp_path), entry("/a", b"abcdef")
    assert depot.missing(manifest(sent, sent)) == [sent]
    depot.put(sent, 0, b"abcd")
    depot.put(sent, 0, b"abc")
    assert depot.missing(manifest(sent)) == [sent]
    for _ in range(2):
        depot.put(sent, 3, b"def")
    assert depot.missing(manifest(sent)) == []
    empty = entry("/b", b"")
    depot.put(empty, 0, b"")
    depot.lay_out(manifest(sent, empty))
    assert [(tmp_path / "tree" / name).read_bytes() for name in "ab"] == [b"abcdef", b""]


def test_a_file_that_changed_on_its_way_is_refused(tmp_path):
    depot, sent = NodeCache(tmp_path), entry("/a", b"abcdef")
    with pytest.raises(JobError, match="/a: it changed while it was sent"):
        depot.put(sent, 0, b"abcdeX")
    assert depot.missing(manifest(sent)) == [sent]


def test_what_names_files_names_their_new_places(tmp_path):
    samples = json.dumps([{"images": ["/r/shots/1.png"], "system": "/r/shots/1.png"}]).encode()
    sent = [entry("/r/data/train.json", samples), entry("/r/shots/1.png", b"png"), entry("/w/model.bin", b"w")]
    depot = NodeCache(tmp_path)
    for item, content in zip(sent, (samples, b"png", b"w"), strict=True):
        depot.put(item, 0, content)
    launch = {
        "model_name_or_path": "/w",
        "dataset_dir": "/r/data",
        "output_dir": "/r/m.partial",
        "template": "/q",
        "n": 1,
    }
    folder = depot.lay_out(manifest(*sent, launch=launch, datasets=("/r/data/train.json",)))
    tree = tmp_path / "tree"
    assert folder == tree / "r/m.partial"
    assert yaml.safe_load((folder / "launch.yaml").read_text()) == {
        "model_name_or_path": str(tree / "w"),
        "dataset_dir": str(tree / "r/data"),
        "output_dir": str(folder),
        "template": "/q",
        "n": 1,
    }
    moved = json.loads((tree / "r/data/train.json").read_text())
    assert moved == [{"images": [str(tree / "r/shots/1.png")], "system": "/r/shots/1.png"}]
    assert depot.missing(manifest(*sent)) == [], "the kept dataset is as it was sent"


def test_the_next_training_sends_what_is_new_and_drops_what_is_old(tmp_path):
    depot, old, kept, new = NodeCache(tmp_path), entry("/a", b"1"), entry("/b", b"2"), entry("/a", b"3")
    for item, content in ((old, b"1"), (kept, b"2")):
        depot.put(item, 0, content)
    depot.lay_out(manifest(old, kept))
    assert depot.missing(manifest(new, kept)) == [new]
    depot.put(new, 0, b"3")
    depot.lay_out(manifest(new, kept))
    assert (tmp_path / "tree/a").read_bytes() == b"3"
    assert {file.name for file in (tmp_path / "files").iterdir()} == {new.digest, kept.digest}
    assert depot.missing(manifest(old)) == [old]
