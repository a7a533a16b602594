"""Export formats with images in shards: Parquet and tar. Only a few records are in memory at a time."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from webgym_cli.prepare.export.formats import MESSAGES, build_messages_record
from webgym_cli.prepare.export.options import ExportObjective, ExportOptions
from webgym_cli.prepare.export.outputs import ExportOutput
from webgym_cli.prepare.export.registry import export_format
from webgym_cli.prepare.sft.conversations import Example
from webgym_cli.store.screenshots import data_url_type
from webgym_cli.util.strict_json import encode_json

MEGABYTE = 10**6
# Maximum bytes of buffered records and images.
ROW_GROUP_BYTES = 32 * MEGABYTE
# Maximum records per row group, which readers load as a whole.
ROW_GROUP_ROWS = 1000


@export_format("hf", file_name=None, dataset_entry={"file_name": "data", **MESSAGES})
def write_parquet(examples: Iterator[Example], output: ExportOutput) -> None:
    """A folder that `datasets.load_dataset` reads: Parquet shards with the images inside."""

    def locate(sha256: str) -> dict[str, Any]:
        return {"bytes": output.image_bytes(sha256), "path": output.image_name(sha256)}

    shards = ParquetShards(output.folder / "data", output.options)
    for example in examples:
        shards.add(build_messages_record(example, locate))
    shards.close()


# LLaMA-Factory reads no tar; unpacking all shards with two runs of tar gives these lines.
@export_format("webdataset", file_name=None, dataset_entry={"file_name": "train.jsonl", **MESSAGES})
def write_tar(examples: Iterator[Example], output: ExportOutput) -> None:
    """A folder of tar shards with the images inside."""
    shards = TarShards(output.folder, output.options.shard_megabytes * MEGABYTE)
    for example in examples:
        shards.add(build_messages_record(example, output.image_bytes))
    shards.close()


class ParquetShards:
    """Writes `train-00000-of-00003.parquet`, ... with the features that `datasets` reads from the schema."""

    def __init__(self, folder: Path, options: ExportOptions) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._schema = _schema(options.objective)
        self._limit = options.shard_megabytes * MEGABYTE
        self._rows: list[dict[str, Any]] = []
        self._held = self._size = 0
        self._open = ExitStack()
        self._file: pq.ParquetWriter | None = None
        self._shards: list[Path] = []

    def add(self, record: dict[str, Any]) -> None:
        """Write a record; its images are `{"bytes", "path"}`."""
        self._rows.append(record)
        self._held += sum(len(message["content"]) for message in record["messages"])
        self._held += sum(len(image["bytes"]) for image in record["images"])
        if self._held >= min(ROW_GROUP_BYTES, self._limit) or len(self._rows) >= ROW_GROUP_ROWS:
            self._flush()

    def close(self) -> None:
        """Finish the last shard and rename all shards to contain their total number."""
        if self._rows:
            self._flush()
        self._open.close()
        # The number of shards in each name is known only now.
        for number, shard in enumerate(self._shards):
            shard.rename(self._folder / f"train-{number:05d}-of-{len(self._shards):05d}.parquet")

    def _flush(self) -> None:
        if self._file is None or self._size >= self._limit:
            self._next()
        assert self._file is not None
        self._file.write_table(pa.Table.from_pylist(self._rows, schema=self._schema))
        self._size += self._held
        self._rows, self._held = [], 0

    def _next(self) -> None:
        self._open.close()
        self._shards.append(self._folder / f"train-{len(self._shards):05d}.parquet")
        file = pq.ParquetWriter(self._shards[-1], self._schema, compression="zstd")
        self._file = self._open.enter_context(file)
        self._size = 0


class TarShards:
    """Writes `train-000000.tar`, ...: for each record `<key>.json` and `<key>.0.png`, `<key>.1.png`, ... in order.

    The same records give the same bytes.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        """`limit`: size in bytes from which the next record starts a new shard."""
        self._folder = folder
        self._limit = limit
        self._count = self._shards = 0
        self._open = ExitStack()
        self._tar: BinaryIO | None = None

    def add(self, record: dict[str, Any]) -> None:
        """Write a record; its images are bytes, which it references by their names in the archive."""
        if self._tar is None or self._tar.tell() >= self._limit:
            self._tar = self._next()
        key = f"{self._count:09d}"
        self._count += 1
        suffixes = [data_url_type(image).removeprefix("image/") for image in record["images"]]
        names = [f"{key}.{number}.{suffix}" for number, suffix in enumerate(suffixes)]
        text = encode_json(record | {"images": names}) + "\n"
        for name, content in ((f"{key}.json", text.encode()), *zip(names, record["images"], strict=True)):
            self._tar.write(_member(name, content))

    def close(self) -> None:
        """Finish the last shard."""
        if self._tar is not None:
            self._tar.write(bytes(2 * tarfile.BLOCKSIZE))
        self._open.close()

    def _next(self) -> BinaryIO:
        self.close()
        path = self._folder / f"train-{self._shards:06d}.tar"
        self._shards += 1
        return self._open.enter_context(path.open("wb"))


def _member(name: str, content: bytes) -> bytes:
    """Return a tar member with time and owner 0."""
    # Not with `TarFile`, which keeps all members in memory.
    header = tarfile.TarInfo(name)
    header.size = len(content)
    return header.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-len(content) % tarfile.BLOCKSIZE)


def _schema(objective: ExportObjective) -> pa.Schema:
    """Return the schema of a Parquet shard, with the features for `datasets` in its metadata."""
    text, message = pa.string(), pa.struct([("role", pa.string()), ("content", pa.string())])
    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    columns: dict[str, pa.DataType] = {"id": text, "messages": pa.list_(message), "images": pa.list_(image)}
    value = {"dtype": "string", "_type": "Value"}
    features: dict[str, Any] = {
        "id": value,
        "messages": [{"role": value, "content": value}],
        "images": [{"_type": "Image"}],
    }
    if objective is ExportObjective.DPO:
        columns |= {"chosen": message, "rejected": message}
        features |= {name: {"role": value, "content": value} for name in ("chosen", "rejected")}
    if objective is ExportObjective.KTO:
        columns["kto_tag"] = pa.bool_()
        features["kto_tag"] = {"dtype": "bool", "_type": "Value"}
    schema = json.dumps({"info": {"features": features}})
    return pa.schema(list(columns.items()), metadata={"huggingface": schema})
