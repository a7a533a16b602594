"""What a rollout plans: one line of an iteration's plan."""

from __future__ import annotations

from pydantic import Field

from webgym_cli.records.base import Record
from webgym_cli.records.task import Split, Task


class Episode(Record):
    """One planned episode: everything that decides what the agent meets, drawn before the first one runs."""

    id: str
    """`<split>-<iteration>-<number>`."""
    split: Split
    iteration: int = Field(ge=0)
    task: Task
    seed: int = Field(ge=0)
    max_steps: int = Field(ge=1)
    position: int = Field(default=0, ge=0)
    """Where in the sampler's stream (of all tasks, or of the task's band) it was drawn."""
    repeat: int = Field(default=0, ge=0)
    """How many episodes before it were the same task on the same seed: evaluations may run each several times."""
    greedy: bool = False
    """Whether the policy is asked for its likeliest tokens (temperature 0): with `agent.greedy_chain` the last episode
    of a group, on the seed of the first. Policy gradients compare the others with it and don't train on it."""
