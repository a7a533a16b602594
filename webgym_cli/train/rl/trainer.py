"""Improves a policy on a batch of its episodes.

    python start.py webgym_cli.train.rl.trainer CONFIG.json        (or torchrun, for several processes)

CONFIG.json holds `options.TrainerOptions`. The same command again goes on where the training was interrupted. Exit
status: 0 when the model is written, 1 with one line on stderr when it can't be.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

import webgym_cli.train.rl.checkpoint as checkpoint
import webgym_cli.train.rl.lessons as lessons
from webgym_cli.train.rl.assembly import Workshop
from webgym_cli.train.rl.data import Batch, read_batch
from webgym_cli.train.rl.division import mini_batches
from webgym_cli.train.rl.engine import Engine
from webgym_cli.train.rl.lessons import Lessons
from webgym_cli.train.rl.log import Log
from webgym_cli.train.rl.model import folder_of
from webgym_cli.train.rl.options import TrainerOptions
from webgym_cli.train.rl.processes import World, join, leave
from webgym_cli.train.rl.settings import TrainingError, read_options
from webgym_cli.train.rl.update import Worker


class Trainer:
    """One training, from its batch to the finished model. Its methods raise `TrainingError`."""

    def __init__(self, options: TrainerOptions, world: World) -> None:
        """Read the batch and see what there is to do."""
        self.options, self.world = options, world
        self.batch = read_batch(Path(options.data), with_baseline=options.algorithm.adv_estimator == "remax")
        check_lengths(self.batch, options.actor.ppo_max_token_len_per_gpu)
        check_pictures(self.batch, world)
        self.output = Path(options.trainer.output_dir)
        self.folder = folder_of(options.model.path)
        self.sources = {"actor": self.folder}
        if options.needs_critic:
            self.sources["critic"] = folder_of(options.critic.path or options.model.path)
        numbers = [row.trajectory for row in self.batch.rows]
        self.steps = mini_batches(numbers, options.actor, options.trainer.seed + self.batch.iteration)
        self.digest = digest(options, self.batch)
        self.workshop = Workshop(options, world, self.batch)
        self.engines: dict[str, Engine] = {}
        self.metrics: dict[str, float] = {}

    def run(self) -> Path:
        """Make what is missing of the training; return the folder of the finished model."""
        target = self.output / f"checkpoint-{len(self.steps)}"
        if checkpoint.finished(self.output, len(self.steps), self.digest):
            return target
        self.output.mkdir(parents=True, exist_ok=True)
        with self._timed("step"):
            known = lessons.load(self.output, self.digest)
            state = checkpoint.newest_state(self.output, self.digest) if known else None
            self.world.wait()  # nobody writes what another still looks for
            reference = self._own_reference() if known is None else None
            worker = self._start(state[0] if state else None)
            learned = known or self._learn(worker, reference)
            self._improve(worker, learned, state[1] if state else 0)
        self._finish(learned)
        return target

    def _own_reference(self) -> torch.Tensor | None:
        """Return the log-probs [K] of a reference that is a model of its own; it is in memory only meanwhile."""
        if not self.options.needs_reference or self.options.ref.path is None:
            return None
        folder = folder_of(self.options.ref.path)
        watcher = self.workshop.reference(folder)
        collate = self.workshop.collator(folder, watcher.module.network)
        with self._timed("ref"):
            return Worker(self.options, self.world, self.batch, collate).score(watcher)

    def _start(self, state: Path | None) -> Worker:
        """Load what is trained: as it was after the last step made, after the training before, or the plain models."""
        torch.manual_seed(self.options.trainer.seed)  # what is new, such as an adapter, begins alike in all processes
        self.engines = {"actor": self.workshop.actor(self.folder)}
        if self.options.needs_critic:
            self.engines["critic"] = self.workshop.critic(self.sources["critic"])
        collate = self.workshop.collator(self.folder, self.engines["actor"].module.network)
        carried = self.options.trainer.carry_state
        source = state or (Path(carried) if carried else None)
        for name, engine in self.engines.items():
            if source is not None:
                engine.load(source / name)
        return Worker(self.options, self.world, self.batch, collate)

    def _learn(self, worker: Worker, reference: torch.Tensor | None) -> Lessons:
        """Compute what the batch teaches, and keep it for a training that goes on."""
        options, actor = self.options, self.engines["actor"]
        old = self.batch.rollout_log_probs
        if options.actor.recompute_old_log_probs:
            with self._timed("old_log_prob"):
                old = worker.score(actor)
        if options.needs_reference and reference is None:
            with self._timed("ref"):
                reference = self._shared_reference(worker, old)
        values = None
        if options.needs_critic:
            with self._timed("values"):
                values = worker.score(self.engines["critic"])
        with self._timed("adv"):
            learned = lessons.learn(self.batch, options.algorithm, old, reference=reference, values=values)
        if self.world.leads:
            lessons.save(learned, self.output, self.digest)
        self.world.wait()
        return learned

    def _shared_reference(self, worker: Worker, old: torch.Tensor) -> torch.Tensor:
        """Return the log-probs [K] of the weights that the training starts from, with LoRA without the adapter."""
        actor = self.engines["actor"]
        if self.options.model.lora_rank:
            with actor.module.without_adapter():
                return worker.score(actor)
        return old if self.options.actor.recompute_old_log_probs else worker.score(actor)

    def _improve(self, worker: Worker, learned: Lessons, done: int) -> None:
        """Make the optimizer steps that are missing."""
        total, every = len(self.steps), self.options.trainer.save_freq
        log = Log(self.output, total, self.options.actor.ppo_epochs, done) if self.world.leads else None
        made = []
        for number in range(done, total):
            with self._timed("update_actor"):
                step = worker.step(self.engines, self.steps[number], learned, number)
            made.append(step.metrics)
            if log:
                log.step(number + 1, step.loss, step.rate, step.metrics)
            if every and (number + 1) % every == 0 and number + 1 < total:
                with self._timed("save_checkpoint"):
                    checkpoint.write_state(self.output, self.engines, number + 1, self.digest, self.world)
        for name in made[0] if made else ():
            self.metrics[name] = statistics.fmean(step[name] for step in made)

    def _finish(self, learned: Lessons) -> None:
        """Write the model, and what is to be said of the whole training."""
        total = len(self.steps)
        facts = {
            "global_step": total,
            "max_steps": total,
            "epoch": float(self.options.actor.ppo_epochs),
            "log_history": [],
            "digest": self.digest,
            "kl_coef": learned.kl_coef,
        }
        with self._timed("save_checkpoint"):
            state = checkpoint.write_state(self.output, self.engines, total, self.digest, self.world)
            checkpoint.write_model(
                self.output, self.engines, self.options.model, self.sources, state, facts, self.world
            )
        self.metrics |= learned.metrics | self._about_the_whole()
        if self.world.leads:
            Log(self.output, total, self.options.actor.ppo_epochs, total).close(self.metrics)

    def _about_the_whole(self) -> dict[str, float]:
        seconds = self.metrics["timing_s/step"]
        tokens = sum(len(row.input_ids) for row in self.batch.rows)
        found = {
            "training/global_step": float(self.batch.iteration),
            "perf/time_per_step": seconds,
            "perf/throughput": tokens / seconds / self.world.size,
        }
        if self.world.device.type == "cuda":
            found["perf/max_memory_allocated_gb"] = torch.cuda.max_memory_allocated(self.world.device) / 2**30
            found["perf/max_memory_reserved_gb"] = torch.cuda.max_memory_reserved(self.world.device) / 2**30
        return found

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        """Add up the seconds that something takes."""
        began = time.monotonic()
        yield
        key = f"timing_s/{name}"
        self.metrics[key] = self.metrics.get(key, 0.0) + time.monotonic() - began


def check_lengths(batch: Batch, most: int) -> None:
    """Raise `TrainingError` for a row that is longer than what goes through the model at once."""
    for row in batch.rows:
        if len(row.input_ids) > most:
            raise TrainingError(
                f"{row.place}: {len(row.input_ids)} tokens, {most} go through the model at once: raise "
                f"actor.ppo_max_token_len_per_gpu to {len(row.input_ids)} or more"
            )


def check_pictures(batch: Batch, world: World) -> None:
    """Raise `TrainingError` for pictures among several processes: in tests two of them waited for each other."""
    for row in batch.rows:
        if row.images and world.size > 1:
            raise TrainingError(f"{row.place}: has pictures, on which only a single process can train: start just one")


def digest(options: TrainerOptions, batch: Batch) -> str:
    """Return what names a training: two with the same digest learn the same from the same."""
    values = options.model_dump(mode="json", exclude={"data": True, "trainer": {"output_dir", "save_freq"}})
    return hashlib.sha256(json.dumps([values, batch.digest], sort_keys=True).encode()).hexdigest()


def main(arguments: list[str]) -> int:
    """Train as a file says; return the exit status."""
    if len(arguments) != 1:
        sys.stderr.write("webgym: usage: start.py webgym_cli.train.rl.trainer CONFIG.json\n")
        return 1
    try:
        options = read_options(Path(arguments[0]))
        Trainer(options, join(grouped=options.trainer.deepspeed is not None)).run()
        leave()  # not after an error: the others may never come to it
    except (TrainingError, OSError) as error:
        sys.stderr.write(f"webgym: {error}\n")
        return 1
    except torch.OutOfMemoryError as error:
        advice = "lower actor.ppo_max_token_len_per_gpu or logprob_chunk, or let DeepSpeed divide or offload"
        sys.stderr.write(f"webgym: the GPU's memory is full: {advice} ({str(error).splitlines()[0]})\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
