"""Policy-gradient training: all targets are computed before the first optimizer step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

import webgym_cli.trainer.ppo.batch_targets as batch_targets
from webgym_cli.config.estimators import ESTIMATORS
from webgym_cli.trainer.data import Batch, read_batch
from webgym_cli.trainer.engine.batching import LossTerm, MicroBatch, mini_batches
from webgym_cli.trainer.engine.step import BatchRunner
from webgym_cli.trainer.ppo.batch_targets import BatchTargets
from webgym_cli.trainer.ppo.objectives import BatchNormalizer, policy_loss, value_loss
from webgym_cli.trainer.ppo.trainer import Trainer


class PolicyGradientTrainer(Trainer):
    """Trains a policy and, with `gae`, its critic at the same time."""

    def load_batch(self) -> Batch:
        """See `Trainer`."""
        needs_greedy = ESTIMATORS.find(self.options.algorithm.adv_estimator).needs_greedy
        return read_batch(Path(self.options.data), with_baseline=needs_greedy)

    def make_minibatches(self) -> list[tuple[int, ...]]:
        """See `Trainer`."""
        numbers = [row.trajectory for row in self.batch.rows]
        return mini_batches(numbers, self.options.actor, self.options.trainer.seed + self.batch.iteration)

    def compute_targets(self, runner: BatchRunner, reference: torch.Tensor | None) -> BatchTargets:
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
            return batch_targets.compute_targets(self.batch, options.algorithm, old, reference=reference, values=values)

    def _shared_reference(self, runner: BatchRunner, old: torch.Tensor) -> torch.Tensor:
        """Return the log-probs [K] of the weights that the training starts from, with LoRA without the adapter."""
        actor = self.engines["actor"]
        if self.options.model.lora_rank:
            with actor.module.without_adapter():
                return runner.score(actor)
        return old if self.options.actor.recompute_old_log_probs else runner.score(actor)

    def step(self, runner: BatchRunner, targets: BatchTargets, number: int) -> dict[str, float]:
        """See `Trainer`."""
        rows, lengths, options = self.steps[number], self.batch.offsets.diff(), self.options
        totals = BatchNormalizer(int(lengths[list(rows)].sum()), len(rows))

        def loss(name: str, output: Any, micro: MicroBatch) -> LossTerm:
            part, chosen = targets.select(runner.places(micro), self.world.device), list(micro.rows)
            row = torch.tensor(chosen).repeat_interleave(lengths[chosen]).to(self.world.device)
            if name == "critic":
                return value_loss(
                    output,
                    part["values"],
                    part["returns"],
                    row,
                    totals,
                    cliprange_value=options.critic.cliprange_value,
                )
            log_probs, entropy = output
            return policy_loss(
                log_probs,
                part["old_log_probs"],
                part["advantages"],
                row,
                totals,
                options.actor,
                weights=part["weights"],
                entropy=entropy if options.actor.entropy_coeff else entropy.detach(),
                reference=part.get("reference"),
            )

        warming_up = options.needs_critic and self.batch.iteration < options.trainer.critic_warmup
        learning = {name: engine for name, engine in self.engines.items() if name == "critic" or not warming_up}
        return runner.update(learning, rows, loss)
