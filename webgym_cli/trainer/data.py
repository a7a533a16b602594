"""Reads the batch of an iteration: prompts, generated tokens with log-probabilities, and rewards."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from pydantic import ValidationError

from webgym_cli.records.base import describe_invalid
from webgym_cli.records.sampling import Sampling
from webgym_cli.trainer.experience import Experience
from webgym_cli.trainer.options import TrainingError, read_object
from webgym_cli.util.optional import map_known, when

AGAIN = "prepare the data again"
# Drop reasons in `trajectories.jsonl` of episodes that did not fail (`prepare/rl/drop_reasons.py`).
NO_VARIANCE = "no_variance"


class Picture(NamedTuple):
    """An image of a prompt."""

    path: Path
    size: tuple[int, int]
    """Width and height in pixels, as the policy saw it."""


@dataclass(frozen=True, slots=True)
class Transition:
    """The transition of a one-step row, which `webrl` needs: the next state and whether it is terminal."""

    next_prompt: torch.Tensor
    """[m] long: prompt of the next state; the last step has one, too."""
    next_images: tuple[Picture, ...]
    """Images of the next prompt, in the order of their placeholder tokens."""
    last: bool
    """Whether the step is the episode's last."""
    replayed: bool
    """Whether the step was replayed from an earlier phase."""


@dataclass(frozen=True, slots=True)
class TrainRow:
    """One training sequence of l tokens."""

    input_ids: torch.Tensor
    """[l] long."""
    mask: torch.Tensor
    """[l] bool: True for tokens that the policy generated."""
    log_probs: torch.Tensor
    """[k] float32: the sampler's log-probs of the k generated tokens, after temperature and truncation."""
    trajectory: int
    """Trajectory index."""
    step: int
    """Index of the row's first step in the trajectory."""
    images: tuple[Picture, ...]
    """Images, in the order of their placeholder tokens."""
    place: str
    """File and line, for messages."""
    anchor: str = ""
    """Digest of the observation that its step answers; empty where a row may hold several steps."""
    version: int | None = None
    """Oldest policy version among its steps; None if unknown."""
    transition: Transition | None = None
    """Set for one-step rows prepared for `webrl`."""


@dataclass(frozen=True, slots=True)
class Trajectories:
    """Per-trajectory data of N episodes."""

    reward: torch.Tensor
    """[N] float64; NaN for episodes that are not trained on: failed ones, and greedy ones for a baseline."""
    success: torch.Tensor
    """[N] bool: whether the episode succeeded."""
    group: torch.Tensor
    """[N] long."""
    baseline: torch.Tensor
    """[N] float64: the reward of the greedy episode of the same group, NaN where there is none."""
    failed: int
    """Number of failed episodes."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The batch of one training."""

    rows: tuple[TrainRow, ...]
    """Rows of the trajectories with a reward, sorted by trajectory and step."""
    trajectories: Trajectories
    sampling: Sampling
    """Temperature, top-k, top-p and min-p of the sampler."""
    iteration: int
    """The iteration that sampled it."""
    digest: str
    """SHA-256 of its rows and rewards."""

    @property
    def offsets(self) -> torch.Tensor:
        """[B + 1] long: offset of each row's trained tokens among the K of the batch, and K."""
        counts = torch.tensor([0, *(len(row.log_probs) for row in self.rows)])
        return counts.cumsum(0)

    @property
    def rollout_log_probs(self) -> torch.Tensor:
        """[K] float32: the sampler's log-probs."""
        return torch.cat([row.log_probs for row in self.rows])

    def tokens(self) -> Experience:
        """Return the K tokens. Raises `TrainingError` for rows that don't make up the trajectories with a reward."""
        steps = [(row.trajectory, row.step) for row in self.rows]
        if len(set(steps)) < len(steps):
            raise TrainingError("the batch: two rows are the same step of the same trajectory")
        reward, counts = self.trajectories.reward, self.offsets.diff()
        if empty := {*(~reward.isnan()).nonzero()[:, 0].tolist()} - {number for number, _ in steps}:
            raise TrainingError(
                f"the batch: trajectory {min(empty)} has a reward, but the policy produced no token in it"
            )
        return Experience(
            row=torch.arange(len(steps)).repeat_interleave(counts),
            column=torch.cat([row.mask.nonzero()[:, 0] for row in self.rows]),
            trajectory=torch.tensor([number for number, _ in steps]).repeat_interleave(counts),
            reward=reward,
            group=torch.unique(self.trajectories.group, return_inverse=True)[1],
        )


def read_batch(folder: Path, *, with_baseline: bool = False) -> Batch:
    """Return the batch of a folder. Raises `TrainingError` naming file and line of what is wrong.

    `with_baseline`: leave out the trajectories whose group has no greedy episode.
    """
    head = read_object(folder / "rl.json")
    if head.get("schema") != 1:
        raise TrainingError(f"{folder / 'rl.json'}: schema {head.get('schema')} is not known here: {AGAIN}")
    trajectories = _trajectories(folder / "trajectories.jsonl", with_baseline)
    rows_file = folder / "rows.jsonl"
    digest = hashlib.sha256()
    rows = sorted(_rows(rows_file, trajectories, digest), key=lambda row: (row.trajectory, row.step))
    if digest.hexdigest() != head.get("digest"):
        raise TrainingError(f"{rows_file}: is not what rl.json names (its SHA-256 differs): {AGAIN}")
    if not rows:
        raise TrainingError(f"{rows_file}: nothing to learn from: no trajectory with a reward has tokens")
    digest.update((folder / "trajectories.jsonl").read_bytes())
    return Batch(
        rows=tuple(rows),
        trajectories=trajectories,
        sampling=_sampling(head, folder / "rl.json"),
        iteration=int(head.get("iteration", 0)),
        digest=digest.hexdigest(),
    )


def _sampling(head: dict[str, Any], path: Path) -> Sampling:
    given = head.get("sampling") or {}
    try:
        sampling = Sampling.model_validate({name: value for name, value in given.items() if value is not None})
    except (ValidationError, AttributeError) as error:
        raise TrainingError(f"{path}: sampling: {describe_invalid(error)}: {AGAIN}") from error
    if sampling.greedy:
        raise TrainingError(f"{path}: sampling: temperature 0: only what was sampled can be learned from")
    return sampling


def _lines(path: Path) -> Iterator[tuple[str, bytes, dict[str, Any]]]:
    """Yield place, bytes and object of each line."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                yield f"{path}: line {number}", line, json.loads(line)
    except OSError as error:
        raise TrainingError(f"{path}: can't be read: {error.strerror}") from error
    except ValueError as error:
        raise TrainingError(f"{path}: is no JSON Lines: {error}: {AGAIN}") from error


def _trajectories(path: Path, with_baseline: bool) -> Trajectories:
    """Read rewards and groups."""
    entries: dict[int, tuple[int, float, bool, bool]] = {}
    filtered = 0
    for place, _, value in _lines(path):
        try:
            reward = math.nan if value["reward"] is None else float(value["reward"])
            success = bool(value.get("success", reward >= 1))  # batches of older versions don't have it
            entry = (int(value["group"]), reward, bool(value.get("greedy", False)), success)
            number = int(value["number"])
            filtered += value.get("masked") == NO_VARIANCE
        except (KeyError, TypeError, ValueError) as error:
            raise TrainingError(f"{place}: not a trajectory ({error!r}): {AGAIN}") from error
        if math.isinf(reward) or number in entries:
            raise TrainingError(f"{place}: trajectory {number} has an infinite reward, or is there twice: {AGAIN}")
        entries[number] = entry
    if sorted(entries) != list(range(len(entries))):
        raise TrainingError(f"{path}: the trajectories' numbers must be from 0 to {len(entries) - 1}: {AGAIN}")
    ordered = [entries[number] for number in range(len(entries))]
    greedy = {group: reward for group, reward, is_greedy, _ in ordered if is_greedy}
    baseline = torch.tensor([greedy.get(group, math.nan) for group, *_ in ordered], dtype=torch.float64)
    rewards = [math.nan if is_greedy else reward for _, reward, is_greedy, _ in ordered]
    reward = torch.tensor(rewards, dtype=torch.float64)
    if with_baseline:
        reward = reward.masked_fill(baseline.isnan(), math.nan)
    failed = sum(math.isnan(reward) for _, reward, _, _ in ordered) - filtered
    success, group = (torch.tensor([entry[at] for entry in ordered]) for at in (3, 0))
    return Trajectories(reward, success, group, baseline, failed)


def _rows(path: Path, trajectories: Trajectories, digest: Any) -> Iterator[TrainRow]:
    """Yield the trained rows, and add all lines to the digest."""
    valid = (~trajectories.reward.isnan()).tolist()
    for place, line, value in _lines(path):
        digest.update(line)
        try:
            row = _row(value, path.parent, place)
        except (KeyError, TypeError, ValueError) as error:
            raise TrainingError(f"{place}: not a sequence ({error!r}): {AGAIN}") from error
        if not 0 <= row.trajectory < len(valid):
            raise TrainingError(f"{place}: trajectory {row.trajectory} is not in trajectories.jsonl: {AGAIN}")
        if len(row.log_probs) and valid[row.trajectory]:
            yield row


def _row(value: dict[str, Any], folder: Path, place: str) -> TrainRow:
    mask = torch.tensor(value["mask"], dtype=torch.bool)
    row = TrainRow(
        input_ids=torch.tensor(value["input_ids"], dtype=torch.long),
        mask=mask,
        log_probs=torch.tensor(value["logprobs"], dtype=torch.float32),
        trajectory=int(value["number"]),
        step=int(value["step"]),
        images=_pictures(value, "", folder, place),
        place=place,
        anchor=str(value.get("anchor") or ""),
        version=map_known(int, value.get("version")),
        transition=_transition(value, folder, place) if "next_prompt" in value else None,
    )
    wrong = ""
    if row.input_ids.shape != mask.shape or mask.dim() != 1 or len(mask) == 0:
        wrong = f"{len(row.input_ids)} tokens, {len(mask)} marks in the mask"
    elif len(row.log_probs) != int(mask.sum()):
        wrong = f"{len(row.log_probs)} log-probs for {int(mask.sum())} tokens of the policy"
    elif not bool(row.log_probs.isfinite().all()):
        wrong = "a log-prob is not finite"
    elif bool(mask[0]):
        wrong = "its first token can't be the policy's"
    elif row.transition is not None and len(row.transition.next_prompt) == 0:
        wrong = "the prompt after it has no tokens"
    if wrong:
        raise TrainingError(f"{place}: {wrong}: {AGAIN}")
    return row


def _pictures(value: dict[str, Any], of: str, folder: Path, place: str) -> tuple[Picture, ...]:
    """Return the images of a row or of its next state (`of`: the prefix of their keys)."""
    images, sizes = value.get(f"{of}images") or (), value.get(f"{of}sizes") or ()
    if len(images) != len(sizes):
        after = when(of, " after it")
        raise TrainingError(f"{place}: {len(images)} pictures{after}, {len(sizes)} sizes: {AGAIN}")
    pairs = zip(images, sizes, strict=True)
    return tuple(Picture(folder / image, (int(width), int(height))) for image, (width, height) in pairs)


def _transition(value: dict[str, Any], folder: Path, place: str) -> Transition:
    return Transition(
        next_prompt=torch.tensor(value["next_prompt"], dtype=torch.long),
        next_images=_pictures(value, "next_", folder, place),
        last=bool(value["last"]),
        replayed=bool(value["replayed"]),
    )
