"""Runs in the train environment: what LLaMA-Factory and transformers make of recipes, with no GPU and no weights.

python on_paper_train.py JOB.json        {"configs": {recipe: train_config.yaml}, "models": {id: config.json}}

Prints JSON: the arguments that LLaMA-Factory's parser returns for each recipe, and each model's parameters on the meta
device.
"""

import json
import sys
from pathlib import Path

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, AutoModelForImageTextToText, TrainingArguments
from transformers.training_args import ParallelMode
from transformers.utils.import_utils import is_torch_bf16_gpu_available

KEPT = ("deepspeed", "per_device_train_batch_size", "gradient_accumulation_steps", "learning_rate", "bf16", "seed")


def parsed(config):
    from llamafactory.hparams import get_train_args

    _, data, training, finetuning, _ = get_train_args(config)
    kept = {name: getattr(training, name) for name in KEPT}
    return kept | {"cutoff_len": data.cutoff_len, "template": data.template, "type": finetuning.finetuning_type}


def shapes(config):
    kind = CONFIG_MAPPING[config["model_type"]].from_dict(config)
    auto = AutoModelForImageTextToText if "text_config" in config else AutoModelForCausalLM
    with torch.device("meta"):
        model = auto.from_config(kind, dtype=torch.bfloat16)
    return {name: list(parameter.shape) for name, parameter in model.named_parameters()}


def on_a_gpu_host():
    """Let transformers believe that it is one of several processes on GPUs: arguments are checked, nothing is run."""
    torch.cuda.is_available = lambda: True
    torch.cuda.is_bf16_supported = lambda *_, **__: True
    is_torch_bf16_gpu_available.cache_clear()  # it was asked before, by what imported LLaMA-Factory
    TrainingArguments._setup_devices = property(lambda _: torch.device("cuda", 0))
    TrainingArguments.parallel_mode = property(lambda _: ParallelMode.DISTRIBUTED)
    TrainingArguments.world_size = property(lambda _: 8)
    TrainingArguments.distributed_state = None
    TrainingArguments._n_gpu = 1


if __name__ == "__main__":
    job = json.loads(Path(sys.argv[1]).read_text())
    result = {"models": {name: shapes(config) for name, config in job["models"].items()}}
    on_a_gpu_host()
    result["configs"] = {name: parsed(config) for name, config in job["configs"].items()}
    sys.stdout.write(f"\nRESULT {json.dumps(result)}\n")
