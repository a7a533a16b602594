"""Settings of `webgym curriculum`: WebRL's phases, each on new tasks derived from failed ones."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from webgym_cli.config.limits import MAX_EPISODES, MAX_ITERATIONS
from webgym_cli.config.section import ConfigSection


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
