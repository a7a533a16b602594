"""Tasks of an agent, and planned episodes: the lines of a rollout plan."""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from typing import Any

from pydantic import Field

from webgym_cli.records.base import Record
from webgym_cli.records.groups import DifficultyBand as DifficultyBand
from webgym_cli.records.groups import Split as Split

_LATER = ("site", "role", "check")
# Field of `extra`: placeholder -> the address of this installation that a conversion filled in.
SITE_ADDRESSES = "site_addresses"


class Task(Record):
    """One task. Its `key` is a hash of its content, so equal tasks have equal keys in all runs."""

    id: str = Field(min_length=1)
    """Name of the task; for MiniWoB the page's name."""
    instruction: str = ""
    """What to do. Empty if the environment generates it when the episode starts (MiniWoB)."""
    start_url: str = ""
    """URL of the start page; for MiniWoB the page's file name; for a task with a `site`, possibly a path on it."""
    environment: str = Field(default="miniwob", min_length=1)
    """Name of the registered environment that runs it."""
    site: str = ""
    """Name of the site, in the settings `sites`, that it runs on; empty: any page."""
    role: str = ""
    """Account of the site that it starts logged in to; empty: without a login."""
    check: str = ""
    """Name of the check that decides its reward; empty: the environment's score or a judge."""
    difficulty: int = Field(default=1, ge=1)
    """WebGym's difficulty: the number of facts to find."""
    rubric: tuple[str, ...] = ()
    """The facts that a judge checks."""
    reference_answer: str | None = None
    """The expected answer, if any."""
    extra: dict[str, Any] = Field(default_factory=dict)
    """All unknown fields; passed to reward functions by name."""

    @property
    def band(self) -> DifficultyBand:
        """The difficulty band."""
        return DifficultyBand.of(self.difficulty)

    @cached_property
    def key(self) -> str:
        """16 hex digits of the SHA-256 of the content; neither the order of fields nor `SITE_ADDRESSES` changes it."""
        values = self.model_dump(mode="json")
        for name in _LATER:  # a task without them keeps the key that it had before there were such fields
            if not values[name]:
                del values[name]
        addresses = values["extra"].pop(SITE_ADDRESSES, None)
        content = json.dumps(values, sort_keys=True)
        if isinstance(addresses, dict):  # the longest first: one may be the beginning of another
            for name, address in sorted(addresses.items(), key=lambda item: len(str(item[1])), reverse=True):
                content = content.replace(json.dumps(str(address))[1:-1] or name, name)
        return hashlib.sha256(content.encode()).hexdigest()[:16]


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
