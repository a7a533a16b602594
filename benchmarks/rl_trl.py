"""The same optimizer steps by TRL's GRPOTrainer: the same model, prompts, completions and rewards, and no generation.

Runs in the train role's interpreter, takes a job as JSON on stdin and prints what it took as JSON, as `rl_job` does.
What TRL does in place of generating (padding, decoding, rewards, advantages) isn't counted, as it isn't in ours.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from datasets import Dataset
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, TrainerCallback

from benchmarks.rl_meter import Meter, likeness, write_gradient


def trl() -> Any:
    """Return the library.

    TRL 0.24 takes the answers of transformers 5 on what is installed, pairs of a bool and a version, for a yes: it
    would import what isn't there.
    """
    from trl import import_utils

    for name, value in list(vars(import_utils).items()):
        if name.endswith("_available") and isinstance(value, tuple):
            setattr(import_utils, name, value[0])
    import trl as library

    return library


class Steps(TrainerCallback):  # type: ignore[misc]
    """Puts the optimizer steps on a meter, and writes the gradient of the first into a file."""

    def __init__(self, meter: Meter, gradient: Path) -> None:
        self.meter, self.gradient = meter, gradient

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """See `TrainerCallback`."""
        self.meter.begin()

    def on_pre_optimizer_step(self, *_: Any, model: Any, **__: Any) -> None:
        """See `TrainerCallback`."""
        if self.meter.first:
            write_gradient(model, self.gradient)

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """See `TrainerCallback`."""
        self.meter.end()


def without_generation(kind: Any, rows: list[dict[str, Any]], meter: Meter) -> Any:
    """Return the trainer with given completions in place of those that it would generate."""
    split = [row["mask"].index(1) for row in rows]
    prompts = [row["input_ids"][:place] for row, place in zip(rows, split, strict=True)]
    completions = [row["input_ids"][place:] for row, place in zip(rows, split, strict=True)]

    class Given(kind):  # type: ignore[misc]
        def _generate_single_turn(self, *_: Any) -> Any:
            return prompts, completions, None, {}

        def _generate_and_score_completions(self, inputs: Any) -> Any:
            began = time.perf_counter()
            made = super()._generate_and_score_completions(inputs)
            meter.leave_out(time.perf_counter() - began)
            return made

    return Given


def settings(job: dict[str, Any], sequences: int) -> dict[str, Any]:
    """Return TRL's options: ours, where it has the same."""
    return {
        "output_dir": job["folder"],
        "per_device_train_batch_size": job["micro_batch"],
        "gradient_accumulation_steps": sequences // job["micro_batch"],
        "num_generations": job["group_size"],
        "max_prompt_length": None,
        "max_steps": job["steps"] + 1,
        "gradient_checkpointing": True,
        "gradient_checkpointing_kwargs": {"use_reentrant": False},
        "loss_type": "dapo",  # the mean over all tokens of the optimizer step: our token-mean
        "beta": 0.0,
        "temperature": job["temperature"],
        "learning_rate": job["lr"],
        "max_grad_norm": job["grad_clip"],
        "lr_scheduler_type": "constant",
        "shuffle_dataset": False,
        "disable_dropout": True,
        "bf16": job["gpu"],
        "use_cpu": not job["gpu"],
        "logging_steps": 1,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
    }


def update(job: dict[str, Any]) -> dict[str, Any]:
    """Train, and measure the optimizer steps."""
    library, data, gradient = trl(), Path(job["data"]), Path(job["folder"]) / "gradient.safetensors"
    rows, trajectories = (_read(data / f"{name}.jsonl") for name in ("rows", "trajectories"))
    rewards = [trajectory["reward"] for trajectory in trajectories]
    meter = Meter(job["steps"])
    gradient.parent.mkdir(exist_ok=True)
    trainer = without_generation(library.GRPOTrainer, rows, meter)(
        model=_network(job["model"]),
        reward_funcs=lambda **_: rewards,
        args=library.GRPOConfig(**settings(job, len(rows))),
        # TRL repeats each prompt for its group, in this order: that of the rows
        train_dataset=Dataset.from_dict({"prompt": [str(group) for group in range(len(rows) // job["group_size"])]}),
        processing_class=_tokenizer(),
        callbacks=[Steps(meter, gradient)],
    )
    trainer.train()
    return {**meter.told(), "gradients": [likeness(Path(ours), gradient) for ours in job["gradients"]]}


def _network(folder: str) -> Any:
    network = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")  # as ours: bfloat16 is for the passes only
    network.warnings_issued = {}  # TRL 0.24 writes into it, transformers 5 has it no more
    return network


def _tokenizer() -> Any:
    """Return a tokenizer that TRL pads with: there are no texts."""
    words = Tokenizer(models.WordLevel({"<pad>": 0, "<end>": 1}, unk_token="<pad>"))
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<end>")


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def main() -> int:
    """Read a job from stdin, do it and print the figures."""
    print(json.dumps(update(json.load(sys.stdin))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
