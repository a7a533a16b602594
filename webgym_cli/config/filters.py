"""Settings `filters`: filters of the dataset. The text under a field is its help."""

from __future__ import annotations

from pydantic import Field

from webgym_cli.config.section import ConfigSection
from webgym_cli.records.task import DifficultyBand


class FilterSettings(ConfigSection):
    """What `prepare` leaves out beside what WebGym does: as it comes, nothing. Each filter tells what it dropped."""

    only_sites: tuple[str, ...] = ()
    """Only tasks of these sites: registrable domains (`example.com`), or an environment's name where tasks have no
    address (`miniwob`). Empty: every site."""
    exclude_sites: tuple[str, ...] = ()
    """No task of these sites."""
    difficulties: tuple[DifficultyBand, ...] = ()
    """Only tasks of these difficulty bands: `easy`, `medium`, `hard`. Empty: every band."""
    max_age_hours: float | None = Field(default=None, gt=0)
    """Oldest trajectories, in hours before the newest of the training split started: the same whenever it is run.
    null: any age."""
    min_agreement: float = Field(default=0.0, ge=0, le=1)
    """Smallest share of the judge's votes that must have gone with its decision, on the question that divided it most.
    Trajectories that their environment scored have no votes and pass."""
    drop_older_repeats: bool = False
    """Drop a step when a newer iteration has one of the same task with the same screenshot and response."""
    max_steps_per_trajectory: int | None = Field(default=None, ge=1)
    """Steps that are eligible of one trajectory, chosen by the seed; null: all."""
    max_steps_per_task: int | None = Field(default=None, ge=1)
    """Steps that are eligible of one task, over all that is read, chosen by the seed; null: all."""
    near_duplicate_bits: int | None = Field(default=None, ge=0, le=256)
    """Drop a step when one of the same task was drawn whose screenshot's difference hash (256 bits) differs in at most
    so many bits. About 10 is the same page with other words in a corner; null: not compared. Decodes each drawn
    step's screenshot."""
