"""Planned episodes: the lines of a rollout plan."""

from __future__ import annotations

from pydantic import Field

from webgym_cli.records.base import Record
from webgym_cli.records.task import Split, Task


class Episode(Record):
    """One planned episode with everything that determines its start, sampled before the rollout."""

    id: str
    """`<split>-<iteration>-<number>`."""
    split: Split
    iteration: int = Field(ge=0)
    task: Task
    seed: int = Field(ge=0)
    max_steps: int = Field(ge=1)
    position: int = Field(default=0, ge=0)
    """Position in the sampler's stream (of all tasks, or of the task's difficulty band)."""
    repeat: int = Field(default=0, ge=0)
    """Number of earlier episodes with the same task and seed (`rollout.test_repeats`)."""
    greedy: bool = False
    """Whether the policy decodes greedily (temperature 0): with `agent.greedy_chain` the last episode of a group, with
    the seed of the first. Policy gradients use it as a baseline and don't train on it."""
