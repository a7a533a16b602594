"""Settings of `webgym curriculum`: WebRL's phases, each on new tasks made of those that failed."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from webgym_cli.config.section import ConfigSection


class CurriculumSettings(ConfigSection):
    """The phases. Phase 0 is the policy that they begin with: the base model, or what the demonstrations made of it
    (`loop.demonstration_iterations`)."""

    phases: int = Field(default=8, ge=1)
    """Phases that the run shall have in all, each an iteration with a training."""
    tasks_per_phase: int = Field(default=500, ge=1)
    """Tasks of a phase: new ones at most (`generate.tasks` is not read), of the original ones just so many. Each is
    tried once, or `agent.num_chains` times."""
    generate: bool = True
    """Make new tasks of those that failed (`generate`). false, the ablation: each phase draws from `tasks.train`."""
    score: Literal["orm", "judge", "environment"] = "orm"
    """Who tells whether the tasks of a phase were done, where their environment doesn't: the outcome reward model
    (`orm`), the judge (`judge`), or nobody, which new tasks rule out: no environment can score them."""
    survey_episodes: int | None = Field(default=None, ge=1)
    """Episodes of phase 0's policy on `tasks.train`, whose failures are the seeds of phase 1; null: each task as often
    as in a phase. They are stored in RUN/survey and not trained on."""
