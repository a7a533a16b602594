"""Divides a batch into mini-batches (one optimizer step each), and these into micro-batches for each process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import torch

from webgym_cli.config.rl import ActorSettings
from webgym_cli.util.optional import group_by


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Rows of one forward and backward pass of a process."""

    rows: tuple[int, ...]
    """Row indices."""
    idle: bool = False
    """Filler that contributes no loss: all processes must call the model equally often."""


def mini_batches(trajectory: Sequence[int], options: ActorSettings, seed: int) -> list[tuple[int, ...]]:
    """Return the rows of each optimizer step, over all epochs; `trajectory` holds each row's trajectory index.

    The rows of a trajectory stay together. The mini-batches of an epoch differ by one trajectory at most.
    """
    rows = group_by(range(len(trajectory)), trajectory.__getitem__)
    numbers = sorted(rows)
    size = options.ppo_mini_batch_size or len(numbers)
    steps = -(-len(numbers) // size)
    batches = []
    for epoch in range(options.ppo_epochs):
        order = list(range(len(numbers)))
        if options.shuffle:
            chance = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
            order = torch.randperm(len(numbers), generator=chance).tolist()
        for chosen in torch.tensor(order).tensor_split(steps):
            batches.append(tuple(sorted(chain.from_iterable(rows[numbers[place]] for place in chosen.tolist()))))
    return batches


def micro_batches(
    rows: Sequence[int], lengths: Sequence[int], options: ActorSettings, *, packed: bool, rank: int, world: int
) -> list[MicroBatch]:
    """Return the micro-batches of process `rank`; every process gets the same number.

    The longest go first, so that micro-batches that run at the same time are of similar size. `lengths` are those of
    all rows in tokens, none above `ppo_max_token_len_per_gpu`.
    """
    own = [lengths[row] for row in rows]
    budget = options.ppo_max_token_len_per_gpu
    packs = bin_pack(own, budget) if packed else _blocks(own, budget)
    most = options.ppo_micro_batch_size_per_gpu or len(own)
    packs = [pack[start : start + most] for pack in packs for start in range(0, len(pack), most)]
    packs.sort(key=lambda pack: (-sum(own[place] for place in pack), pack))
    shortest = min(range(len(own)), key=lambda place: own[place])
    batches = []
    for start in range(0, len(packs), world):
        idle = start + rank >= len(packs)
        places = [shortest] if idle else packs[start + rank]
        batches.append(MicroBatch(tuple(rows[place] for place in places), idle))
    return batches


def bin_pack(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Pack sequences into few bins of at most `budget` tokens; return the sequence indices of each bin.

    The longest go first, each into the fullest pack that has room (best fit, decreasing). The same lengths always give
    the same packs. Raises `ValueError` for a sequence that is longer than the budget.
    """
    packs: list[list[int]] = []
    room: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda number: (-lengths[number], number)):
        length = lengths[number]
        if length > budget:
            raise ValueError(f"sequence {number} has {length} tokens, a pack holds {budget}")
        fitting = [place for place, free in enumerate(room) if free >= length]
        if fitting:
            place = min(fitting, key=lambda place: (room[place], place))
            packs[place].append(number)
            room[place] -= length
        else:
            packs.append([number])
            room.append(budget - length)
    return [sorted(pack) for pack in packs]


def _blocks(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Group rows of similar length into blocks of at most `budget` positions, padding included."""
    blocks: list[list[int]] = []
    longest = 0
    for number in sorted(range(len(lengths)), key=lambda number: (-lengths[number], number)):
        if not blocks or (len(blocks[-1]) + 1) * longest > budget:
            blocks.append([])
            longest = lengths[number]
        blocks[-1].append(number)
    return [sorted(block) for block in blocks]


@dataclass(frozen=True, slots=True)
class LossTerm:
    """A micro-batch's term of the mini-batch's loss."""

    loss: torch.Tensor
    """A scalar to call `backward` on."""
    metrics: dict[str, torch.Tensor]
    """Detached scalars by their name in the logs; sum them over the micro-batches and processes."""
