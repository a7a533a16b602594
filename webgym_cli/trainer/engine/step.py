"""Runs rows through the networks: forward passes that score a batch, and optimizer steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from webgym_cli.trainer.data import Batch
from webgym_cli.trainer.engine.batching import LossTerm, MicroBatch, micro_batches
from webgym_cli.trainer.engine.distributed import DistributedContext
from webgym_cli.trainer.engine.engine import TrainEngine
from webgym_cli.trainer.model.inputs import Collator
from webgym_cli.trainer.options import TrainerOptions, TrainingError

# (network name, output, micro-batch) -> the micro-batch's term of the mini-batch's loss.
LossFn = Callable[[str, Any, MicroBatch], LossTerm]


def _first(output: Any) -> torch.Tensor:
    """Return the values, or the log-probs without the entropies."""
    first: torch.Tensor = output[0] if isinstance(output, tuple) else output
    return first


@dataclass(frozen=True, slots=True)
class BatchRunner:
    """One process's part of the work on a batch."""

    options: TrainerOptions
    world: DistributedContext
    batch: Batch
    collate: Collator

    def score(self, engine: Any, read: Callable[[Any], torch.Tensor] = _first) -> torch.Tensor:
        """Return [K] float32 on the CPU: a network's values or log-probs of the whole batch's trained tokens.

        `read`: extracts the scores [k] from an output; by default its values or log-probs.
        """
        scores = torch.zeros(int(self.batch.offsets[-1]))
        engine.module.eval()
        with torch.no_grad():
            for micro in self._rounds(range(len(self.batch.rows))):
                output = engine.call(self._inputs(micro))
                if not micro.idle:
                    scores[self.places(micro)] = read(output).float().cpu()
        return self.world.total(scores)

    def update(self, learning: Mapping[str, TrainEngine], rows: Sequence[int], loss: LossFn) -> dict[str, float]:
        """Make an optimizer step of the `learning` networks on a mini-batch.

        Return its metrics; `loss` and `lr` are the first network's: the policy's, or the critic's in critic-only steps.
        Raises `TrainingError` if loss or gradient norm is not finite.
        """
        sums: dict[str, torch.Tensor] = {}
        micros = self._rounds(rows)
        for engine in learning.values():
            engine.module.train()
        for count, micro in enumerate(micros, 1):
            inputs = self._inputs(micro)
            for name, engine in learning.items():
                term = loss(name, engine.call(inputs), micro)
                engine.backward(term.loss * float(not micro.idle), last=count == len(micros))
                for key, value in {f"{name}/loss": term.loss.detach(), **term.metrics}.items():
                    counted = torch.zeros_like(value) if micro.idle else value
                    sums[key] = sums.get(key, 0) + counted
        values = torch.stack([sums[key].double().cpu() for key in sorted(sums)])
        means = dict(zip(sorted(sums), self.world.total(values).tolist(), strict=True))
        for name, engine in learning.items():
            means[f"{name}/lr"] = engine.rate
            means[f"{name}/grad_norm"] = engine.step()
            self._check(name, means)
        first = next(iter(learning))
        return means | {"loss": means[f"{first}/loss"], "lr": means[f"{first}/lr"]}

    def places(self, micro: MicroBatch) -> torch.Tensor:
        """Return [k]: the indices of a micro-batch's tokens among the K of the batch."""
        offsets = self.batch.offsets.tolist()
        return torch.cat([torch.arange(offsets[row], offsets[row + 1]) for row in micro.rows])

    def _check(self, name: str, metrics: dict[str, float]) -> None:
        wrong = [key for key in (f"{name}/loss", f"{name}/grad_norm") if not math.isfinite(metrics[key])]
        if wrong:
            raise TrainingError(
                f"{wrong[0]} is {metrics[wrong[0]]}: the training diverged; lower {name}.optim.lr "
                "and train in another trainer.output_dir"
            )

    def _inputs(self, micro: MicroBatch) -> Any:
        return self.collate([self.batch.rows[row] for row in micro.rows])

    def _rounds(self, rows: Sequence[int]) -> list[MicroBatch]:
        lengths = [len(row.input_ids) for row in self.batch.rows]
        packed, world = self.options.model.use_remove_padding, self.world
        return micro_batches(rows, lengths, self.options.actor, packed=packed, rank=world.rank, world=world.size)
