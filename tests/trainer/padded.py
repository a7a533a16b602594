"""Batches that the tests write as padded rows [B, T] of equal length, the form that TRL and verl compute on."""

import torch

from webgym_cli.records.sampling import Sampling
from webgym_cli.trainer.data import Batch, TrainRow, Trajectories
from webgym_cli.trainer.experience import Experience


def batch_of(mask, reward, group, *, trajectory=None, step=None) -> Batch:
    """Return the batch that `read_batch` makes of such rows: without those of failures, by trajectory and step.

    Without `trajectory` row i is trajectory i; without `step` the rows of a trajectory are in order.
    """
    numbers = range(len(mask)) if trajectory is None else trajectory.tolist()
    steps = range(len(mask)) if step is None else step.tolist()
    reward = reward.double()
    rows = [
        TrainRow(torch.zeros(len(of)).long(), of.bool(), torch.zeros(int(of.sum())), number, at, (), "a test")
        for of, number, at in zip(mask, numbers, steps, strict=True)
        if not reward[number].isnan()
    ]
    rows.sort(key=lambda row: (row.trajectory, row.step))
    trajectories = Trajectories(reward, reward >= 1, group, torch.full_like(reward, torch.nan), 0)
    return Batch(tuple(rows), trajectories, Sampling(temperature=1.0), 0, "")


def tokens_of(mask, reward, group, **order) -> Experience:
    """Return the tokens of such a batch."""
    return batch_of(mask, reward, group, **order).tokens()


def flat(tokens, padded):
    """Return the K values of [B, T] that stand at the tokens."""
    return padded[tokens.row, tokens.column]


def before(tokens, padded):
    """Return the K values of [B, T] that stand one position before the tokens: what a model predicts them by."""
    return padded[tokens.row, tokens.column - 1]


def spread(tokens, values, shape):
    """Return K values as [B, T], 0 elsewhere."""
    return values.new_zeros(shape).index_put((tokens.row, tokens.column), values)
