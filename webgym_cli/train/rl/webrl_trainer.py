"""A phase of WebRL: first the critic learns which states lead to success, then the actor learns from its values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import webgym_cli.train.rl.webrl_batch as actions
from webgym_cli.config.rl import WebRLSettings
from webgym_cli.train.rl.batching import Micro, mini_batches
from webgym_cli.train.rl.data import Batch, read_batch
from webgym_cli.train.rl.distributed import World
from webgym_cli.train.rl.objectives import Objective
from webgym_cli.train.rl.options import TrainerOptions
from webgym_cli.train.rl.sampling import Truncation
from webgym_cli.train.rl.step import Made, Worker
from webgym_cli.train.rl.trainer import Trainer, check_lengths
from webgym_cli.train.rl.webrl_batch import ActionLessons
from webgym_cli.train.rl.webrl_losses import action_sums, success_probability
from webgym_cli.train.rl.webrl_states import states_of


class ActorCritic(Trainer[ActionLessons]):
    """Trains on actions: of this phase, and replayed ones of earlier phases."""

    def __init__(self, options: TrainerOptions, world: World) -> None:
        """Read the batch and see which states its episodes went through."""
        super().__init__(options, world)
        check_lengths(self.states.rows, options.actor.ppo_max_token_len_per_gpu)
        self.success = actions.successes(self.batch)

    @property
    def webrl(self) -> WebRLSettings:
        """The settings that are this training's own."""
        if self.options.webrl is None:
            raise ValueError("the settings are not those of webrl")
        return self.options.webrl

    @property
    def epochs(self) -> int:
        """Times that the batch is worked through, by the critic and by the actor."""
        return self.webrl.critic_epochs + self.options.actor.ppo_epochs

    def read(self) -> Batch:
        """See `Trainer`. No token is improbable enough to be left out: replayed ones were sampled by other policies."""
        batch = replace(read_batch(Path(self.options.data)), truncation=Truncation())
        self.states = states_of(batch, ends=self.webrl.objective == "released")
        return batch

    def divide(self) -> list[tuple[int, ...]]:
        """See `Trainer`. The critic's steps are `early`."""
        seed, numbers = self.options.trainer.seed + self.batch.iteration, range(len(self.batch.rows))
        critic = self.options.actor.model_copy(update={"ppo_epochs": self.webrl.critic_epochs})
        first = mini_batches(numbers, critic, seed)
        self.early = len(first)
        return first + mini_batches(numbers, self.options.actor, seed)

    def recall(self) -> ActionLessons | None:
        """See `Trainer`."""
        return actions.load(self.output, self.digest)

    def learn(self, worker: Worker, reference: torch.Tensor | None) -> ActionLessons:
        """See `Trainer`. The reference is the actor itself, which hasn't learned yet, unless another is given."""
        with self._timed("values"):
            values = self._judging(worker).score(self.engines["critic"], _values)
        if reference is None:
            with self._timed("ref"):
                reference = worker.score(self.engines["actor"])
        count = len(self.batch.rows)
        action = torch.arange(count).repeat_interleave(self.batch.offsets.diff())
        sums = action_sums(reference, action, count)
        before, after = values[self.states.before], values[self.states.after]
        learned = actions.learn(self.batch, self.webrl, sums, before, after)
        if self.world.leads:
            actions.save(learned, self.output, self.digest)
        self.world.wait()
        return learned

    def step(self, worker: Worker, learned: ActionLessons | None, number: int) -> Made:
        """See `Trainer`."""
        rows = self.steps[number]
        if number < self.early:
            return self._teach_critic(self._judging(worker), rows, number)
        if learned is None:
            raise ValueError("the actor has nothing to learn from")
        return self._teach_actor(worker, rows, learned, number - self.early)

    def facts(self, learned: ActionLessons) -> dict[str, Any]:
        """See `Trainer`."""
        return {"webrl": self.webrl.model_dump(mode="json")}

    def _judging(self, worker: Worker) -> Worker:
        """Return what puts the states through the critic."""
        return replace(worker, batch=replace(self.batch, rows=self.states.rows))

    def _teach_critic(self, judging: Worker, rows: Sequence[int], number: int) -> Made:
        tally = self.states.tally(rows, self.success, after=self.webrl.objective == "released")
        met = tally.sum(1)
        totals = (int(met.sum()), len(rows))

        def share(name: str, found: Any, micro: Micro) -> Objective:
            return actions.critic_share(found, tally[list(micro.rows)].to(self.world.device), totals)

        states = met.nonzero()[:, 0].tolist()
        critic = {"critic": self.engines["critic"]}
        return judging.update(critic, states, share, actions.CRITIC_METRICS, number)

    def _teach_actor(self, worker: Worker, rows: Sequence[int], learned: ActionLessons, number: int) -> Made:
        lengths = self.batch.offsets.diff()
        totals = (int(lengths[list(rows)].sum()), len(rows))

        def share(name: str, found: Any, micro: Micro) -> Objective:
            chosen, device = list(micro.rows), self.world.device
            part = replace(
                learned,
                reference=learned.reference[chosen].to(device),
                advantages=learned.advantages[chosen].to(device),
            )
            return actions.actor_share(found, lengths[chosen].to(device), part, self.webrl, totals)

        actor = {"actor": self.engines["actor"]}
        return worker.update(actor, rows, share, actions.ACTOR_METRICS, number)


def _values(logits: torch.Tensor) -> torch.Tensor:
    """Return [k] the probabilities of success, of logits [k, heads, 2]."""
    return success_probability(*logits.unbind(1))
