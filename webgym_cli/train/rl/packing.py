"""Several sequences in one row without padding, none of which sees another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Packed:
    """S sequences, one after another in a row of L tokens."""

    input_ids: torch.Tensor
    """[1, L] long."""
    position_ids: torch.Tensor
    """[1, L] long, or [D, 1, L] for models with several position axes: each sequence starts anew."""
    sequence: torch.Tensor
    """[L] long: which sequence a token belongs to, 0 to S - 1."""
    cu_seqlens: torch.Tensor
    """[S + 1] int32: where the sequences begin, and L."""
    max_seqlen: int
    """Tokens of the longest."""

    def block_mask(self, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Return [1, 1, L, L]: what each token may see, itself and what precedes it in its own sequence.

        Bool, as `sdpa` takes it; with a `dtype`, 0 and that type's lowest number, as eager attention adds it. It takes
        L² elements: use `flash_arguments` where attention is not eager.
        """
        same = self.sequence[:, None] == self.sequence[None, :]
        seen = torch.tril(same)[None, None]
        if dtype is None:
            return seen
        return torch.zeros_like(seen, dtype=dtype).masked_fill(~seen, torch.finfo(dtype).min)

    def flash_arguments(self) -> dict[str, torch.Tensor | int]:
        """Return the keyword arguments by which flash attention, and ours (`attention.py`), keep them apart."""
        return {
            "cu_seq_lens_q": self.cu_seqlens,
            "cu_seq_lens_k": self.cu_seqlens,
            "max_length_q": self.max_seqlen,
            "max_length_k": self.max_seqlen,
        }

    def place(self, sequence: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        """Return where in the row of L the tokens stand that are at `position` of `sequence`, both of any shape."""
        return self.cu_seqlens.long()[sequence] + position

    def split(self, values: torch.Tensor) -> list[torch.Tensor]:
        """Return the parts of [L, ...] that belong to the sequences."""
        lengths: list[int] = self.cu_seqlens.diff().tolist()
        return list(values.split(lengths))


def pack(sequences: Sequence[torch.Tensor], positions: Sequence[torch.Tensor] | None = None) -> Packed:
    """Put sequences of token ids, each [l], into one row.

    `positions` are theirs where they don't simply count: each [l], or [D, l]. Raises `ValueError` for an empty sequence
    or positions of another length.
    """
    if positions is None:
        positions = [torch.arange(len(ids), device=ids.device) for ids in sequences]
    for number, (ids, places) in enumerate(zip(sequences, positions, strict=True)):
        if len(ids) == 0 or places.shape[-1] != len(ids):
            raise ValueError(f"sequence {number} has {len(ids)} tokens and {places.shape[-1]} positions")
    lengths = torch.tensor([len(ids) for ids in sequences])
    ids = torch.cat(list(sequences))
    starts = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).to(ids.device, torch.int32)
    return Packed(
        input_ids=ids[None],
        position_ids=torch.cat(list(positions), dim=-1).unsqueeze(-2),
        sequence=torch.repeat_interleave(torch.arange(len(sequences)), lengths).to(ids.device),
        cu_seqlens=starts,
        max_seqlen=int(lengths.max()),
    )


def bin_pack(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Divide sequences into packs of at most `budget` tokens: lists of their numbers, in few packs.

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
