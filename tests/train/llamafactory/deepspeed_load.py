"""Runs in the train environment: what transformers and DeepSpeed make of configurations. Prints JSON, by file name.

python deepspeed_load.py FOLDER FILE...
"""

import json
import sys
from pathlib import Path

from deepspeed.runtime.config import DeepSpeedConfig
from deepspeed.runtime.zero.offload_config import OffloadDeviceEnum
from transformers import TrainingArguments
from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

HIDDEN = 64


class Model:
    """What the integration asks of a model."""

    class config:
        hidden_size = HIDDEN


def loaded(file, folder):
    batch = {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 4}
    arguments = TrainingArguments(output_dir=folder, bf16=True, use_cpu=True, **batch)
    config = HfTrainerDeepSpeedConfig(file)
    config.trainer_config_process(arguments)
    config.trainer_config_finalize(arguments, Model, 100)
    speed_config = DeepSpeedConfig(config.config)
    zero = speed_config.zero_config
    return {
        "stage": int(zero.stage),
        "optimizer": OffloadDeviceEnum(zero.offload_optimizer.device).value if zero.offload_optimizer else None,
        "parameters": OffloadDeviceEnum(zero.offload_param.device).value if zero.offload_param else None,
        "overlap": zero.overlap_comm,
        "bucket": zero.reduce_bucket_size,
        "whole_weights": zero.gather_16bit_weights_on_model_save,
        "bf16": speed_config.bfloat16_config.enabled,
        "batch": speed_config.train_batch_size,
    }


if __name__ == "__main__":
    by_name = {Path(file).name: loaded(file, sys.argv[1]) for file in sys.argv[2:]}
    sys.stdout.write(f"RESULT {json.dumps(by_name)}\n")
