"""What a dataset will hold: the eligible steps, why the others are out, and each iteration's share."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple, dataclass

from webgym_cli.config.model import Settings
from webgym_cli.errors import MissingStageError, WebGymError
from webgym_cli.prepare.filters import Drop, step_drop, trajectory_drop
from webgym_cli.prepare.sampling import quotas
from webgym_cli.records.task import Split
from webgym_cli.store.buffer import Damage, iterations, scan
from webgym_cli.store.checkpoints import version
from webgym_cli.store.run import RunDir

DRAW_KEYS = (
    "filter_retokenized",
    "positive_samples_to_train",
    "recency_bias_power",
    "val_split_ratio",
    "seed",
    "cutoff_len",
    "min_token_length",
)
"""The settings of the draw, beside those that choose the candidates."""


@dataclass(frozen=True, slots=True, order=True)
class Candidate:
    """An eligible step."""

    iteration: int
    trajectory: str
    step: int


@dataclass(frozen=True, slots=True)
class PreparePlan:
    """What `prepare` will do."""

    iteration: int
    """The iteration whose training this is for."""
    read: tuple[int, ...]
    """The iterations that are read, oldest first."""
    trajectories: int
    """Trajectories read."""
    candidates: tuple[Candidate, ...]
    quotas: dict[int, int]
    """Steps to draw, by iteration."""
    dropped_trajectories: dict[str, int]
    dropped_steps: dict[str, int]
    failures: dict[str, int]
    """Infrastructure failures among the dropped trajectories, by kind."""
    damaged: tuple[str, ...] = ()

    def digest(self, settings: Settings) -> str:
        """Return the SHA-256 of everything that decides which samples are drawn."""
        drawn_by = settings.algorithm_config.model_dump(include=set(DRAW_KEYS), mode="json")
        content = [self.iteration, settings.seed, drawn_by, [astuple(candidate) for candidate in self.candidates]]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def to_json(self) -> dict[str, object]:
        """Return what `--dry-run` prints."""
        return {
            "event": "plan",
            "stage": "prepare",
            "iteration": self.iteration,
            "iterations_read": list(self.read),
            "trajectories": self.trajectories,
            "eligible_steps": len(self.candidates),
            "samples_by_iteration": {str(key): value for key, value in self.quotas.items()},
            "dropped_trajectories": self.dropped_trajectories,
            "dropped_steps": self.dropped_steps,
            "failures": self.failures,
            "damaged_lines": list(self.damaged),
        }


def plan_dataset(run: RunDir, settings: Settings) -> PreparePlan:
    """Return the plan for the run's current iteration. Raises `MissingStageError` without any trajectory."""
    iteration = version(run)
    read = [found for found in iterations(run, Split.TRAIN) if found <= iteration]
    read = read[-settings.algorithm_config.last_n_iterations :]
    if not read:
        raise MissingStageError(f"{run.root}: no training trajectories", hint=f"webgym rollout {run.root}")
    return survey(run, settings, iteration, read)


def survey(run: RunDir, settings: Settings, iteration: int, read: list[int]) -> PreparePlan:
    """Read the trajectories of these iterations and say what a dataset would take of them."""
    algorithm = settings.algorithm_config
    damage = Damage()
    trajectories: Counter[str] = Counter()
    steps: Counter[str] = Counter()
    failures: Counter[str] = Counter()
    candidates: list[Candidate] = []
    count = 0
    for number in read:
        for trajectory in scan(run, Split.TRAIN, number, damage):
            count += 1
            if (reason := trajectory_drop(trajectory, algorithm)) is not None:
                trajectories[reason.value] += 1
                failures.update([str(trajectory.outcome.failure)] if reason is Drop.FAILURE else [])
                continue
            for step in trajectory.steps:
                if (step_reason := step_drop(step, algorithm)) is not None:
                    steps[step_reason.value] += 1
                else:
                    candidates.append(Candidate(number, trajectory.id, step.index))
    available = eligible(read, candidates)
    return PreparePlan(
        iteration=iteration,
        read=tuple(read),
        trajectories=count,
        candidates=tuple(candidates),
        quotas=quotas(available, algorithm.positive_samples_to_train, algorithm.recency_bias_power),
        dropped_trajectories=dict(sorted(trajectories.items())),
        dropped_steps=dict(sorted(steps.items())),
        failures=dict(sorted(failures.items())),
        damaged=tuple(damage.lines),
    )


def eligible(read: Sequence[int], candidates: Sequence[Candidate]) -> Counter[int]:
    """Return the number of candidates of each iteration that was read: one without any keeps its place in the draw."""
    found = Counter(dict.fromkeys(read, 0))
    found.update(candidate.iteration for candidate in candidates)
    return found


def refuse_empty(plan: PreparePlan, run: RunDir) -> None:
    """Raise when nothing is eligible, naming the reasons."""
    if not plan.candidates:
        reasons = ", ".join(f"{count} x {reason}" for reason, count in plan.dropped_trajectories.items())
        raise WebGymError(
            f"{run.root}: no step is fit for training ({reasons or 'no trajectories'})",
            hint=f"webgym inspect-buffer {run.root}",
        )
