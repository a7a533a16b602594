"""Settings `loop` and `curriculum`: iterations and phases. The text under a field is its help."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from webgym_cli.config.limits import MAX_EPISODES, MAX_ITERATIONS
from webgym_cli.config.section import ConfigSection


class LoopSettings(ConfigSection):
    """The iterations and evaluations of `webgym loop`."""

    iterations: int = Field(default=3, ge=1, le=MAX_ITERATIONS)
    """Total number of iterations of the run."""
    demonstration_iterations: int = Field(default=0, ge=0, le=MAX_ITERATIONS)
    """Number of initial iterations that use the expert's demonstrations (SFT baseline) in place of the policy's
    episodes: collected, or imported before (`webgym import`)."""
    demonstration_algorithm: str = "sft"
    """Training algorithm of demonstration iterations, as `train.algorithm`: one whose backend imitates steps."""
    demonstration_episodes: int | None = Field(default=None, ge=1, le=MAX_EPISODES)
    """Number of episodes of a demonstration iteration; null: `rollout.episodes`."""
    eval_every: int = Field(default=1, ge=0)
    """Evaluation interval on the test split, in policy versions, starting with the base model (version 0); the last
    version is always evaluated. 1: each version, 0: no evaluation."""
    val_before_train: bool = True
    """Evaluate version 0, the model before its first training."""
    mode: Literal["sync", "async"] = "sync"
    """Order of rollouts and trainings. `sync`: in turns; `async`: rollouts go on while the trainer works, with the
    policy that is served at the moment. `demonstration_iterations` are always in turns."""
    max_staleness: int = Field(default=1, ge=0)
    """With `loop.mode=async`: maximum number of trainings between the policy version that produced a step and the
    version that is trained on it. 0: rollouts wait for the trainer."""
    stale: Literal["wait", "drop"] = "wait"
    """With `loop.mode=async`: handling of an unfinished group of episodes whose steps are about to become too old.
    `wait`: the trainer waits for it; `drop`: it is dropped, which biases the batch towards short episodes."""


class CurriculumSettings(ConfigSection):
    """The phases. Phase 0 is the initial policy: the base model, or the result of training on demonstrations
    (`loop.demonstration_iterations`)."""

    phases: int = Field(default=8, ge=1, le=MAX_ITERATIONS)
    """Total number of phases of the run, each one iteration with a training."""
    tasks_per_phase: int = Field(default=500, ge=1, le=MAX_EPISODES)
    """Tasks of a phase: the maximum number of new ones (overrides `generate.tasks`), or the exact number of original
    ones. Each is attempted once, or `agent.num_chains` times."""
    generate: bool = True
    """Generate new tasks from failed ones (`generate`). false (ablation): each phase samples from `tasks.train`."""
    score: Literal["orm", "judge", "environment"] = "orm"
    """Scorer of tasks that their environment does not score: the outcome reward model (`orm`), the judge (`judge`), or
    none (`environment`), which excludes new tasks because no environment scores them."""
    survey_episodes: int | None = Field(default=None, ge=1, le=MAX_EPISODES)
    """Number of episodes of phase 0's policy on `tasks.train`; the failed ones seed phase 1. null: as many per task as
    in a phase. Stored in RUN/survey and excluded from training."""
