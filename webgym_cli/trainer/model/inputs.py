"""Collates rows of tokens and images into model inputs: packed without padding, or padded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from webgym_cli.trainer.data import AGAIN, Picture, TrainRow
from webgym_cli.trainer.options import TrainingError

FLASH_ARGUMENTS = ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k")
"""Arguments of flash attention: where the sequences of a packed row end, and how long the longest is."""


@dataclass(frozen=True, slots=True)
class Packed:
    """S sequences, one after another in a row of L tokens."""

    input_ids: torch.Tensor
    """[1, L] long."""
    position_ids: torch.Tensor
    """[1, L] long, or [D, 1, L] for models with several position axes; restarts in each sequence."""
    cu_seqlens: torch.Tensor
    """[S + 1] int32: cumulative sequence lengths, from 0 to L."""

    def block_mask(self, dtype: torch.dtype) -> torch.Tensor:
        """Return [1, 1, L, L]: 0 where a token may attend: to itself and to earlier tokens of its own sequence.

        Elsewhere the dtype's minimum, because eager attention adds the mask. It has L² elements: use `flash_arguments`
        for other attention implementations.
        """
        lengths = self.cu_seqlens.diff()
        sequence = torch.arange(len(lengths), device=lengths.device).repeat_interleave(lengths)
        seen = torch.tril(sequence[:, None] == sequence[None, :])[None, None]
        return torch.zeros_like(seen, dtype=dtype).masked_fill(~seen, torch.finfo(dtype).min)

    def flash_arguments(self) -> dict[str, torch.Tensor | int]:
        """Return the keyword arguments with which flash attention and `attend_in_blocks` separate the sequences."""
        starts, longest = self.cu_seqlens, int(self.cu_seqlens.diff().max())
        return dict(zip(FLASH_ARGUMENTS, (starts, starts, longest, longest), strict=True))


@dataclass(frozen=True, slots=True)
class Inputs:
    """A model input of R rows and C positions (one row when packed) with k trained tokens."""

    arguments: dict[str, Any]
    """Keyword arguments of the transformer."""
    labels: torch.Tensor
    """[k] long: the trained tokens, row by row."""
    before: tuple[torch.Tensor, torch.Tensor]
    """[k] and [k] long: row and position of the hidden state that predicts each."""
    blank: tuple[int, int] | None = None
    """Row and position of the blank image's last token, if there is one: see `Collator`."""

    def to(self, device: torch.device) -> Inputs:
        """Return a copy on a device."""
        moved = {
            name: value.to(device, non_blocking=True) if isinstance(value, torch.Tensor) else value
            for name, value in self.arguments.items()
        }
        line, position = self.before
        return Inputs(moved, self.labels.to(device), (line.to(device), position.to(device)), self.blank)


@dataclass(frozen=True, slots=True)
class Collator:
    """Collates rows into model inputs.

    All processes must call the same layers in the same order, forward and backward, because ZeRO gathers weights and
    reduces gradients layer by layer. The vision tower runs only for inputs with an image. So with `together` an input
    without images gets an extra sequence with a blank image of one token, to which no other sequence attends.
    """

    transformer: Any
    """The model without its output layer; it computes the position ids of images."""
    processor: Any | None
    """The model's image processor; None for text models."""
    packed: bool
    """Whether rows are packed into one sequence."""
    attention: str
    """The attention implementation; it determines how packed rows are separated."""
    dtype: torch.dtype
    """The dtype of the computation."""
    together: bool = False
    """Whether several processes train together."""

    def __call__(self, rows: Sequence[TrainRow]) -> Inputs:
        """Return the rows as one model input. Raises `TrainingError` if the images don't match the tokens."""
        pictures = [self._pictures(row) for row in rows]
        blank = self._blank() if self.together and self._sees else None
        if blank is not None:
            rows, pictures = [*rows, blank[0]], [*pictures, blank[1]]
        positions = [self._positions(row, picture) for row, picture in zip(rows, pictures, strict=True)]
        states = [row.mask.nonzero()[:, 0] - 1 for row in rows]
        line = torch.cat([torch.full_like(state, number) for number, state in enumerate(states)])
        position = torch.cat(states)
        if self.packed:
            packed = pack([row.input_ids for row in rows], positions)
            arguments = self._arguments(packed)
            line, position = torch.zeros_like(line), packed.cu_seqlens.long()[line] + position
        else:
            # position axes, if any, come before the batch dimension
            places = pad_sequence([place.movedim(-1, 0) for place in positions], batch_first=True)
            arguments = {
                "input_ids": pad_sequence([row.input_ids for row in rows], batch_first=True),
                "attention_mask": pad_sequence([torch.ones_like(row.input_ids) for row in rows], batch_first=True),
                "position_ids": places if places.dim() == 2 else places.movedim(-1, 0),
            }
        seen = [picture for picture in pictures if picture is not None]
        if seen:
            arguments["pixel_values"] = torch.cat([pixels for pixels, _ in seen])
            arguments["image_grid_thw"] = torch.cat([grids for _, grids in seen])
        labels = torch.cat([row.input_ids[row.mask] for row in rows])
        last = None
        if blank is not None:
            last = (0, -1) if self.packed else (-1, len(blank[0].input_ids) - 1)
        return Inputs(arguments, labels, (line, position), last)

    def _arguments(self, packed: Packed) -> dict[str, Any]:
        arguments: dict[str, Any] = {"input_ids": packed.input_ids, "position_ids": packed.position_ids}
        if self.attention == "eager":
            return arguments | {"attention_mask": packed.block_mask(self.dtype)}
        return arguments | packed.flash_arguments()

    def _positions(self, row: TrainRow, pictures: tuple[torch.Tensor, torch.Tensor] | None) -> torch.Tensor:
        """Return [l], or [4, l] for models with further position axes for time, height and width."""
        count = torch.arange(len(row.input_ids))
        if not hasattr(self.transformer, "get_rope_index"):
            return count
        kinds = (row.input_ids == self.transformer.config.image_token_id).int()
        ids, grids = row.input_ids[None], None if pictures is None else pictures[1]
        places = self.transformer.get_rope_index(ids, mm_token_type_ids=kinds[None], image_grid_thw=grids)[0]
        return torch.cat([count[None], places[:, 0]])

    @property
    def _sees(self) -> bool:
        """Whether pictures can be trained on: with models of the Qwen-VL families, which count positions by them."""
        return self.processor is not None and hasattr(self.transformer, "get_rope_index")

    def _pictures(self, row: TrainRow) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Return pixel values and grids of a row's images, or None."""
        read = self.processor is not None
        wanted = int((row.input_ids == self.transformer.config.image_token_id).sum()) if read else 0
        if not row.images:
            if wanted:
                raise TrainingError(f"{row.place}: {wanted} tokens are of pictures, but it lists none: {AGAIN}")
            return None
        if self.processor is None:
            raise TrainingError(f"{row.place}: has pictures, but the model reads text only: set model.path")
        encoded = self.processor(
            images=[_open_image(picture, row.place) for picture in row.images], return_tensors="pt"
        )
        pixels, grids = encoded["pixel_values"], encoded.get("image_grid_thw")
        if grids is None:
            raise TrainingError(f"{row.place}: pictures can be trained on with models of the Qwen-VL families only")
        tokens = int((grids.prod(-1) // self.processor.merge_size**2).sum())
        if tokens != wanted:
            raise TrainingError(
                f"{row.place}: the policy saw {wanted} tokens of pictures, the image processor of model.path makes "
                f"{tokens}: train the model that was served, with its preprocessor_config.json"
            )
        return pixels, grids

    def _blank(self) -> tuple[TrainRow, tuple[torch.Tensor, torch.Tensor]]:
        """Return a row of nothing but an empty picture, and that picture."""
        config = self.transformer.config
        vision, side = config.vision_config, config.vision_config.spatial_merge_size
        width = getattr(vision, "in_channels", 3) * vision.temporal_patch_size * vision.patch_size**2
        ids = torch.tensor([config.vision_start_token_id, config.image_token_id, config.vision_end_token_id])
        nothing = torch.zeros(len(ids), dtype=torch.bool)
        row = TrainRow(ids, nothing, torch.empty(0), trajectory=-1, step=0, images=(), place="an empty picture")
        return row, (torch.zeros(side * side, width), torch.tensor([[1, side, side]]))


def pack(sequences: Sequence[torch.Tensor], positions: Sequence[torch.Tensor] | None = None) -> Packed:
    """Pack sequences of token ids, each [l], into one row.

    `positions`: position ids, each [l] or [D, l], unless they are 0, 1, .... Raises `ValueError` for an empty sequence
    or positions of another length.
    """
    if positions is None:
        positions = [torch.arange(len(ids), device=ids.device) for ids in sequences]
    for number, (ids, places) in enumerate(zip(sequences, positions, strict=True)):
        if len(ids) == 0 or places.shape[-1] != len(ids):
            raise ValueError(f"sequence {number} has {len(ids)} tokens and {places.shape[-1]} positions")
    lengths = torch.tensor([len(ids) for ids in sequences])
    ids = torch.cat(list(sequences))
    return Packed(
        input_ids=ids[None],
        position_ids=torch.cat(list(positions), dim=-1).unsqueeze(-2),
        cu_seqlens=torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).to(ids.device, torch.int32),
    )


def _open_image(picture: Picture, place: str) -> Any:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(picture.path) as file:
            image = file.convert("RGB")
    except (OSError, UnidentifiedImageError) as error:
        raise TrainingError(f"{place}: {picture.path}: can't be read: {error}") from error
    if image.size != picture.size:
        seen = "x".join(map(str, picture.size))
        raise TrainingError(f"{place}: {picture.path} is not the picture that the policy saw, which had {seen} pixels")
    return image
