"""The trainer of a WebRL phase: first the critic is trained on episode outcomes, then the actor on its values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import webgym_cli.trainer.webrl.webrl_batch as webrl_batch
from webgym_cli.config.rl import WebRLSettings
from webgym_cli.records.sampling import Sampling
from webgym_cli.trainer.data import Batch, read_batch
from webgym_cli.trainer.engine.batching import LossTerm, MicroBatch, mini_batches
from webgym_cli.trainer.engine.distributed import DistributedContext
from webgym_cli.trainer.engine.step import BatchRunner
from webgym_cli.trainer.options import TrainerOptions
from webgym_cli.trainer.ppo.batch_targets import BatchTargets
from webgym_cli.trainer.ppo.trainer import Trainer, check_lengths
from webgym_cli.trainer.webrl.webrl_batch import action_sums, collect_states, success_probability


class WebRLTrainer(Trainer):
    """Trains critic and actor on this phase's actions and on replayed ones of earlier phases."""

    def __init__(self, options: TrainerOptions, world: DistributedContext) -> None:
        """Read the batch and collect its states."""
        super().__init__(options, world)
        check_lengths(self.states.rows, options.actor.ppo_max_token_len_per_gpu)
        self.success = webrl_batch.successes(self.batch)

    @property
    def webrl(self) -> WebRLSettings:
        """The `webrl` settings."""
        if self.options.webrl is None:
            raise ValueError("the settings are not those of webrl")
        return self.options.webrl

    @property
    def epochs(self) -> int:
        """Number of passes over the batch, by critic and actor together."""
        return self.webrl.critic_epochs + self.options.actor.ppo_epochs

    def load_batch(self) -> Batch:
        """See `Trainer`. Ignores the sampler's truncation, because replayed tokens were sampled by other policies."""
        batch = read_batch(Path(self.options.data))
        batch = replace(batch, sampling=Sampling(temperature=batch.sampling.temperature))
        self.states = collect_states(batch, ends=self.webrl.objective == "released")
        return batch

    def make_minibatches(self) -> list[tuple[int, ...]]:
        """See `Trainer`. The first `critic_only_steps` are the critic's."""
        seed, numbers = self.options.trainer.seed + self.batch.iteration, range(len(self.batch.rows))
        critic = self.options.actor.model_copy(update={"ppo_epochs": self.webrl.critic_epochs})
        first = mini_batches(numbers, critic, seed)
        self.critic_only_steps = len(first)
        return first + mini_batches(numbers, self.options.actor, seed)

    def compute_targets(self, runner: BatchRunner, reference: torch.Tensor | None) -> BatchTargets:
        """See `Trainer`. Without a separate reference, the reference is the actor, which is still untrained here."""
        with self._time("values"):
            values = self._judging(runner).score(
                self.engines["critic"], lambda logits: success_probability(*logits.unbind(1))
            )
        if reference is None:
            with self._time("ref"):
                reference = runner.score(self.engines["actor"])
        count = len(self.batch.rows)
        action = torch.arange(count).repeat_interleave(self.batch.offsets.diff())
        sums = action_sums(reference, action, count)
        before, after = values[self.states.before], values[self.states.after]
        return webrl_batch.compute_targets(self.batch, self.webrl, sums, before, after)

    def step(self, runner: BatchRunner, targets: BatchTargets, number: int) -> dict[str, float]:
        """See `Trainer`."""
        rows = self.steps[number]
        if number < self.critic_only_steps:
            return self._update_critic(self._judging(runner), rows)
        return self._update_actor(runner, rows, targets)

    def _judging(self, runner: BatchRunner) -> BatchRunner:
        """Return a runner over the states, for the critic."""
        return replace(runner, batch=replace(self.batch, rows=self.states.rows))

    def _update_critic(self, judging: BatchRunner, rows: Sequence[int]) -> dict[str, float]:
        visits = self.states.count_visits(rows, self.success, after=self.webrl.objective == "released")
        met = visits.sum(1)
        totals = (int(met.sum()), len(rows))

        def loss(name: str, output: Any, micro: MicroBatch) -> LossTerm:
            return webrl_batch.critic_loss_term(output, visits[list(micro.rows)].to(self.world.device), totals)

        states = met.nonzero()[:, 0].tolist()
        return judging.update({"critic": self.engines["critic"]}, states, loss)

    def _update_actor(self, runner: BatchRunner, rows: Sequence[int], targets: BatchTargets) -> dict[str, float]:
        lengths = self.batch.offsets.diff()
        totals = (int(lengths[list(rows)].sum()), len(rows))

        def loss(name: str, output: Any, micro: MicroBatch) -> LossTerm:
            chosen, device = torch.tensor(micro.rows), self.world.device
            part = targets.select(chosen, device)
            return webrl_batch.actor_loss_term(output, lengths[chosen].to(device), part, self.webrl, totals)

        return runner.update({"actor": self.engines["actor"]}, rows, loss)
