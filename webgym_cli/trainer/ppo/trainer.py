"""The training loop shared by all trainers, from the batch to the finished model; resumable after an interruption.

The abstract methods at the end of `Trainer` are what a subclass adds.
"""

from __future__ import annotations

import json
import math
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import torch

import webgym_cli.trainer.engine.checkpoint as checkpoint
from webgym_cli.records.training_files import TRAINER_LOG
from webgym_cli.trainer.data import Batch, TrainRow
from webgym_cli.trainer.engine.distributed import DistributedContext
from webgym_cli.trainer.engine.engine import TrainEngine
from webgym_cli.trainer.engine.model_factory import ModelFactory
from webgym_cli.trainer.engine.step import BatchRunner
from webgym_cli.trainer.model.model import model_folder
from webgym_cli.trainer.options import TrainerOptions, TrainingError, read_object
from webgym_cli.trainer.ppo.batch_targets import BatchTargets, load_targets
from webgym_cli.util.json_values import digest_json
from webgym_cli.util.optional import map_known
from webgym_cli.util.text import map_texts
from webgym_cli.util.training_log import trim_log


class Trainer(ABC):
    """One training, from its batch to the finished model. Its methods raise `TrainingError`."""

    critic_only_steps = 0
    """Number of critic-only warm-up steps, made before the targets are computed."""

    def __init__(self, options: TrainerOptions, world: DistributedContext) -> None:
        """Read the batch and plan its optimizer steps."""
        self.options, self.world = options, world
        self.batch = self.load_batch()
        check_lengths(self.batch.rows, options.actor.ppo_max_token_len_per_gpu)
        self.output = Path(options.trainer.output_dir)
        self.folder = model_folder(options.model.path)
        self.sources = {"actor": self.folder}
        if options.needs_critic:
            self.sources["critic"] = model_folder(options.critic.path or options.model.path)
        self.steps = self.make_minibatches()
        self.digest = digest(options, self.batch)
        former = digest(options, self.batch, former=True)
        if checkpoint.newest_state(self.output, former):  # an older version began this training
            self.digest = former
        self.factory = ModelFactory(options, world, self.batch)
        self.engines: dict[str, TrainEngine] = {}
        self.metrics: dict[str, float] = {}

    def run(self) -> Path:
        """Run the training, or resume it; return the folder of the finished model."""
        target = self.output / f"checkpoint-{len(self.steps)}"
        if checkpoint.is_finished(self.output, len(self.steps), self.digest):
            return target
        self.output.mkdir(parents=True, exist_ok=True)
        with self._time("step"):
            known = load_targets(self.output, self.digest)
            state = checkpoint.newest_state(self.output, self.digest)
            if state and known is None and state[1] > self.critic_only_steps:
                state = None  # the targets depend on the initial actor, which this state has already changed
            self.world.wait()  # all processes must have looked for targets and states before one writes them
            reference = self._own_reference() if known is None else None
            folder, done = state or (None, 0)
            runner, total = self._start(folder), len(self.steps)
            log = TrainerLog(self.output, total, self.epochs, done) if self.world.is_main_process else None
            self._improve(runner, known or BatchTargets(), range(done, self.critic_only_steps), log)
            targets = known or self.compute_targets(runner, reference)
            if known is None:  # saved in case of an interruption
                if self.world.is_main_process:
                    targets.save(self.output, self.digest)
                self.world.wait()
            self._improve(runner, targets, range(max(done, self.critic_only_steps), total), log)
        self._finish(targets, log)
        return target

    def _own_reference(self) -> torch.Tensor | None:
        """Return the log-probs [K] of a separate reference model, which is in memory only meanwhile; else None."""
        if not self.options.needs_reference or self.options.ref.path is None:
            return None
        folder = model_folder(self.options.ref.path)
        reference = self.factory.reference(folder)
        collate = self.factory.collator(folder, reference.module.network)
        with self._time("ref"):
            return BatchRunner(self.options, self.world, self.batch, collate).score(reference)

    def _start(self, state: Path | None) -> BatchRunner:
        """Load the trained networks from `state`, else the previous training's state, else the plain models."""
        torch.manual_seed(self.options.trainer.seed)  # new parameters (adapter, head) start equal in all processes
        self.engines = {"actor": self.factory.actor(self.folder)}
        if self.options.needs_critic:
            self.engines["critic"] = self.factory.critic(self.sources["critic"])
        collate = self.factory.collator(self.folder, self.engines["actor"].module.network)
        carried = self.options.trainer.carry_state
        source = state or (Path(carried) if carried else None)
        for name, engine in self.engines.items():
            if source is not None and not self._has_merged(name, source):
                engine.load(source / name)
        return BatchRunner(self.options, self.world, self.batch, collate)

    def _has_merged(self, name: str, states: Path) -> bool:
        """Whether a network starts from weights that have the adapter of these states: loaded, it would count twice.

        That is a critic, whose next adapter is a new one; the policy goes on with its own on the weights below it.
        """
        return self.options.model.lora_rank > 0 and self.sources[name] == states.with_name(name)

    def _improve(self, runner: BatchRunner, targets: BatchTargets, numbers: range, log: TrainerLog | None) -> None:
        """Make the optimizer steps `numbers`, with a state every `save_freq`."""
        total, every = len(self.steps), self.options.trainer.save_freq
        for number in numbers:
            with self._time("update_actor" if number >= self.critic_only_steps else "update_critic"):
                metrics = self.step(runner, targets, number)
            if log:
                log.write(number + 1, metrics)
            if every and (number + 1) % every == 0 and number + 1 < total:
                with self._time("save_checkpoint"):
                    checkpoint.write_state(self.output, self.engines, number + 1, self.digest, self.world)

    def _finish(self, targets: BatchTargets, log: TrainerLog | None) -> None:
        """Write the model, and log the metrics of the whole training."""
        total = len(self.steps)
        facts = {
            "global_step": total,
            "max_steps": total,
            "epoch": float(self.epochs),
            "log_history": [],
            "digest": self.digest,
            **targets.facts,
        }
        with self._time("save_checkpoint"):
            state = checkpoint.write_state(self.output, self.engines, total, self.digest, self.world)
            checkpoint.write_model(
                self.output, self.engines, self.options.model, self.sources, state, facts, self.world
            )
        if log:
            log.write(total, log.means() | self.metrics | targets.metrics | self._about_the_whole())

    def _about_the_whole(self) -> dict[str, float]:
        seconds = self.metrics["timing_s/step"]
        tokens = sum(len(row.input_ids) for row in self.batch.rows)
        metrics = {
            "training/global_step": float(self.batch.iteration),
            "perf/time_per_step": seconds,
            "perf/throughput": tokens / seconds / self.world.size,
        }
        if self.world.device.type == "cuda":
            metrics["perf/max_memory_allocated_gb"] = torch.cuda.max_memory_allocated(self.world.device) / 2**30
            metrics["perf/max_memory_reserved_gb"] = torch.cuda.max_memory_reserved(self.world.device) / 2**30
        return metrics

    @contextmanager
    def _time(self, name: str) -> Iterator[None]:
        """Add the block's seconds to the metric `timing_s/NAME`."""
        began = time.monotonic()
        yield
        key = f"timing_s/{name}"
        self.metrics[key] = self.metrics.get(key, 0.0) + time.monotonic() - began

    @property
    def epochs(self) -> int:
        """Number of passes over the batch."""
        return self.options.actor.ppo_epochs

    @abstractmethod
    def load_batch(self) -> Batch:
        """Return the batch."""

    @abstractmethod
    def make_minibatches(self) -> list[tuple[int, ...]]:
        """Return the rows of each optimizer step; called after `batch` is set."""

    @abstractmethod
    def compute_targets(self, runner: BatchRunner, reference: torch.Tensor | None) -> BatchTargets:
        """Compute the batch's targets. `reference` [K]: log-probs of a separate reference model."""

    @abstractmethod
    def step(self, runner: BatchRunner, targets: BatchTargets, number: int) -> dict[str, float]:
        """Make an optimizer step, counted from 0, and return its metrics; critic-only steps get empty targets."""


def check_lengths(rows: Sequence[TrainRow], most: int) -> None:
    """Raise `TrainingError` for a row longer than a micro-batch's token budget."""
    for row in rows:
        if len(row.input_ids) > most:
            raise TrainingError(
                f"{row.place}: {len(row.input_ids)} tokens, {most} go through the model at once: raise "
                f"actor.ppo_max_token_len_per_gpu to {len(row.input_ids)} or more"
            )


def digest(options: TrainerOptions, batch: Batch, *, former: bool = False) -> str:
    """Return the SHA-256 of options and batch: trainings with the same digest have the same result.

    It stays the same after the run was moved, which the output folder is in (`RUN/checkpoints/NAME`), or webgym, which
    DeepSpeed's file may come from: an interrupted training goes on there. `former`: as an older version computed it.
    """
    values = options.model_dump(
        mode="json", exclude={"data": True, "plugins": True, "trainer": {"output_dir", "save_freq"}}
    )
    if former:
        return digest_json([values, batch.digest])
    values["trainer"]["deepspeed"] = map_known(lambda path: read_object(Path(path)), options.trainer.deepspeed)
    run = f"{Path(options.trainer.output_dir).resolve().parent.parent}/"
    return digest_json([map_texts(values, lambda text: text.removeprefix(run)), batch.digest])


@dataclass(slots=True)
class TrainerLog:
    """`trainer_log.jsonl` in LLaMA-Factory's format, with metrics: of a training that goes on after `done` steps."""

    folder: Path
    total: int
    epochs: int
    done: int
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        """Remove lines that will be logged again."""
        trim_log(self.folder / TRAINER_LOG, self.done)

    def means(self) -> dict[str, float]:
        """Return the mean of each metric over the steps that logged it, including those before an interruption."""
        values_by_name: dict[str, list[float]] = {}
        path = self.folder / TRAINER_LOG
        for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
            for name, value in json.loads(line).items():
                if "/" in name:
                    values_by_name.setdefault(name, []).append(value)
        return {name: statistics.fmean(values) for name, values in values_by_name.items()}

    def write(self, step: int, metrics: dict[str, float]) -> None:
        """Log a step, counted from 1, or after the last one the metrics of the whole training."""
        passed = time.monotonic() - self.began
        left = passed / max(1, step - self.done) * (self.total - step)
        facts: dict[str, float | str] = {"current_steps": step, "total_steps": self.total}
        facts |= {name: metrics[name] for name in ("loss", "lr") if name in metrics}
        facts |= {
            "epoch": round(step * self.epochs / self.total, 4),
            "percentage": round(100 * step / self.total, 2),
            "elapsed_time": str(timedelta(seconds=int(passed))),
            "remaining_time": str(timedelta(seconds=int(left))),
        }
        facts |= {name: value for name, value in sorted(metrics.items()) if "/" in name and math.isfinite(value)}
        with (self.folder / TRAINER_LOG).open("a", encoding="utf-8") as file:
            file.write(json.dumps(facts) + "\n")
