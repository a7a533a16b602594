"""The same optimizer steps by TRL's GRPOTrainer: the same model, prompts, completions and rewards, and no generation.

Runs in an interpreter with TRL, takes a job as JSON on stdin and prints what it took as JSON, as `rl_job` does.
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
from trl import GRPOConfig, GRPOTrainer

from benchmarks.rl_meter import Meter, likeness, write_gradient


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


class Scored(GRPOTrainer):  # type: ignore[misc]
    """TRL's trainer, which leaves the seconds in which it scores its batch out of the meter's."""

    meter: Meter

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        began = time.perf_counter()
        result = super()._generate_and_score_completions(inputs)
        self.meter.leave_out(time.perf_counter() - began)
        return result


def rollout(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what TRL takes in place of what it would generate."""
    split = [row["mask"].index(1) for row in rows]
    return {
        "prompt_ids": [row["input_ids"][:place] for row, place in zip(rows, split, strict=True)],
        "completion_ids": [row["input_ids"][place:] for row, place in zip(rows, split, strict=True)],
        "logprobs": None,
    }


def settings(job: dict[str, Any], sequences: int) -> dict[str, Any]:
    """Return TRL's options: ours, where it has the same."""
    return {
        "output_dir": job["folder"],
        "per_device_train_batch_size": job["micro_batch"],
        "gradient_accumulation_steps": sequences // job["micro_batch"],
        "num_generations": job["group_size"],
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
    data, gradient = Path(job["data"]), Path(job["folder"]) / "gradient.safetensors"
    rows, trajectories = (_read(data / f"{name}.jsonl") for name in ("rows", "trajectories"))
    rewards = [trajectory["reward"] for trajectory in trajectories]
    meter = Meter(job["steps"])
    gradient.parent.mkdir(exist_ok=True)
    trainer = Scored(
        # as ours: bfloat16 is for the passes only
        model=AutoModelForCausalLM.from_pretrained(job["model"], dtype="float32"),
        reward_funcs=lambda **_: rewards,
        args=GRPOConfig(**settings(job, len(rows))),
        # TRL repeats each prompt for its group, in this order: that of the rows
        train_dataset=Dataset.from_dict({"prompt": [str(group) for group in range(len(rows) // job["group_size"])]}),
        processing_class=_tokenizer(),
        callbacks=[Steps(meter, gradient)],
        rollout_func=lambda *_: rollout(rows),
    )
    trainer.meter = meter
    trainer.train()
    return {**meter.report("trl"), "gradients": [likeness(Path(ours), gradient) for ours in job["gradients"]]}


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
