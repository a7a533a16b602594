"""Settings `filters`: filters of the dataset. The text under a field is its help."""

from __future__ import annotations

from pydantic import Field

from webgym_cli.config.section import ConfigSection
from webgym_cli.records.groups import DifficultyBand


class FilterSettings(ConfigSection):
    """Filters of datasets for imitation, in addition to WebGym's; off by default. Each reports what it dropped. Policy
    gradients train on all episodes."""

    only_sites: tuple[str, ...] = ()
    """Sites of eligible tasks: registrable domains (`example.com`), or an environment's name for tasks without an
    address (`miniwob`). Empty: every site."""
    exclude_sites: tuple[str, ...] = ()
    """Sites of excluded tasks, in the same form."""
    difficulties: tuple[DifficultyBand, ...] = ()
    """Difficulty bands of eligible tasks: `easy`, `medium`, `hard`. Empty: every band."""
    max_age_hours: float | None = Field(default=None, gt=0)
    """Maximum age of a trajectory, in hours before the start of the newest one of the training split; null: any age."""
    min_agreement: float = Field(default=0.0, ge=0, le=1)
    """Minimum fraction of the judge's votes that agreed with its decision, on the most disputed question. Trajectories
    that their environment scored have no votes and pass."""
    drop_older_repeats: bool = False
    """Drop a step if a newer iteration has one of the same task with the same screenshot and response."""
    max_steps_per_trajectory: int | None = Field(default=None, ge=1)
    """Maximum number of eligible steps per trajectory, sampled by the seed; null: all."""
    max_steps_per_task: int | None = Field(default=None, ge=1)
    """Maximum number of eligible steps per task over all iterations read, sampled by the seed; null: all."""
