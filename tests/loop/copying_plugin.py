"""Training backends without a training: one for batches, one for datasets."""

from pathlib import Path

from webgym_cli.train.registry import BACKENDS
from webgym_cli.train.script import script_backend

TRAINER = Path(__file__).with_name("copying_trainer.py")
BACKENDS.register("copying_batch", script_backend(TRAINER, data="batch"))
BACKENDS.register("copying_dataset", script_backend(TRAINER, data="dataset"))
