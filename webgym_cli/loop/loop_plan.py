"""Plan of a loop: number of trainings, evaluations and mode; and its deadline, ahead of the end of a batch job.

A loop ends before a batch system takes the machine away, so that the requeued job goes on.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count
from typing import Any

from webgym_cli.config.model import Settings
from webgym_cli.errors import OutOfTimeError, SettingsError, Terminated, UsageError
from webgym_cli.loop.rollout_setup import plan_current_rollout
from webgym_cli.prepare.data import PREPARED_DATA
from webgym_cli.records.batch import LoopMode
from webgym_cli.records.series import ORACLE, VLLM
from webgym_cli.records.stored_events import EvaluationEvent
from webgym_cli.records.task import Split
from webgym_cli.store.checkpoints import algorithm, version
from webgym_cli.store.metrics import read_events, read_valid_events
from webgym_cli.store.run import RunDir
from webgym_cli.train.registry import find_backend
from webgym_cli.util.optional import known_or, when


class Phase(StrEnum):
    """The next half of an iteration: rollout or update."""

    ROLLOUT = "rollout"
    UPDATE = "update"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class LoopPlan:
    """Plan of a loop. A policy version is the number of its trainings: version 0 is the base model."""

    phase: Phase
    start: int
    """Current policy version."""
    iterations: int
    """Total number of trainings of the run at the end."""
    evaluations: tuple[int, ...]
    """Policy versions still to be evaluated."""
    until: float | None = None
    """Success rate of an evaluation that ends the loop early."""
    min_success: float | None = None
    """Success rate of the last evaluation below which the loop ends with exit code 5."""
    keep_going: bool = False
    """Whether the loop continues after a failed stage."""
    mode: LoopMode = "sync"
    """Synchronous or asynchronous; applies after the demonstrations, which are always synchronous."""
    demonstrations: int = 0
    """Number of remaining trainings on demonstrations; synchronous in both modes."""

    @property
    def rounds(self) -> int:
        """Number of passes over the stages; at most 1 for a half iteration, which needs the other half to repeat."""
        left = max(0, self.iterations - self.start)
        return left if self.phase is Phase.BOTH else min(1, left)

    @property
    def trainings(self) -> int:
        """Number of remaining trainings of this loop."""
        return when(self.phase is not Phase.ROLLOUT, self.rounds)

    def is_evaluation_due(self, run: RunDir) -> bool:
        """Whether the evaluation of the current policy version is planned and not done."""
        return version(run) in self.evaluations and _find_evaluation(run, version(run)) is None

    def has_reached(self, run: RunDir, number: int) -> bool:
        """Whether the evaluation of a policy version reaches `until`."""
        if self.until is None:
            return False
        rate = (_find_evaluation(run, number) or {}).get("success_rate")
        return rate is not None and rate >= self.until

    def to_json(self) -> dict[str, Any]:
        """Return what `--dry-run` prints."""
        return {
            "event": "plan",
            "stage": "loop",
            "phase": self.phase,
            "trainings_done": self.start,
            "trainings_to_do": self.trainings,
            "evaluations": list(self.evaluations),
            "until": self.until,
            "min_success": self.min_success,
            "keep_going": self.keep_going,
            "mode": self.mode,
        }


def plan_loop(
    run: RunDir,
    settings: Settings,
    *,
    phase: Phase = Phase.BOTH,
    iterations: int | None = None,
    eval_every: int | None = None,
    until: float | None = None,
    min_success: float | None = None,
    keep_going: bool = False,
) -> LoopPlan:
    """Return the plan of a loop. Options that are None take the value of the settings.

    Raises `UsageError` if the tasks or the policy of the first rollouts, or the run's path, can't be used, and if
    `until` or `min_success` is given without evaluations.
    """
    every = known_or(eval_every, settings.loop.eval_every)
    start, wanted = version(run), iterations or settings.loop.iterations
    if (until is not None or min_success is not None) and (not every or phase is Phase.UPDATE):
        raise UsageError(
            "--until and --min-success look at evaluations, and this loop makes none",
            hint="add --eval-every 1, without --phase update",
        )
    last = wanted if phase is Phase.BOTH else start
    numbers = range(start if start or settings.loop.val_before_train else 1, max(start, last) + 1)
    # Every `every`-th version and the last; none if it is 0.
    due = [number for number in numbers if every and (number % every == 0 or number == numbers[-1])]
    known = {event["iteration"] for event in read_valid_events(run, EvaluationEvent)}
    evaluations = when(phase is not Phase.UPDATE, tuple(number for number in due if number not in known))
    demonstrations = max(0, min(settings.loop.demonstration_iterations, wanted) - start)
    mode = settings.loop.mode
    plan = LoopPlan(phase, start, wanted, evaluations, until, min_success, keep_going, mode, demonstrations)
    for number in when(plan.trainings, (start, start + plan.trainings - 1)):
        find_backend(algorithm(run, settings, number)).check_run(run)
    if mode == "async" and plan.rounds:
        _check_async(plan, settings)
        window = next(number for number in count(start) if not run.plan(Split.TRAIN, number).is_file())
        plan_current_rollout(run, settings, Split.TRAIN, settings.rollout.policy, iteration=window)
    if evaluations:
        plan_current_rollout(run, settings, Split.TEST, settings.rollout.policy)
    in_turns = mode == "sync" or demonstrations
    if in_turns and plan.rounds and phase is not Phase.UPDATE and not is_imported(run, settings, start):
        plan_current_rollout(run, settings, Split.TRAIN, choose_policy(settings, start))
    return plan


def _find_evaluation(run: RunDir, number: int) -> dict[str, Any] | None:
    return next((event for event in read_valid_events(run, EvaluationEvent) if event["iteration"] == number), None)


def choose_policy(settings: Settings, iteration: int) -> str:
    """Return the policy of an iteration's training episodes: the expert or `rollout.policy`."""
    return ORACLE if iteration < settings.loop.demonstration_iterations else settings.rollout.policy


def is_imported(run: RunDir, settings: Settings, iteration: int) -> bool:
    """Whether an iteration's demonstrations were imported: they are stored, but in no plan."""
    imported = iteration in run.list_iterations(Split.TRAIN) and not run.plan(Split.TRAIN, iteration).is_file()
    return imported and choose_policy(settings, iteration) == ORACLE


def _check_async(plan: LoopPlan, settings: Settings) -> None:
    """Raise `UsageError` or `SettingsError` for options that the asynchronous loop doesn't support."""
    if plan.phase is not Phase.BOTH or plan.keep_going:
        option = "--keep-going" if plan.keep_going else f"--phase {plan.phase}"
        raise UsageError(f"{option} is for rollouts and trainings in turns", hint="-s loop.mode=sync")
    if settings.rollout.policy == ORACLE:
        raise SettingsError(
            "loop.mode=async: an expert's episodes don't depend on the training", hint="-s loop.mode=sync"
        )
    if settings.train.executor == "ray":
        raise SettingsError("loop.mode=async trains on one node", hint="-s train.executor=local, or -s loop.mode=sync")
    if settings.rollout.executor == "ray" and settings.rollout.policy != VLLM:
        raise SettingsError(
            "loop.mode=async opens its browsers on one node, and the others serve the policy: that takes "
            f"rollout.policy={VLLM}",
            hint="-s rollout.executor=local",
        )
    if settings.rollout.completion_threshold < 1:
        raise SettingsError(
            "loop.mode=async: rollouts have no end that rollout.completion_threshold could cut off",
            hint="-s rollout.completion_threshold=1",
        )
    PREPARED_DATA.find(find_backend(settings.train.algorithm).data).check_async(settings)


# SLURM's variable with the end of a job in seconds since 1970; a requeued job gets a new one.
END_VARIABLE = "SLURM_JOB_END_TIME"
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}
# The longest stage that is left to another job, as a share of a command's time: it must fit in there.
_MOST = 0.9
# Recorded events whose duration is that of a stage, by stage.
_PARTS = {"evaluation": ("evaluation",), "rollout": ("rollout",), "update": ("prepare", "train")}


@dataclass(slots=True)
class Deadline:
    """The time at which a command must have ended its work."""

    run: RunDir
    at: float
    """In seconds since 1970."""
    clock: Callable[[], float] = time.time
    _whole: float = field(init=False)
    """Seconds from the start of the command to the deadline."""
    _passed: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        """Measure the time of the whole command."""
        self._whole = self.at - self.clock()

    def require_time(self, stage: str) -> None:
        """Raise `OutOfTimeError` unless a stage ends in time if it takes as long as the last ones of its kind.

        One that is longer than a whole command starts nevertheless: it would never start otherwise, and goes on in the
        next job.
        """
        seconds = measure_last(self.run, stage)
        if self.at - self.clock() < seconds <= _MOST * self._whole:
            raise self._error(f"the next {stage} takes about {seconds / 60:.1f} minutes, as the last ones did")

    @contextmanager
    def enforced(self) -> Iterator[None]:
        """End the block at the deadline as SIGTERM ends it, by `OutOfTimeError`: what was finished is stored."""
        timer = threading.Timer(max(0.0, self.at - self.clock()), self._pass)
        timer.daemon = True
        try:
            timer.start()  # within the block: it ends at once if the deadline has passed
            yield
        except Terminated:
            if self._passed.is_set():
                raise self._error("a stage was stopped") from None
            raise
        finally:
            timer.cancel()

    def _pass(self) -> None:
        self._passed.set()
        os.kill(os.getpid(), signal.SIGTERM)

    def _error(self, what: str) -> OutOfTimeError:
        left = max(0.0, self.at - self.clock())
        return OutOfTimeError(
            f"{self.run.root}: {left / 60:.1f} minutes are left before the deadline: {what}",
            hint=f"webgym resume {self.run.root} goes on in another job",
        )


def measure_last(run: RunDir, stage: str) -> float:
    """Return the seconds of the longer one of the last two stages of a kind that the run has recorded; 0 without any.

    Of two, because one that went on in another job is recorded with the seconds of its rest.
    """
    seconds = {name: [0.0] for name in _PARTS[stage]}
    for event in read_events(run, *_PARTS[stage]):
        if event.get("collected") != 0:  # a complete rollout is recorded again by the job that goes on after it
            seconds[event["event"]].append(event.get("seconds") or 0.0)
    return sum(max(of_kind[-2:]) for of_kind in seconds.values())


def find_deadline(run: RunDir, stop_before: str | None, environ: Mapping[str, str]) -> Deadline | None:
    """Return the deadline of `--stop-before` ahead of the end of the SLURM job; None without the option.

    Raises `UsageError` for a time that can't be read, or without the variable.
    """
    if stop_before is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", stop_before)
    if match is None:
        raise UsageError(f"--stop-before {stop_before}: is no time", hint="--stop-before 3m, 90s or 1h")
    end = environ.get(END_VARIABLE, "")
    if not re.fullmatch(r"\d{1,10}", end):  # more digits are no seconds, and longer than a timer can wait
        raise UsageError(
            f"--stop-before: {END_VARIABLE} {'is not set' if not end else f'is {end}, no seconds since 1970'}",
            hint=f"outside of SLURM: export {END_VARIABLE}=$(date -d '+4 hours' +%s)",
        )
    return Deadline(run, int(end) - float(match[1]) * _UNITS[match[2]])
