"""Parquet and tar shards."""

import json
import tarfile

import pyarrow.parquet as pq
import pytest

from tests.prepare.buffer import fill
from tests.prepare.exported import digest, exported, recode, webp
from tests.records.made import UNSOLVED, png, shot, trajectory
from webgym_cli.prepare.export import shards as shards_module
from webgym_cli.prepare.export.options import ExportObjective, ExportOptions, ExportUnit
from webgym_cli.prepare.export.shards import ParquetShards, TarShards
from webgym_cli.store.run import RunDir
from webgym_cli.store.screenshots import ScreenshotStore


@pytest.fixture
def run(tmp_path):
    made = RunDir(tmp_path / "run")
    fill(made, trajectory(0), trajectory(1, steps=3), trajectory(2, outcome=UNSOLVED))
    return made


def members(shard):
    with tarfile.open(shard) as tar:
        return {member.name: (member, tar.extractfile(member).read()) for member in tar}


# --- Parquet


def test_parquet_holds_records_images_and_features(run, tmp_path):
    exported(run, tmp_path / "out", format="hf", objective=ExportObjective.KTO)
    (shard,) = (tmp_path / "out" / "data").iterdir()
    assert shard.name == "train-00000-of-00001.parquet"
    rows = pq.read_table(shard).to_pylist()
    assert [row["id"].rpartition("-")[2] for row in rows] == [
        "00000/0", "00000/1", "00001/0", "00001/1", "00001/2", "00002/0", "00002/1",
    ]  # fmt: skip
    assert [row["kto_tag"] for row in rows] == [True] * 5 + [False] * 2
    assert rows[1]["images"] == [{"bytes": png(n), "path": f"{shot(n).sha256}.png"} for n in range(2)]
    _, lines = exported(run, format="messages", objective=ExportObjective.KTO)
    assert [row["messages"] for row in rows] == [line["messages"] for line in lines]
    told = json.loads(pq.read_schema(shard).metadata[b"huggingface"])["info"]["features"]
    assert list(told) == list(rows[0])
    assert told["images"] == [{"_type": "Image"}]


def test_parquet_shards_are_cut_by_size_and_row_groups_by_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(shards_module, "ROW_GROUP_BYTES", 300_000)
    shards = ParquetShards(tmp_path / "data", ExportOptions("hf", shard_megabytes=1))
    for number in range(25):
        image = {"bytes": bytes(100_000), "path": "x.png"}
        shards.add({"id": str(number), "messages": [{"role": "user", "content": "<image>"}], "images": [image]})
    shards.close()
    files = sorted((tmp_path / "data").iterdir())
    assert [file.name for file in files] == [f"train-0000{number}-of-00003.parquet" for number in range(3)]
    groups = [pq.ParquetFile(file).metadata for file in files]
    # a group of 3 records has 300,021 bytes; the 4th reaches 1 MB, the shard is then full
    assert [[group.row_group(n).num_rows for n in range(group.num_row_groups)] for group in groups] == [
        [3, 3, 3, 3], [3, 3, 3, 3], [1],
    ]  # fmt: skip
    assert [row for file in files for row in pq.read_table(file)["id"].to_pylist()] == [str(n) for n in range(25)]


def test_pairs_have_their_columns(run, tmp_path):
    shards = ParquetShards(tmp_path / "data", ExportOptions("hf", objective=ExportObjective.DPO))
    replies = {name: {"role": "assistant", "content": name} for name in ("chosen", "rejected")}
    shards.add({"id": "a", "messages": [{"role": "user", "content": ""}], "images": [], **replies})
    shards.close()
    (file,) = (tmp_path / "data").iterdir()
    (row,) = pq.read_table(file).to_pylist()
    assert {name: row[name] for name in replies} == replies


# --- tar


@pytest.mark.parametrize("unit", ExportUnit)
def test_tar_holds_each_record_beside_its_images(run, tmp_path, unit):
    exported(run, tmp_path / "out", format="webdataset", unit=unit)
    _, lines = exported(run, format="messages", unit=unit)
    found = members(tmp_path / "out" / "train-000000.tar")
    assert len([name for name in found if name.endswith(".json")]) == len(lines)
    for number, line in enumerate(lines):
        kept = json.loads(found[f"{number:09d}.json"][1])
        assert {**kept, "images": line["images"]} == line
        assert kept["images"] == [f"{number:09d}.{n}.png" for n in range(len(line["images"]))]
        assert [found[name][1] for name in kept["images"]] == [png(n) for n in range(len(kept["images"]))]
    keys = [name.partition(".")[0] for name in found]
    assert keys == sorted(keys), "what belongs together stands together"
    assert {(member.mtime, member.uid, member.gid, member.uname) for member, _ in found.values()} == {(0, 0, 0, "")}


def test_the_same_records_give_the_same_tars(run, tmp_path):
    for name in "ab":
        exported(run, tmp_path / name, format="webdataset")
    assert digest(tmp_path / "a") == digest(tmp_path / "b")


def test_tars_are_cut_by_size_between_records(tmp_path):
    shards = TarShards(tmp_path, 250_000)
    for number in range(5):
        shards.add({"id": str(number), "images": [png(0) + bytes(100_000)] * 2})
    shards.close()
    found = [members(tmp_path / f"train-00000{number}.tar") for number in range(3)]
    assert [sorted({name.partition(".")[0][-1] for name in shard}) for shard in found] == [
        ["0", "1"],
        ["2", "3"],
        ["4"],
    ]
    assert not (tmp_path / "train-000003.tar").exists()


def test_images_keep_the_form_in_which_they_are_stored(tmp_path):
    """The store may hold WebP in place of PNG."""
    shards = TarShards(tmp_path, 10**6)
    shards.add({"id": "a", "images": [png(0), webp(1)]})
    shards.close()
    found = members(tmp_path / "train-000000.tar")
    assert json.loads(found["000000000.json"][1])["images"] == ["000000000.0.png", "000000000.1.webp"]
    assert found["000000000.1.webp"][1] == webp(1)


def test_a_recoded_screenshot_is_exported_as_it_is(run, tmp_path):
    store = ScreenshotStore(run.screenshots)
    recode(store, shot(0).sha256, webp(0))
    exported(run, tmp_path / "out", format="hf")
    (shard,) = (tmp_path / "out" / "data").iterdir()
    assert pq.read_table(shard).to_pylist()[0]["images"] == [{"bytes": webp(0), "path": f"{shot(0).sha256}.webp"}]
    _, lines = exported(run, copy_images=tmp_path / "images")
    assert lines[0]["images"] == [str(tmp_path / "images" / f"{shot(0).sha256}.webp")]
    _, lines = exported(run, format="openai", embed_images=True)
    url = lines[0]["messages"][1]["content"][0]["image_url"]["url"]
    assert url.startswith("data:image/webp;base64,")
