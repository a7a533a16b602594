"""How episodes are run, and the judge."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from webgym_cli.config.section import ConfigSection


class MaxSteps(ConfigSection):
    """Step limits by difficulty band."""

    easy: int = Field(default=10, ge=1)
    """Steps for a task with 1 to 3 facts."""
    medium: int = Field(default=20, ge=1)
    """Steps for a task with 4 to 6 facts."""
    hard: int = Field(default=30, ge=1)
    """Steps for a task with 7 and more facts."""


class RolloutSettings(ConfigSection):
    """How episodes are run."""

    policy: str = "vllm"
    """`vllm` (our server on the run's current model), `oracle` (the environment's expert), or an OpenAI base URL;
    several base URLs, with commas between, share the requests."""
    episodes: int = Field(default=1024, ge=1)
    """Training episodes of an iteration, the greedy ones of `agent.greedy_chain` among them."""
    test_episodes: int = Field(default=100, ge=1)
    """Held-out tasks and seeds of an evaluation: the same each time."""
    test_repeats: int = Field(default=1, ge=1)
    """Episodes of each of them: a policy that samples answers differently each time."""
    concurrency: int | None = Field(default=None, ge=1)
    """Episodes that run at once; null: as many as the machine's cores and free memory carry."""
    train_max_steps: MaxSteps = MaxSteps()
    """Step limits of training episodes."""
    test_max_steps: MaxSteps = MaxSteps(easy=30, medium=50, hard=70)
    """Step limits of test episodes."""
    policy_timeout: float = Field(default=240.0, gt=0)
    """Deadline of one policy call, in seconds."""
    policy_retries: int = Field(default=2, ge=0)
    """Repeats of a policy call that the server failed to answer; of several servers, another one is asked."""
    policy_failures: int = Field(default=3, ge=1)
    """Failures in a row after which one of several policy servers is left alone for a while."""
    policy_cooldown: float = Field(default=5.0, gt=0)
    """How long it is left alone, in seconds; twice as long each time that it fails again before it has worked."""
    policy_cooldown_max: float = Field(default=120.0, gt=0)
    """Longest time that a policy server is left alone before it is probed, in seconds."""
    episode_timeout: float = Field(default=1800.0, gt=0)
    """Deadline of an episode, in seconds."""
    max_attempts: int = Field(default=3, ge=1)
    """How often an episode is tried when infrastructure fails. Each attempt is stored."""
    blocklist_hours: float = Field(default=12.0, ge=0)
    """How long a site that blocked the browser is left out; 0: never."""
    completion_threshold: float = Field(default=1.0, gt=0, le=1)
    """Once this share of the owed episodes is done, the rest is cut after `completion_grace`: stored as `cancelled`
    and owed. Below 1 it biases the sample against long episodes."""
    completion_grace: float = Field(default=30.0, ge=0)
    """Seconds that the last episodes are given once the threshold is reached."""
    executor: Literal["local", "ray"] = "local"
    """`ray`: one rollout actor on each node of a Ray cluster."""
    ray_address: str = ""
    """Address of the Ray cluster; empty: `RAY_ADDRESS`, else a new one on this machine."""
    ray_cpus: float = Field(default=1.0, ge=0)
    """CPUs that a rollout actor takes of its node's Ray resources; nodes that offer fewer get none."""
