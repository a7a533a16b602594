"""The export format `hf`: Parquet shards that contain the images. Only a few records are in memory at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from webgym_cli.prepare.export.formats import MESSAGES, build_messages_record
from webgym_cli.prepare.export.options import ExportObjective, ExportOptions
from webgym_cli.prepare.export.outputs import ExportOutput
from webgym_cli.prepare.export.registry import export_format
from webgym_cli.prepare.sft.convert import Example

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


class ParquetShards:
    """Writes `train-00000-of-00003.parquet`, ... with the features that `datasets` reads from the schema."""

    def __init__(self, folder: Path, options: ExportOptions) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._schema = _schema(options.objective)
        self._limit = (options.shard_megabytes or 500) * MEGABYTE
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
            self._open.close()
            self._shards.append(self._folder / f"train-{len(self._shards):05d}.parquet")
            file = pq.ParquetWriter(self._shards[-1], self._schema, compression="zstd")
            self._file, self._size = self._open.enter_context(file), 0
        self._file.write_table(pa.Table.from_pylist(self._rows, schema=self._schema))
        self._size += self._held
        self._rows, self._held = [], 0


def _schema(objective: ExportObjective) -> pa.Schema:
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
