"""The tracking plan: destination and contents of uploads, as printed by `--dry-run`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from webgym_cli.config.model import Settings
from webgym_cli.records.base import Record
from webgym_cli.store.run import RunDir, run_id
from webgym_cli.util.optional import known_or
from webgym_cli.venvs.wandb_mode import Mode, wandb_mode


class TrackingPlan(Record):
    """The wandb run of a run directory. Contains no secret, because it is an argument of the uploader process."""

    root: Path
    """The run directory."""
    mode: Mode
    reason: str
    """Why this mode."""
    entity: str
    """User or team; empty: the default of the account."""
    project: str
    name: str
    """The run's name there."""
    id: str
    """The run's id there; empty where the run directory is still to be made."""
    samples: int
    """Trajectories in each table; 0: no table."""
    seed: int
    """Decides which trajectories."""

    @property
    def enabled(self) -> bool:
        """Whether events are uploaded, or stored for a later upload."""
        return self.mode != "disabled" and bool(self.id)

    @property
    def destination(self) -> str:
        """Key of the upload offset: offline files and the online run are counted separately."""
        return f"{self.mode}:{self.entity}/{self.project}/{self.id}"

    def to_json(self) -> dict[str, Any]:
        """Return what `--dry-run` prints."""
        facts = self.model_dump(mode="json", include={"mode", "reason", "entity", "project", "name", "id", "samples"})
        return {"mode": self.mode, "reason": self.reason} if self.mode == "disabled" else facts


def plan_tracking(run: RunDir, settings: Settings, environ: Mapping[str, str] | None = None) -> TrackingPlan:
    """Return the plan. `environ` is this process's environment unless given."""
    mode, reason = wandb_mode(settings, known_or(environ, os.environ))
    log = settings.log_config
    return TrackingPlan(
        root=run.root,
        mode=mode,
        reason=reason,
        entity=log.entity_name,
        project=log.project_name,
        name=log.run_name,
        id=run_id(run, settings),
        samples=log.sample_trajectories,
        seed=settings.seed,
    )
