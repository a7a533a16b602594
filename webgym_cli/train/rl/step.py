"""Puts rows through the networks: to score them, and to learn from them, one optimizer step at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from webgym_cli.train.rl.batch_targets import TokenTargets, select
from webgym_cli.train.rl.batching import MicroBatch, micro_batches
from webgym_cli.train.rl.data import Batch
from webgym_cli.train.rl.distributed import DistributedContext
from webgym_cli.train.rl.engine import TrainEngine
from webgym_cli.train.rl.inputs import Collator
from webgym_cli.train.rl.objectives import BatchNormalizer, LossTerm, policy_loss, value_loss
from webgym_cli.train.rl.options import TrainerOptions, TrainingError

# Gives a network's share of a mini-batch's loss: of its name, its answer to a call, and what the call held.
LossFn = Callable[[str, Any, MicroBatch], LossTerm]


@dataclass(frozen=True, slots=True)
class StepResult:
    """An optimizer step that was made."""

    loss: float
    """Of the policy; of the critic while it learns alone."""
    rate: float
    """The learning rate."""
    metrics: dict[str, float]
    """By their names in the logs."""


@dataclass(frozen=True, slots=True)
class BatchRunner:
    """One process's part of the work on a batch."""

    options: TrainerOptions
    world: DistributedContext
    batch: Batch
    collate: Collator

    def score(self, engine: Any, read: Callable[[Any], torch.Tensor] | None = None) -> torch.Tensor:
        """Return [K] float32 on the CPU: what a network gives for the trained tokens of the whole batch.

        `read`: which numbers [k] that is of a call's answer; without it, its values or log-probs.
        """
        offsets = self.batch.offsets
        scores = torch.zeros(int(offsets[-1]))
        engine.module.eval()
        with torch.no_grad():
            for micro in self._rounds(range(len(self.batch.rows))):
                output = engine.call(self._inputs(micro))
                if not micro.idle:
                    scores[_places(offsets, micro)] = (read or _first)(output).float().cpu()
        return self.world.total(scores)

    def step(
        self, engines: Mapping[str, TrainEngine], rows: Sequence[int], targets: TokenTargets, number: int
    ) -> StepResult:
        """Learn from some rows; `number` counts optimizer steps from 0. Raises `TrainingError` when it diverges."""
        learning = {name: engine for name, engine in engines.items() if name == "critic" or not self._warming_up}
        offsets = self.batch.offsets
        totals = BatchNormalizer(sum(int(offsets[row + 1] - offsets[row]) for row in rows), len(rows))

        def share(name: str, output: Any, micro: MicroBatch) -> LossTerm:
            part = select(targets, _places(offsets, micro), self.world.device)
            line = _lines(offsets, micro).to(self.world.device)
            return self._share(name, output, part, line, totals)

        return self.update(learning, rows, share, _names(self.options, learning), number)

    def update(
        self, learning: Mapping[str, TrainEngine], rows: Sequence[int], share: LossFn, metrics: set[str], number: int
    ) -> StepResult:
        """Make an optimizer step of some networks by their shares of a mini-batch's loss; `metrics`: those' names.

        Raises `TrainingError` when it diverges.
        """
        sums: dict[str, torch.Tensor] = {}
        micros = self._rounds(rows)
        for engine in learning.values():
            engine.module.train()
        for count, micro in enumerate(micros, 1):
            inputs = self._inputs(micro)
            for name, engine in learning.items():
                part = share(name, engine.call(inputs), micro)
                engine.backward(part.loss * (0.0 if micro.idle else 1.0), last=count == len(micros))
                if not micro.idle:
                    _add(sums, {f"{name}/loss": part.loss.detach(), **part.metrics})
        means = self._gather(sums, metrics)
        for name, engine in learning.items():
            optim = self.options.actor.optim if name == "actor" else self.options.critic.optim
            means[f"{name}/lr"] = optim.rate(number)
            means[f"{name}/grad_norm"] = engine.step(optim.rate(number))
            self._check(name, means, number)
        first = next(iter(learning))
        return StepResult(means[f"{first}/loss"], means[f"{first}/lr"], means)

    @property
    def _warming_up(self) -> bool:
        return self.options.needs_critic and self.batch.iteration < self.options.trainer.critic_warmup

    def _share(
        self, name: str, output: Any, part: TokenTargets, line: torch.Tensor, totals: BatchNormalizer
    ) -> LossTerm:
        """Return this call's share of a mini-batch's loss; `line` [k] is the row of each token."""
        if name == "critic":
            values, returns = part.values, part.returns
            if values is None or returns is None:
                raise ValueError("the critic has nothing to learn from")
            return value_loss(
                output,
                values,
                returns,
                line,
                totals,
                cliprange_value=self.options.critic.cliprange_value,
                loss_agg_mode=self.options.critic.loss_agg_mode,
            )
        log_probs, entropy = output
        options = self.options.actor
        return policy_loss(
            log_probs,
            part.old_log_probs,
            part.advantages,
            line,
            totals,
            options,
            weights=part.weights,
            entropy=entropy if options.entropy_coeff else entropy.detach(),
            reference=part.reference,
        )

    def _gather(self, sums: dict[str, torch.Tensor], metrics: set[str]) -> dict[str, float]:
        """Return the metrics of all processes together. Those without a row of their own don't know the names."""
        names = sorted(metrics)
        values = torch.stack([torch.as_tensor(sums.get(name, 0.0)).double().cpu() for name in names])
        return dict(zip(names, self.world.total(values).tolist(), strict=True))

    def _check(self, name: str, metrics: dict[str, float], number: int) -> None:
        wrong = [key for key in (f"{name}/loss", f"{name}/grad_norm") if not math.isfinite(metrics[key])]
        if wrong:
            raise TrainingError(
                f"step {number + 1}: {wrong[0]} is {metrics[wrong[0]]}: the training diverged; lower {name}.optim.lr "
                "and train in another trainer.output_dir"
            )

    def _inputs(self, micro: MicroBatch) -> Any:
        return self.collate([self.batch.rows[row] for row in micro.rows])

    def _rounds(self, rows: Sequence[int]) -> list[MicroBatch]:
        lengths = [len(row.input_ids) for row in self.batch.rows]
        packed, world = self.options.model.use_remove_padding, self.world
        return micro_batches(rows, lengths, self.options.actor, packed=packed, rank=world.rank, world=world.size)


def _first(output: Any) -> torch.Tensor:
    """Return the values, or the log-probs without the entropies."""
    first: torch.Tensor = output[0] if isinstance(output, tuple) else output
    return first


def _places(offsets: torch.Tensor, micro: MicroBatch) -> torch.Tensor:
    """Return [k]: the numbers of a call's tokens among the K of the batch."""
    return torch.cat([torch.arange(int(offsets[row]), int(offsets[row + 1])) for row in micro.rows])


def _lines(offsets: torch.Tensor, micro: MicroBatch) -> torch.Tensor:
    """Return [k]: the row of each of a call's tokens."""
    counts = torch.stack([offsets[row + 1] - offsets[row] for row in micro.rows])
    return torch.tensor(micro.rows).repeat_interleave(counts)


def _add(sums: dict[str, torch.Tensor], more: Mapping[str, torch.Tensor]) -> None:
    for name, value in more.items():
        sums[name] = sums[name] + value if name in sums else value


def _names(options: TrainerOptions, learning: Mapping[str, TrainEngine]) -> set[str]:
    """Return the metrics that the losses give."""
    names = {f"{name}/loss" for name in learning}
    if "actor" in learning:
        parts = ("pg_loss", "ppo_kl", "pg_clipfrac", "pg_clipfrac_lower", "entropy")
        names |= {f"actor/{part}" for part in parts}
        if options.actor.use_kl_loss:
            names.add("actor/kl_loss")
    if "critic" in learning:
        names |= {f"critic/{part}" for part in ("vf_loss", "vf_clipfrac", "vpred_mean")}
    return names
