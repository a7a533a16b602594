"""Does one thing with the trainer, as a job that comes in as JSON says, and prints what it took as JSON.

Runs in the train role's interpreter, a process of its own for each: its memory is nobody else's. `models` writes
models with random weights and says whether there is a GPU, `update` trains: the shipped trainer, which is stopped after
as many optimizer steps as are wanted.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from torch.optim.optimizer import register_optimizer_step_pre_hook

from benchmarks.rl_meter import Meter, write_gradient
from webgym_cli.testing.tiny_model_build import preprocessor
from webgym_cli.trainer.engine.distributed import init
from webgym_cli.trainer.options import TrainingError, read_options
from webgym_cli.trainer.ppo.ppo_trainer import PolicyGradientTrainer


class Enough(Exception):
    """All steps that are wanted have been made."""


def models(job: dict[str, Any]) -> dict[str, Any]:
    """Write models of the given configurations into their folders; return the GPU's name and bytes, if there is one."""
    there = torch.cuda.is_available()
    for wanted in job["models"]:
        torch.manual_seed(0)
        # billions of random numbers take a CPU minutes
        with torch.device("cuda" if there else "cpu"):
            write_model(Path(wanted["folder"]), wanted["sizes"], getattr(torch, job["dtype"]))
    memory = torch.cuda.mem_get_info()[1] if there else 0
    return {"gpu": torch.cuda.get_device_name() if there else "", "memory": memory}


def write_model(folder: Path, sizes: dict[str, Any], dtype: torch.dtype) -> None:
    """Write a model with random weights: a Qwen2 unless its configuration names another kind."""
    config = transformers.AutoConfig.for_model(**{"model_type": "qwen2", **sizes})
    sees = hasattr(config, "vision_config")
    kind = transformers.AutoModelForImageTextToText if sees else transformers.AutoModelForCausalLM
    kind.from_config(config, dtype=dtype).save_pretrained(folder)
    if sees:
        fields = {**preprocessor(65_536), "image_processor_type": "Qwen2VLImageProcessorFast"}
        (folder / "preprocessor_config.json").write_text(json.dumps(fields), encoding="utf-8")


def update(job: dict[str, Any]) -> dict[str, Any]:
    """Train, and measure the optimizer steps."""
    meter = Meter(job["steps"])
    gradient = Path(job["gradient"]) if job.get("gradient") else None

    class Measured(PolicyGradientTrainer):
        def step(self, *given: Any) -> Any:
            with watched(self.engines["actor"].module.network, gradient if meter.first else None):
                meter.begin()
                result = super().step(*given)
                meter.end()
            if meter.enough:
                raise Enough
            return result

    training = Measured(read_options(Path(job["config"])), init(grouped=False))
    try:
        training.run()
    except Enough:
        about = {name: training.metrics[f"timing_s/{name}"] for name in ("old_log_prob", "adv")}
        return {**meter.report(), **about, "attention": training.factory.attention}
    raise TrainingError(f"{job['config']}: it ended before {job['steps']} steps were measured")


@contextmanager
def watched(network: Any, gradient: Path | None) -> Iterator[None]:
    """Write the gradient that the optimizer is given into a file, if there is to be one."""
    if gradient is None:
        yield
        return
    with register_optimizer_step_pre_hook(lambda *_: write_gradient(network, gradient)):
        yield


JOBS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {"models": models, "update": update}


def main() -> int:
    """Read a job from stdin, do it and print the figures."""
    job = json.load(sys.stdin)
    try:
        result = JOBS[job["what"]](job)
    except TrainingError as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
