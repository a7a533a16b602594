"""Parquet shards."""

import json

import pyarrow.parquet as pq
import pytest

from tests.prepare.buffer import fill
from tests.prepare.exported import exported, recode, webp
from tests.records.builders import UNSOLVED, new_run, png, shot, trajectory
from webgym_cli.prepare.export import shards as shards_module
from webgym_cli.prepare.export.options import ExportObjective, ExportOptions
from webgym_cli.prepare.export.shards import ParquetShards
from webgym_cli.store.screenshots import ScreenshotStore


@pytest.fixture
def run(tmp_path):
    run_dir = new_run(tmp_path / "run")
    fill(run_dir, trajectory(0), trajectory(1, steps=3), trajectory(2, outcome=UNSOLVED))
    return run_dir


def test_parquet_holds_records_images_and_features(run, tmp_path):
    exported(run, tmp_path / "out", format="hf", objective=ExportObjective.KTO)
    (shard,) = (tmp_path / "out" / "data").iterdir()
    assert shard.name == "train-00000-of-00001.parquet"
    rows = pq.read_table(shard).to_pylist()
    names = [row["id"].rpartition("-")[2] for row in rows]
    assert names == [f"{number:05}/{at}" for number, steps in enumerate((2, 3, 2)) for at in range(steps)]
    assert [row["kto_tag"] for row in rows] == [True] * 5 + [False] * 2
    assert rows[1]["images"] == [{"bytes": png(n), "path": f"{shot(n).sha256}.png"} for n in range(2)]
    _, lines = exported(run, format="messages", objective=ExportObjective.KTO)
    assert [row["messages"] for row in rows] == [line["messages"] for line in lines]
    features = json.loads(pq.read_schema(shard).metadata[b"huggingface"])["info"]["features"]
    assert list(features) == list(rows[0])
    assert features["images"] == [{"_type": "Image"}]


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
    rows = [[group.row_group(n).num_rows for n in range(group.num_row_groups)] for group in groups]
    assert rows == [[3, 3, 3, 3], [3, 3, 3, 3], [1]]
    assert [row for file in files for row in pq.read_table(file)["id"].to_pylist()] == [str(n) for n in range(25)]


def test_pairs_have_their_columns(run, tmp_path):
    shards = ParquetShards(tmp_path / "data", ExportOptions("hf", objective=ExportObjective.DPO))
    replies = {name: {"role": "assistant", "content": name} for name in ("chosen", "rejected")}
    shards.add({"id": "a", "messages": [{"role": "user", "content": ""}], "images": [], **replies})
    shards.close()
    (file,) = (tmp_path / "data").iterdir()
    (row,) = pq.read_table(file).to_pylist()
    assert {name: row[name] for name in replies} == replies


def test_a_recoded_screenshot_is_exported_as_it_is(run, tmp_path):
    recode(ScreenshotStore(run.screenshots), shot(0).sha256, webp(0))
    exported(run, tmp_path / "out", format="hf")
    (shard,) = (tmp_path / "out" / "data").iterdir()
    assert pq.read_table(shard).to_pylist()[0]["images"] == [{"bytes": webp(0), "path": f"{shot(0).sha256}.webp"}]
    _, lines = exported(run, copy_images=tmp_path / "images")
    assert lines[0]["images"] == [str(tmp_path / "images" / f"{shot(0).sha256}.webp")]
    _, lines = exported(run, format="openai", embed_images=True)
    assert lines[0]["messages"][1]["content"][0]["image_url"]["url"].startswith("data:image/webp;base64,")
