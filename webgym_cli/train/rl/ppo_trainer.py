"""Training by a policy gradient: all of what the batch teaches is computed before the first optimizer step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

import webgym_cli.train.rl.batch_targets as batch_targets
from webgym_cli.train.rl.batch_targets import TokenTargets
from webgym_cli.train.rl.batching import mini_batches
from webgym_cli.train.rl.data import Batch, read_batch
from webgym_cli.train.rl.estimators import ESTIMATORS
from webgym_cli.train.rl.step import BatchRunner, StepResult
from webgym_cli.train.rl.trainer import Trainer


class PolicyGradientTrainer(Trainer[TokenTargets]):
    """Improves a policy, with `gae` its critic at the same time."""

    def load_batch(self) -> Batch:
        """See `Trainer`."""
        needs_greedy = ESTIMATORS.find(self.options.algorithm.adv_estimator).needs_greedy
        return read_batch(Path(self.options.data), with_baseline=needs_greedy)

    def make_minibatches(self) -> list[tuple[int, ...]]:
        """See `Trainer`."""
        numbers = [row.trajectory for row in self.batch.rows]
        return mini_batches(numbers, self.options.actor, self.options.trainer.seed + self.batch.iteration)

    def load_cached_targets(self) -> TokenTargets | None:
        """See `Trainer`."""
        return batch_targets.load_targets(self.output, self.digest)

    def compute_targets(self, runner: BatchRunner, reference: torch.Tensor | None) -> TokenTargets:
        """See `Trainer`."""
        options, actor = self.options, self.engines["actor"]
        old = self.batch.rollout_log_probs
        if options.actor.recompute_old_log_probs:
            with self._time("old_log_prob"):
                old = runner.score(actor)
        if options.needs_reference and reference is None:
            with self._time("ref"):
                reference = self._shared_reference(runner, old)
        values = None
        if options.needs_critic:
            with self._time("values"):
                values = runner.score(self.engines["critic"])
        with self._time("adv"):
            targets = batch_targets.compute_targets(
                self.batch, options.algorithm, old, reference=reference, values=values
            )
        if self.world.is_main_process:
            batch_targets.save_targets(targets, self.output, self.digest)
        self.world.wait()
        return targets

    def _shared_reference(self, runner: BatchRunner, old: torch.Tensor) -> torch.Tensor:
        """Return the log-probs [K] of the weights that the training starts from, with LoRA without the adapter."""
        actor = self.engines["actor"]
        if self.options.model.lora_rank:
            with actor.module.without_adapter():
                return runner.score(actor)
        return old if self.options.actor.recompute_old_log_probs else runner.score(actor)

    def step(self, runner: BatchRunner, targets: TokenTargets | None, number: int) -> StepResult:
        """See `Trainer`."""
        if targets is None:
            raise ValueError("a policy gradient has no step before its targets")
        return runner.step(self.engines, self.steps[number], targets, number)

    def state_facts(self, targets: TokenTargets) -> dict[str, Any]:
        """See `Trainer`."""
        return {"kl_coef": targets.kl_coef}
