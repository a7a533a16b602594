"""Writes what LLaMA-Factory trains on. Runs in the train role: python llamafactory_ids.py <folder>...

Reads each folder's `config.yaml` and writes its `ids.jsonl`. One JSON object a line: input_ids, labels, the grid of
each image after the processor's resize, the pixels' digest.
"""

import hashlib
import json
import sys
from pathlib import Path

import yaml
from llamafactory.data import SFTDataCollatorWith4DAttentionMask, get_dataset, get_template_and_fix_tokenizer
from llamafactory.hparams import get_train_args
from llamafactory.model import load_tokenizer


def write(folder):
    arguments = yaml.safe_load((folder / "config.yaml").read_text())
    model_args, data_args, training_args, _, _ = get_train_args(arguments)
    loaded = load_tokenizer(model_args)
    template = get_template_and_fix_tokenizer(loaded["tokenizer"], data_args)
    dataset = get_dataset(template, model_args, data_args, training_args, stage="sft", **loaded)["train_dataset"]
    collator = SFTDataCollatorWith4DAttentionMask(template=template, **loaded)
    with (folder / "ids.jsonl").open("w") as out:
        for sample in dataset:
            batch = collator([dict(sample)])
            grids = batch["image_grid_thw"].tolist()
            pixels = hashlib.sha256(batch["pixel_values"].numpy().tobytes()).hexdigest()
            fields = {"ids": sample["input_ids"], "labels": sample["labels"], "grids": grids, "pixels": pixels}
            out.write(json.dumps(fields) + "\n")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        write(Path(name))
