"""The course of a training, whatever it learns by: from its batch to the finished model, and on after an interruption.

What the kinds of training have to add stands at the end of `Trainer`.
"""

from __future__ import annotations

import hashlib
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import torch

import webgym_cli.train.rl.checkpoint as checkpoint
from webgym_cli.train.rl.data import Batch, Row
from webgym_cli.train.rl.distributed import World
from webgym_cli.train.rl.engine import Engine
from webgym_cli.train.rl.model import folder_of
from webgym_cli.train.rl.model_factory import Workshop
from webgym_cli.train.rl.options import TrainerOptions
from webgym_cli.train.rl.settings import TrainingError
from webgym_cli.train.rl.step import Made, Worker
from webgym_cli.train.rl.trainer_log import Log


class Learned(Protocol):
    """What a batch teaches."""

    @property
    def metrics(self) -> dict[str, float]:
        """What the logs say about the batch."""


L = TypeVar("L", bound=Learned)


class Trainer(ABC, Generic[L]):
    """One training, from its batch to the finished model. Its methods raise `TrainingError`."""

    early = 0
    """So many of the first steps are made before it is known what the batch teaches the actor."""

    def __init__(self, options: TrainerOptions, world: World) -> None:
        """Read the batch and see what there is to do."""
        self.options, self.world = options, world
        self.batch = self.read()
        check_lengths(self.batch.rows, options.actor.ppo_max_token_len_per_gpu)
        self.output = Path(options.trainer.output_dir)
        self.folder = folder_of(options.model.path)
        self.sources = {"actor": self.folder}
        if options.needs_critic:
            self.sources["critic"] = folder_of(options.critic.path or options.model.path)
        self.steps = self.divide()
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
            known = self.recall()
            state = checkpoint.newest_state(self.output, self.digest)
            if state and known is None and state[1] > self.early:
                state = None  # the actor is no longer what the lessons begin with
            self.world.wait()  # nobody writes what another still looks for
            reference = self._own_reference() if known is None else None
            worker = self._start(state[0] if state else None)
            done, total = state[1] if state else 0, len(self.steps)
            log = Log(self.output, total, self.epochs, done) if self.world.leads else None
            self._improve(worker, known, range(done, self.early), log)
            learned = known or self.learn(worker, reference)
            self._improve(worker, learned, range(max(done, self.early), total), log)
        self._finish(learned, log)
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

    def _improve(self, worker: Worker, learned: L | None, numbers: range, log: Log | None) -> None:
        """Make some optimizer steps."""
        total, every = len(self.steps), self.options.trainer.save_freq
        for number in numbers:
            with self._timed("update_actor" if number >= self.early else "update_critic"):
                step = self.step(worker, learned, number)
            if log:
                log.step(number + 1, step.loss, step.rate, step.metrics)
            if every and (number + 1) % every == 0 and number + 1 < total:
                with self._timed("save_checkpoint"):
                    checkpoint.write_state(self.output, self.engines, number + 1, self.digest, self.world)

    def _finish(self, learned: L, log: Log | None) -> None:
        """Write the model, and what is to be said of the whole training."""
        total = len(self.steps)
        facts = {
            "global_step": total,
            "max_steps": total,
            "epoch": float(self.epochs),
            "log_history": [],
            "digest": self.digest,
            **self.facts(learned),
        }
        with self._timed("save_checkpoint"):
            state = checkpoint.write_state(self.output, self.engines, total, self.digest, self.world)
            checkpoint.write_model(
                self.output, self.engines, self.options.model, self.sources, state, facts, self.world
            )
        if log:
            log.close(log.means() | self.metrics | learned.metrics | self._about_the_whole())

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

    @property
    def epochs(self) -> int:
        """Times that the batch is worked through."""
        return self.options.actor.ppo_epochs

    @abstractmethod
    def read(self) -> Batch:
        """Return the batch."""

    @abstractmethod
    def divide(self) -> list[tuple[int, ...]]:
        """Return the rows of each optimizer step; called once `batch` is there."""

    @abstractmethod
    def recall(self) -> L | None:
        """Return what the batch teaches, where it was computed before an interruption."""

    @abstractmethod
    def learn(self, worker: Worker, reference: torch.Tensor | None) -> L:
        """Compute what the batch teaches, and keep it. `reference` [K]: log-probs of one that is a model of its own."""

    @abstractmethod
    def step(self, worker: Worker, learned: L | None, number: int) -> Made:
        """Make an optimizer step, counted from 0; the first `early` ones know no lessons."""

    @abstractmethod
    def facts(self, learned: L) -> dict[str, Any]:
        """Return what the finished model's `trainer_state.json` says of the lessons."""


def check_lengths(rows: Sequence[Row], most: int) -> None:
    """Raise `TrainingError` for a row that is longer than what goes through the model at once."""
    for row in rows:
        if len(row.input_ids) > most:
            raise TrainingError(
                f"{row.place}: {len(row.input_ids)} tokens, {most} go through the model at once: raise "
                f"actor.ppo_max_token_len_per_gpu to {len(row.input_ids)} or more"
            )


def digest(options: TrainerOptions, batch: Batch) -> str:
    """Return what names a training: two with the same digest learn the same from the same."""
    values = options.model_dump(mode="json", exclude={"data": True, "trainer": {"output_dir", "save_freq"}})
    return hashlib.sha256(json.dumps([values, batch.digest], sort_keys=True).encode()).hexdigest()
