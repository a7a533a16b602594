"""Prints what LLaMA-Factory trains on. Runs in the train role: python llamafactory_ids.py <train_config.yaml>.

One JSON object a line: input_ids, labels, the grid of each image after the processor's resize, the pixels' digest.
"""

import hashlib
import json
import sys

import yaml
from llamafactory.data import SFTDataCollatorWith4DAttentionMask, get_dataset, get_template_and_fix_tokenizer
from llamafactory.hparams import get_train_args
from llamafactory.model import load_tokenizer


def main():
    with open(sys.argv[1]) as file:
        arguments = yaml.safe_load(file)
    model_args, data_args, training_args, _, _ = get_train_args(arguments)
    loaded = load_tokenizer(model_args)
    template = get_template_and_fix_tokenizer(loaded["tokenizer"], data_args)
    dataset = get_dataset(template, model_args, data_args, training_args, stage="sft", **loaded)["train_dataset"]
    collator = SFTDataCollatorWith4DAttentionMask(template=template, **loaded)
    with open(sys.argv[2], "w") as out:
        for sample in dataset:
            batch = collator([dict(sample)])
            grids = batch["image_grid_thw"].tolist()
            pixels = hashlib.sha256(batch["pixel_values"].numpy().tobytes()).hexdigest()
            found = {"ids": sample["input_ids"], "labels": sample["labels"], "grids": grids, "pixels": pixels}
            out.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
