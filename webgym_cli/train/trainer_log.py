"""The logs of a trainer: `trainer_log.jsonl` as events while it grows, and the cause of a failure."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from webgym_cli.errors import JobError, PeerLostError
from webgym_cli.jobs.process import find_cause, last_lines, read_failure
from webgym_cli.records.base import is_finite
from webgym_cli.records.events import TrainerStep
from webgym_cli.records.training_files import TRAINER_LOG as TRAINER_LOG
from webgym_cli.util.files import file_size, parse_valid, read_valid_lines
from webgym_cli.util.json_values import parse_object

# The output of the first node's trainer.
LOG = "train.log"
# Minimum seconds of training before an ETA is reported.
SHORTEST_MEASURE = 1.0
# What a line of a step or an evaluation has; the closing line has neither.
_FIGURES = ("loss", "eval_loss")


def parse_step(line: bytes) -> dict[str, float]:
    """Return the finite numbers of a line of the log. Raises `ValueError` for a damaged line."""
    numbers = {name: value for name, value in parse_object(line).items() if is_finite(value)}
    if not {"current_steps", "total_steps"} <= numbers.keys():
        raise ValueError("no line of a trainer's log")
    return numbers


def read_log(path: Path) -> list[dict[str, float]]:
    """Return the lines of a log, the newest of each step and kind, in order; damaged ones are left out."""
    lines = read_valid_lines(path, parse_step)
    newest = {(line["current_steps"], "loss" in line, "eval_loss" in line): line for line in lines}
    return sorted(newest.values(), key=lambda line: line["current_steps"])


@dataclass(slots=True)
class TrainerLogTail:
    """Reads new log lines at each call; an incomplete last line is read once it is complete."""

    path: Path
    clock: Callable[[], float] = time.monotonic
    _offset: int = 0
    _first: tuple[int, float] | None = None
    _last: float = -1

    def new_events(self) -> list[TrainerStep]:
        """Return an event for each new line; the closing line, without figures, only where its step is new."""
        if not self.path.is_file():
            return []
        with self.path.open("rb") as file:
            file.seek(self._offset)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._offset += len(whole) + len(newline)
        events = []
        for line in parse_valid(whole.splitlines(), parse_step):
            if line["current_steps"] != self._last or not line.keys().isdisjoint(_FIGURES):
                events.append(self._event(line))
            self._last = line["current_steps"]
        return events

    def skip(self) -> None:
        """Skip the existing lines."""
        self._offset = file_size(self.path)

    def _event(self, line: dict[str, float]) -> TrainerStep:
        step, total = int(line["current_steps"]), int(line["total_steps"])
        event, words = TrainerStep(event="train", done=step, total=total), []
        if "loss" in line:
            event["loss"] = line["loss"]
            words.append(f"loss {line['loss']:.4g}")
        if "eval_loss" in line:
            event["eval_loss"] = line["eval_loss"]
            words.append(f"eval loss {line['eval_loss']:.4g}")
        if "lr" in line:
            event["learning_rate"] = line["lr"]
            words.append(f"lr {line['lr']:.3g}")
        # The trainer's own estimate of the remaining time is too low after a resumed training.
        now = self.clock()
        first, since = self._first = self._first or (step, now)
        if step > first and now - since >= SHORTEST_MEASURE:
            event["eta"] = round((now - since) / (step - first) * max(0, total - step), 1)
            words.append(f"ETA {timedelta(seconds=round(event['eta']))}")
        event["facts"] = "  ".join(words)
        return event


# What torchrun reports of the process that failed first, if a signal ended it; the others then fail by it. NCCL aborts
# (SIGABRT) where another node is lost.
KILLED = re.compile(r"Root Cause.*traceback : Signal \d+ \((SIG(?:KILL|SEGV|BUS|ILL|FPE))\)", re.DOTALL)
# A full disk, also as `torch.save` reports it, with positions in the file alone.
DISK_FULL = re.compile(r"No space left on device|inline_container\.cc.*unexpected pos")
# torch, where the carried states are of other weights than those that are trained now, as after a change of what is
# frozen.
OTHER_WEIGHTS = re.compile(r"loaded state dict (contains a parameter group|has a different number of parameter groups)")
# A launcher's exceptions about a failed child, which don't contain the cause.
_ECHOES = re.compile(r"([A-Za-z_][\w.]*\.)?(ChildFailedError|CalledProcessError|SignalException)(:|$)")
# Prefix of our own trainer's line with the cause.
OWN = "webgym: "
LINES = 400
# A trainer's messages about a lost peer, on this or another node, which don't contain the cause.
PEER_LOST = re.compile(
    r"connection (closed|reset|refused|aborted)|broken pipe|\bpeer\b|\bDist\w*Error|Rendezvous\w*Error|"
    r"remote process|failed to recv|\bNCCL\b|\bgloo\b",
    re.IGNORECASE,
)


def with_report_folders(env: dict[str, str], logs: Path, training: str) -> dict[str, str]:
    """Return a trainer's environment with folders for its reports, as its own folder is removed at its end.

    Each training has its own for TensorBoard, which draws all events of a folder as one curve.
    """
    events = env.get("TENSORBOARD_LOGGING_DIR") or str(logs / "tensorboard")
    if "://" not in events:  # TensorBoard also writes to a bucket
        events = str(Path(events).absolute())
    runs = Path(env.get("SWANLAB_LOG_DIR") or logs / "swanlab").absolute()
    # MLflow's own default is a file in the working directory; it refuses new folders of files
    tracked = env.get("MLFLOW_TRACKING_URI") or f"sqlite:///{logs.absolute() / 'mlflow.db'}"
    return env | {
        "TENSORBOARD_LOGGING_DIR": f"{events.rstrip('/')}/{training}",
        "SWANLAB_LOG_DIR": str(runs),
        "MLFLOW_TRACKING_URI": tracked,
        "WANDB_DIR": str(logs),
    }


def reason(log: Path) -> str:
    """Return our own trainer's error line, else the last exception's line, else the last line, else ""."""
    return find_cause(read_failure(log, LINES), _ECHOES, re.compile(OWN)).removeprefix(OWN)


def trainer_error(code: int, log: Path) -> JobError:
    """Return the error for a trainer's nonzero exit status."""
    cause = reason(log)
    if match := KILLED.search("\n".join(last_lines(log, LINES))):
        cause = f"one of its processes was ended by {match[1]}"
        if match[1] == "SIGKILL":
            cause += ", most likely for lack of memory"
    kind = PeerLostError if code < 128 and not match and PEER_LOST.search(cause) else JobError
    if code == 128 + signal.SIGKILL:
        cause = f"it was killed, most likely for lack of memory; its last words: {cause}"
    hint = f"read {log}, fix the cause, then run the same command again"
    if DISK_FULL.search(cause):
        hint = "free disk space, then run the same command again"
    if OTHER_WEIGHTS.search(cause):
        hint = "-s train.keep_optimizer_state=false starts with a new optimizer, for other weights than before"
    return kind(f"the trainer failed (exit status {code}): {cause}; log: {log}", hint=hint, returncode=code)
