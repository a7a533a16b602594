"""Reads exports with Hugging Face `datasets`. Runs in the train role, with HF OUT."""

import json
import sys

from datasets import load_dataset


def main():
    parquet = load_dataset(sys.argv[1], split="train")
    sizes = [[list(image.size) for image in row["images"]] for row in parquet]
    fields = {"columns": parquet.column_names, "ids": parquet["id"][:], "sizes": sizes}
    with open(sys.argv[2], "w") as out:
        json.dump(fields, out)


if __name__ == "__main__":
    main()
