"""The states of a batch's episodes: prompts, valued by the critic from the hidden state of their last token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from webgym_cli.trainer.data import Batch, Picture, TrainRow, Transition
from webgym_cli.trainer.options import TrainingError

AGAIN = "make the batch again with webgym prepare and train.algorithm=webrl"


@dataclass(frozen=True, slots=True)
class States:
    """S deduplicated states: the state after a step is mostly the one before the next step."""

    rows: tuple[TrainRow, ...]
    """[S]: each a prompt plus one marked token, to which no other token attends; the critic reads before it."""
    before: torch.Tensor
    """[n] long: index of the state before each action."""
    after: torch.Tensor
    """[n] long: the number of the state that it led to; where an episode ended and no such state is asked for, of its
    own."""

    def count_visits(self, actions: Sequence[int], success: torch.Tensor, *, after: bool) -> torch.Tensor:
        """Return [S, 2] float: each state's number of visits by these actions in failures, and in successes.

        `success` [n] bool. `after`: also count the states after the actions.
        """
        chosen = torch.tensor(list(actions))
        met = [states[chosen] for states in (self.before, self.after)[: 1 + after]]
        counts = torch.zeros(len(self.rows), 2)
        for states in met:
            counts.index_put_((states, success[chosen].long()), torch.ones(len(chosen)), accumulate=True)
        return counts


def require_transition(row: TrainRow) -> Transition:
    """Return a row's transition. Raises `TrainingError` for a batch that was not prepared for `webrl`."""
    if row.transition is None:
        raise TrainingError(f"{row.place}: doesn't say which state it led to (next_prompt): {AGAIN}")
    first = int(row.mask.int().argmax())
    if not bool(row.mask[first:].all()):
        raise TrainingError(f"{row.place}: holds several steps, an action is wanted: {AGAIN}")
    return row.transition


def collect_states(batch: Batch, *, ends: bool) -> States:
    """Return the states of a batch, with `ends` including those after the last steps.

    Raises `TrainingError` for a batch that was not prepared for `webrl`.
    """
    row_of_state: dict[tuple[bytes, tuple[Picture, ...]], int] = {}
    rows: list[TrainRow] = []

    def number(row: TrainRow, prompt: torch.Tensor, images: tuple[Picture, ...]) -> int:
        key = prompt.numpy().tobytes(), images
        if key not in row_of_state:
            row_of_state[key] = len(rows)
            rows.append(replace(state_row(prompt, row.place, images), trajectory=row.trajectory, step=row.step))
        return row_of_state[key]

    before, after = [], []
    for row in batch.rows:
        transition = require_transition(row)
        before.append(number(row, row.input_ids[: int(row.mask.int().argmax())], row.images))
        if transition.last and not ends:
            after.append(before[-1])
        else:
            after.append(number(row, transition.next_prompt, transition.next_images))
    return States(tuple(rows), torch.tensor(before), torch.tensor(after))


def state_row(prompt: torch.Tensor, place: str, images: tuple[Picture, ...]) -> TrainRow:
    """Return a prompt as a row with one marked token after it, to which no other token attends."""
    mask = torch.zeros(len(prompt) + 1, dtype=torch.bool)
    mask[-1] = True
    return TrainRow(
        input_ids=torch.cat([prompt, prompt[-1:]]),
        mask=mask,
        log_probs=torch.zeros(1),
        trajectory=0,
        step=0,
        images=images,
        place=place,
    )
