"""Reads exports with Hugging Face `datasets`. Runs in the train role, with HF TARS OUT."""

import json
import sys
from pathlib import Path

from datasets import Features, Image, Value, load_dataset


def main():
    parquet = load_dataset(sys.argv[1], split="train")
    sizes = [[list(image.size) for image in row["images"]] for row in parquet]
    shards = sorted(map(str, Path(sys.argv[2]).glob("*.tar")))
    images = {f"{number}.png": Image() for number in range(3)}
    message = {"role": Value("string"), "content": Value("string")}
    record = {"id": Value("string"), "messages": [message], "images": [Value("string")]}
    known = {"json": record, **images, "__key__": Value("string"), "__url__": Value("string")}
    tars = load_dataset("webdataset", data_files={"train": shards}, split="train", features=Features(known))
    found = {
        "columns": parquet.column_names,
        "ids": parquet["id"][:],
        "sizes": sizes,
        "tar_ids": [row["json"]["id"] for row in tars],
        "tar_images": [sum(row[name] is not None for name in images) for row in tars],
    }
    with open(sys.argv[3], "w") as out:
        json.dump(found, out)


if __name__ == "__main__":
    main()
