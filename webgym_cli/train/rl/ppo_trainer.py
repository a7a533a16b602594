"""Training by a policy gradient: all of what the batch teaches is computed before the first optimizer step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

import webgym_cli.train.rl.batch_targets as lessons
from webgym_cli.train.rl.batch_targets import Lessons
from webgym_cli.train.rl.batching import mini_batches
from webgym_cli.train.rl.data import Batch, read_batch
from webgym_cli.train.rl.step import Made, Worker
from webgym_cli.train.rl.trainer import Trainer


class PolicyGradients(Trainer[Lessons]):
    """Improves a policy, with `gae` its critic at the same time."""

    def read(self) -> Batch:
        """See `Trainer`."""
        return read_batch(Path(self.options.data), with_baseline=self.options.algorithm.adv_estimator == "remax")

    def divide(self) -> list[tuple[int, ...]]:
        """See `Trainer`."""
        numbers = [row.trajectory for row in self.batch.rows]
        return mini_batches(numbers, self.options.actor, self.options.trainer.seed + self.batch.iteration)

    def recall(self) -> Lessons | None:
        """See `Trainer`."""
        return lessons.load(self.output, self.digest)

    def learn(self, worker: Worker, reference: torch.Tensor | None) -> Lessons:
        """See `Trainer`."""
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

    def step(self, worker: Worker, learned: Lessons | None, number: int) -> Made:
        """See `Trainer`."""
        if learned is None:
            raise ValueError("a policy gradient has no step before its lessons")
        return worker.step(self.engines, self.steps[number], learned, number)

    def facts(self, learned: Lessons) -> dict[str, Any]:
        """See `Trainer`."""
        return {"kl_coef": learned.kl_coef}
