"""The run directory, which is the database: all of its paths are defined here."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from pydantic import ValidationError

import webgym_cli
from webgym_cli.errors import SettingsError, StoreError
from webgym_cli.records.base import describe_invalid
from webgym_cli.records.groups import Split
from webgym_cli.util.files import append_lines, disk_errors, read_json, replace_link, write_json

# What reads a run's settings imports their models itself: building them takes longer than all else that `status` does.
if TYPE_CHECKING:
    from webgym_cli.config.model import Settings


def now() -> str:
    """Return the time as ISO 8601, UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class _PathBelow:
    """A path relative to the run, the same in every run."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, run: RunDir, owner: type[RunDir]) -> Path:
        return run.root / self._name


@dataclass(frozen=True, slots=True)
class RunDir:
    """Paths of a run. Nothing is created until something is written."""

    root: Path
    """The run's `save_path`; absolute, because child processes have other working directories."""
    newest: int | None = None
    """Newest policy version that counts as the run's; None: all do."""
    index_folder: Path | None = None
    """Folder of the index, if it is not the run's own."""

    def __post_init__(self) -> None:
        """Make the root absolute."""
        object.__setattr__(self, "root", self.root.absolute())

    config = _PathBelow("config.json")
    """The resolved settings (no secrets)."""
    provenance = _PathBelow("run.json")
    """Creator and versions of the run; never rewritten."""
    lock = _PathBelow("lock")
    """The lock file."""
    lock_holder = _PathBelow("lock.holder")
    """The lock's holder."""
    state = _PathBelow("state.json")
    """The running command, which `resume` continues."""
    metrics = _PathBelow("metrics.jsonl")
    """Events, one JSON object per line."""
    tracking = _PathBelow("tracking.json")
    """Which part of the metrics was sent to Weights & Biases."""
    code = _PathBelow("plugins")
    """Copies of the Python files that the settings name, for reading; never imported from here."""
    screenshots = _PathBelow("screenshots")
    """The image store, shared by all iterations."""
    dataset = _PathBelow("llamafactory_data")
    """Output of `prepare`."""
    rl_data = _PathBelow("rl_data")
    """Policy-gradient batch of an iteration."""
    batches = _PathBelow("batches.jsonl")
    """Batch ledger: the trajectories of each training, one batch per line."""
    action_logprobs = _PathBelow("action_logprobs.jsonl")
    """Log-probabilities of stored actions under policies, one JSON object per action and line."""
    checkpoints = _PathBelow("checkpoints")
    """Output of training."""
    logs = _PathBelow("logs")
    """Logs, one folder per attempt."""
    first_version = _PathBelow("first_version.json")
    """Version of the first policy, if imported episodes belong to earlier iterations."""
    sessions = _PathBelow("sessions")
    """The gateway's sessions: one append-only file each, with every call."""
    recordings = _PathBelow("recordings")
    """What people did on tasks: one file of recorded actions each."""
    blocklist = _PathBelow("blocklist.jsonl")
    """Sites that blocked the browser, one JSON object per line."""
    har = _PathBelow("har")
    """Requests of each episode, `ID.har`, if `browser.record_har` is set."""
    conditions = _PathBelow("conditions.json")
    """What changes the numbers of an evaluation, except for its judge."""
    report = _PathBelow("report.html")
    """The run as one HTML page, made by `webgym report`."""

    def plan(self, split: Split, iteration: int, *, of_sessions: bool = False) -> Path:
        """Rollout plan of an iteration, or the episodes outside of it: of the gateway's sessions and of recordings."""
        return self.root / "tasks" / f"{'sessions.' if of_sessions else ''}{split}.iteration_{iteration:04d}.jsonl"

    def new_tasks(self, iteration: int) -> Path:
        """Tasks generated for an iteration; if there are any, its training episodes use only these."""
        return self.root / "tasks" / f"new.iteration_{iteration:04d}.jsonl"

    def trajectories(self, split: Split) -> Path:
        """The folder of a split's trajectories."""
        return self.root / f"{split}_trajectories"

    def part(self, split: Split, iteration: int, rank: int = 0) -> Path:
        """Append-only trajectory file of one writer."""
        return self.trajectories(split) / f"iteration_{iteration:04d}" / f"part-{rank}.jsonl"

    def list_iterations(self, split: Split) -> list[int]:
        """Return the iterations with a trajectory folder, ascending."""
        names = (folder.name.removeprefix("iteration_") for folder in self.trajectories(split).glob("iteration_*"))
        return sorted(int(name) for name in names if name.isdecimal())

    def verdicts(self, split: Split, iteration: int, rank: int = 0) -> Path:
        """Append-only file of one judge's verdicts on an iteration's trajectories."""
        return self.part(split, iteration).parent / f"verdicts-{rank}.jsonl"

    @property
    def index(self) -> Path:
        """Index of the trajectories; derived, can be rebuilt at any time."""
        return self.index_folder or self.root / "index.parquet"

    def evaluation(self, judge: str) -> Path:
        """Record of an evaluation by one judge (`environment`: without one); its page is beside it."""
        return self.root / f"evaluation-{judge}.json"

    def page(self, trajectory: str) -> Path:
        """HTML page of a trajectory, made by `webgym show`. Its id can't lead out of the folder."""
        return self.root / "pages" / f"{quote(trajectory, safe='')}.html"

    def status(self, split: Split = Split.TRAIN) -> Path:
        """Current state of a split's rollout, replaced every second."""
        return self.root / "status" / f"{'rollout' if split is Split.TRAIN else 'evaluation'}-0.json"

    def model(self, settings: Settings) -> Path:
        """Current policy: a symbolic link, replaced by rename and therefore never half-written."""
        return self.root / settings.algorithm_config.model_output_name

    @property
    def exists(self) -> bool:
        """Whether this folder contains a run."""
        return self.config.is_file()

    @property
    def has_begun(self) -> bool:
        """Whether something was made with this run's model."""
        return any(path.exists() for path in (self.dataset, self.checkpoints, *map(self.trajectories, Split)))

    @property
    def orm(self) -> RunDir:
        """Run in which this run's outcome reward model is trained: its checkpoints are no policies of this run."""
        return RunDir(self.root / "orm")

    @property
    def survey(self) -> RunDir:
        """Run in which a curriculum's first policy tries the original tasks: its episodes count for no phase."""
        return RunDir(self.root / "survey")

    @property
    def orm_of(self) -> RunDir | None:
        """The run whose outcome reward model is trained here; None for other runs."""
        outer = RunDir(self.root.parent)
        return outer if outer.orm == self and outer.exists else None


def saved_settings(run: RunDir) -> Settings:
    """Return a run's saved settings, independent of the environment. Raises `StoreError`."""
    from webgym_cli.config.load import parse_saved
    from webgym_cli.config.sources import read_run

    with refuse_invalid(f"{run.config}: no settings of this version", f"restore {run.config} from a copy"):
        return parse_saved(read_run(run.config))


def read_base_model(run: RunDir) -> str:
    """Return the model that a run starts from, without its other settings. Raises `StoreError`."""
    try:
        return str(read_json(run.config)["policy_config"]["base_model"])
    except (KeyError, TypeError):
        raise StoreError(f"{run.config}: no base model", hint=f"restore {run.config} from a copy") from None


def refuse_changes(run: RunDir, settings: Settings, sources: Mapping[str, str] | None = None) -> None:
    """Raise `SettingsError` for changes of settings that are fixed for a run. `sources`: origin of each value.

    The base model may change before the first episode or if it is unavailable; `auto` may, once the model is there.
    """
    from webgym_cli.config.load import BASE_MODEL, changed_frozen_keys, flat_values
    from webgym_cli.config.model_defaults import AUTO, MODEL_DEPENDENT

    if not run.exists:
        return
    before = saved_settings(run)
    old, new, of = flat_values(before), flat_values(settings), sources or {}
    changed = [key for key in changed_frozen_keys(before, settings) if key not in MODEL_DEPENDENT or old[key] != AUTO]
    if BASE_MODEL in changed:
        changed = [key for key in changed if key not in MODEL_DEPENDENT]
        if not run.has_begun or _is_out_of_reach(run, before.policy_config.base_model):
            changed.remove(BASE_MODEL)
    if changed:
        differences = [f"{key} ({old[key]}, not {new[key]} as in {of.get(key, 'this command')})" for key in changed]
        raise SettingsError(
            f"{run.root}: a run keeps these settings: {', '.join(differences)}",
            hint="leave them as they are, or start another run in another folder",
        )


def _is_out_of_reach(run: RunDir, model: str) -> bool:
    """Whether a model is a missing folder, or was never here and nothing was prepared or trained with it."""
    from webgym_cli.config.model_families import find_model_folder

    unused = not run.dataset.exists() and not run.checkpoints.exists()
    return find_model_folder(model) is None and (unused or Path(model).is_absolute())


def create_or_open(run: RunDir, settings: Settings) -> None:
    """Write the settings of a new run, or of an existing one after checking the changes. Needs the lock."""
    import platform

    from webgym_cli.config.load import flat_values
    from webgym_cli.config.secrets import refuse_keys
    from webgym_cli.store.code import record_code

    refuse_changes(run, settings)
    if (is_new := not run.exists) or saved_settings(run) != settings:
        for key, value in flat_values(settings).items():
            refuse_keys(key, value)
        write_json(run.config, settings.model_dump(mode="json"))
    if not run.provenance.exists():
        system = {"python": platform.python_version(), "platform": platform.platform()}
        write_json(run.provenance, {"created_at": now(), "argv": sys.argv, "webgym": webgym_cli.__version__, **system})
    record_code(run.root, run.code, settings, own=is_new)


def append_to_run(run: RunDir, path: Path, *lines: str) -> None:
    """Append lines to a file of a run durably, all or none. Raises `StoreError`, also if the run is gone."""
    # The append would make the folder of a run that was moved or unmounted anew: one without settings, which no
    # command reads, and in which episodes were lost.
    if not run.exists:
        raise StoreError(
            f"{run.root}: the run was moved, removed or unmounted meanwhile",
            hint="webgym resume RUN, with the folder where it is now; what was written here since is no run",
        )
    append_lines(path, *lines)


def run_id(run: RunDir, settings: Settings) -> str:
    """Return the run's id at W&B: the setting, or 16 hex digits of the run's origin; empty before the run exists."""
    if settings.log_config.run_id or not run.provenance.is_file():
        return settings.log_config.run_id
    return hashlib.sha256(run.provenance.read_bytes()).hexdigest()[:16]


def new_attempt(run: RunDir) -> Path:
    """Create the log folder of this attempt and point `logs/latest` to it. Raises `StoreError`."""
    names = (path.name.removeprefix("attempt_") for path in run.logs.glob("attempt_*"))
    folder = run.logs / f"attempt_{max((int(name) for name in names if name.isdecimal()), default=0) + 1:04d}"
    with disk_errors(folder):
        folder.mkdir(parents=True)
        replace_link(run.logs / "latest", folder)
    return folder


@contextmanager
def refuse_invalid(what: str, hint: str) -> Iterator[None]:
    """Convert a `ValidationError` in the block to a `StoreError`: `what`, and the first problem."""
    try:
        yield
    except ValidationError as error:
        raise StoreError(f"{what}: {describe_invalid(error)}", hint=hint) from error
