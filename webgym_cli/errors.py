"""Exception hierarchy of webgym; each class has an exit code.

    WebGymError                       1   something failed; the message says what, the hint what to type next
    ├── UsageError                    2   arguments, settings or an input file are wrong
    │   └── SettingsError             2   a settings key or value is wrong
    ├── MissingStageError             3   an earlier stage has not been run
    ├── JobError                      4   a child process (vLLM, trainer, set-up) failed
    │   └── PeerLostError             4   a trainer failed only because another node's was lost
    ├── BelowThresholdError           5   finished, but below --min-success
    ├── StoreError                    1   the run directory can't be read or written
    ├── OutOfTimeError               85   stopped before the deadline of its job; `webgym resume` goes on
    ├── BudgetSpentError             86   stopped at --max-cost or --max-judge-calls; a larger limit goes on
    ├── RunLockedError               75   another webgym works on the run
    ├── VenvError                     2   a role environment or the browser is missing or broken
    └── BoundaryError                 1   a boundary (browser, policy, judge) failed: an episode stores it as a failure

`BoundaryError` carries a `FailureKind`; a rollout turns it into data, every other command into exit code 1.
"""

from __future__ import annotations

from typing import ClassVar

from webgym_cli.records.failure import FailureKind

# Hint for what a newer version has written.
UPGRADE = "pip install -U webgym"

# The published exit codes, with their meaning.
EXIT_CODES: dict[int, str] = {
    0: "done",
    1: "failed",
    2: "wrong usage, settings or input file",
    3: "an earlier stage is missing",
    4: "a child process (vLLM, trainer, set-up) failed",
    5: "finished, but below --min-success",
    75: "the run is locked by another webgym",
    85: "stopped before the end of its job: continue it in another one",
    86: "stopped at a limit of cost or judge calls: resume it with a larger one",
    130: "interrupted (Ctrl-C)",
    143: "terminated (SIGTERM)",
}


class UserNote(Warning):
    """A note for users, which a command shows as a line without a place in the code."""


class WebGymError(Exception):
    """Base of all user-facing errors. `hint` is the command or action that resolves the error."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(WebGymError):
    """Arguments or an input file are wrong."""

    exit_code = 2


class SettingsError(UsageError):
    """A settings key is unknown, or its value is not allowed."""


class VenvError(UsageError):
    """A role environment or the browser is missing or broken."""


class MissingStageError(WebGymError):
    """The command needs the output of a stage that has not been run."""

    exit_code = 3


class JobError(WebGymError):
    """A child process failed. `returncode` is its exit status (negative: signal number), None if it never started."""

    exit_code = 4

    def __init__(self, message: str, *, hint: str = "", returncode: int | None = None) -> None:
        super().__init__(message, hint=hint)
        self.returncode = returncode


class PeerLostError(JobError):
    """A trainer lost the connection to another node's trainer: a consequence, not the cause of the failure."""


class BelowThresholdError(WebGymError):
    """The command finished, but the success rate is below `--min-success`."""

    exit_code = 5


class OutOfTimeError(WebGymError):
    """The command stopped before the deadline of its job. 85 is what HTCondor, too, takes for "continue me"."""

    exit_code = 85


class BudgetSpentError(WebGymError):
    """The command stopped at a limit of `cost`. Not 85: a job script that requeues itself would do so for ever."""

    exit_code = 86


class StoreError(WebGymError):
    """The run directory can't be read or written."""


class RunLockedError(WebGymError):
    """Another process holds the lock of this run."""

    exit_code = 75


class BoundaryError(WebGymError):
    """Infrastructure failure during an episode; `kind` classifies it for storage and statistics."""

    def __init__(self, kind: FailureKind, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.kind = kind


class Terminated(BaseException):
    """Raised on SIGTERM. A BaseException like KeyboardInterrupt, so that `except Exception` does not catch it."""
