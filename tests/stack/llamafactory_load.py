"""Loads exported folders as LLaMA-Factory trains on them. Runs in the train role, with CASES OUT.

A case is LLaMA-Factory's settings. For each: its rows, with the text of what is trained and the number of images that
were decoded.
"""

import json
import sys

from llamafactory.data import (
    KTODataCollatorWithPadding,
    PairwiseDataCollatorWithPadding,
    SFTDataCollatorWith4DAttentionMask,
    get_dataset,
    get_template_and_fix_tokenizer,
)
from llamafactory.hparams import get_train_args
from llamafactory.model import load_tokenizer

STAGES = {
    "sft": ("sft", SFTDataCollatorWith4DAttentionMask),
    "dpo": ("rm", PairwiseDataCollatorWithPadding),
    "kto": ("kto", KTODataCollatorWithPadding),
}
IGNORED = -100


def trained(tokenizer, labels):
    """Return the texts of the stretches that are trained on."""
    stretches, before = [], IGNORED
    for label in labels:
        if label != IGNORED:
            if before == IGNORED:
                stretches.append([])
            stretches[-1].append(label)
        before = label
    return [tokenizer.decode(stretch) for stretch in stretches]


def row(sample, tokenizer, collator):
    batch = collator([dict(sample), dict(sample)])
    by_name = {name: trained(tokenizer, sample[name]) for name in sample if name.endswith("labels")}
    ids = sample.get("input_ids", sample.get("chosen_input_ids"))
    image = tokenizer.convert_tokens_to_ids("<|image_pad|>")
    return {
        **by_name,
        "kto_tag": sample.get("kto_tags"),
        "prompt": tokenizer.decode([token for token in ids if token != image]),
        "images": len(sample["images"] or []),
        "decoded": len(batch["image_grid_thw"]),
    }


def load(case):
    model_args, data_args, training_args, _, _ = get_train_args(dict(case))
    loaded = load_tokenizer(model_args)
    template = get_template_and_fix_tokenizer(loaded["tokenizer"], data_args)
    stage, collator = STAGES[case["stage"]]
    dataset = get_dataset(template, model_args, data_args, training_args, stage=stage, **loaded)["train_dataset"]
    collate = collator(template=template, **loaded)
    return [row(sample, loaded["tokenizer"], collate) for sample in dataset]


def main():
    with open(sys.argv[1]) as file:
        cases = json.load(file)
    with open(sys.argv[2], "w") as out:
        json.dump({name: load(case) for name, case in cases.items()}, out)


if __name__ == "__main__":
    main()
