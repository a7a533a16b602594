"""Plan of a dataset: eligible steps, reasons for the others, and the quota of each iteration."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from webgym_cli.config.model import Settings
from webgym_cli.errors import MissingStageError, WebGymError
from webgym_cli.prepare.sft.candidates import CandidateCounts, CandidateTable
from webgym_cli.prepare.sft.sampling import compute_quotas
from webgym_cli.records.batch import BatchSelection
from webgym_cli.records.task import Split
from webgym_cli.store.checkpoints import version
from webgym_cli.store.index.query import Index
from webgym_cli.store.run import RunDir

# Settings of the sampling, other than those of the candidates.
DRAW_KEYS = (
    "filter_retokenized",
    "positive_samples_to_train",
    "weighting",
    "recency_bias_power",
    "val_split_ratio",
    "do_eval",
    "seed",
    "cutoff_len",
    "min_token_length",
)


@dataclass(frozen=True, slots=True)
class PreparePlan:
    """Plan of `prepare`."""

    iteration: int
    """The iteration to train on."""
    read: tuple[int, ...]
    """Iterations to read, oldest first."""
    counts: CandidateCounts
    """Eligible and dropped candidates."""
    quotas: dict[int, int]
    """Steps to sample by iteration; with weights by position the result may differ if steps are dropped."""
    damaged: tuple[str, ...]
    """Unreadable lines with file, byte offset and reason."""
    pool: CandidateTable = field(repr=False, compare=False)
    """Provides the steps while its index is open."""
    settings: Settings = field(repr=False, compare=False)

    @property
    def eligible(self) -> int:
        """Number of eligible steps."""
        return sum(self.counts.eligible.values())

    @property
    def shares(self) -> dict[int, int]:
        """Eligible steps by the iteration that they count for; with weights by position, all count for the last one."""
        return {self.read[-1]: self.eligible} if self.pool.by_position else dict(self.counts.eligible)

    def digest(self) -> str:
        """Return the SHA-256 of everything that determines the samples."""
        settings = self.settings
        drawn_by = settings.algorithm_config.model_dump(include=set(DRAW_KEYS), mode="json")
        chosen_by = settings.filters.model_dump(mode="json")
        steps = [sorted(self.counts.eligible.items()), self.counts.fingerprint]
        # Only what affects the sampling: a changed learning rate must not make the dataset stale.
        content = [self.iteration, settings.seed, drawn_by, chosen_by, steps]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def to_json(self) -> dict[str, object]:
        """Return the output of `--dry-run`."""
        counts = self.counts
        return {
            "event": "plan",
            "stage": "prepare",
            "iteration": self.iteration,
            "iterations_read": list(self.read),
            "trajectories": counts.trajectories,
            "steps": counts.steps,
            "eligible_steps": self.eligible,
            "samples_by_iteration": {str(key): value for key, value in self.quotas.items()},
            "dropped_trajectories": counts.dropped_trajectories,
            "steps_of_dropped_trajectories": counts.steps_of_dropped_trajectories,
            "dropped_steps": counts.dropped_steps,
            "failures": counts.failures,
            "damaged_lines": list(self.damaged),
        }


def plan_dataset(run: RunDir, settings: Settings, index: Index, selection: BatchSelection | None = None) -> PreparePlan:
    """Return the plan for the run's current iteration. Raises `MissingStageError` without any trajectory.

    `selection`: the new trajectories of the dataset, whose iterations are then read.
    """
    iteration = version(run)
    stored = [number for number in run.list_iterations(Split.TRAIN) if number <= iteration]
    read = stored[-settings.algorithm_config.last_n_iterations :] if selection is None else selection.iterations
    if not read:
        raise MissingStageError(f"{run.root}: no training trajectories", hint=f"webgym rollout {run.root}")
    return build_plan(run, settings, index, iteration, read)


def preview_dataset(run: RunDir, settings: Settings, index: Index) -> dict[str, object]:
    """Return, as JSON, the plan for a dataset of the newest iterations; empty without any trajectory."""
    read = run.list_iterations(Split.TRAIN)[-settings.algorithm_config.last_n_iterations :]
    return build_plan(run, settings, index, version(run), read).to_json() if read else {}


def build_plan(run: RunDir, settings: Settings, index: Index, iteration: int, read: Sequence[int]) -> PreparePlan:
    """Return the plan for these iterations. Raises `StoreError`."""
    pool = CandidateTable(index, settings, iteration, read)
    counts = pool.counts()
    wanted, power = settings.algorithm_config.positive_samples_to_train, settings.algorithm_config.recency_bias_power
    if pool.by_position:
        shares = counts.eligible if wanted is None else pool.count_first(wanted)
    else:
        shares = compute_quotas(counts.eligible, wanted, power)
    damaged = index.damaged_lines(f"split = 'train' AND iteration IN ({', '.join(map(str, read))})")
    return PreparePlan(
        iteration=iteration,
        read=tuple(read),
        counts=counts,
        quotas=shares,
        damaged=tuple(damaged),
        pool=pool,
        settings=settings,
    )


def refuse_empty(plan: PreparePlan, run: RunDir) -> None:
    """Raise an error with the reasons if nothing is eligible."""
    if not plan.eligible:
        dropped = [*plan.counts.dropped_trajectories.items(), *plan.counts.dropped_steps.items()]
        reasons = ", ".join(f"{count} x {reason}" for reason, count in dropped if count)
        raise WebGymError(
            f"{run.root}: no step is fit for training ({reasons or 'no trajectories'})",
            hint=f"webgym inspect-buffer {run.root}",
        )
