"""A run is a directory, and the directory is the database: every path in it is born here."""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import webgym_cli
from webgym_cli.config.load import BASE_MODEL, UPGRADE, changed_frozen_keys, flat_values, load, parse_saved
from webgym_cli.config.model import Settings
from webgym_cli.config.model_defaults import MODEL_DEPENDENT
from webgym_cli.config.model_families import find_model_folder
from webgym_cli.config.suggest import name_runs_near
from webgym_cli.errors import MissingStageError, SettingsError, StoreError, UsageError
from webgym_cli.records.task import Split
from webgym_cli.util.files import read_json, replace_link, write_json
from webgym_cli.util.text import hide_passwords


def now() -> str:
    """Return the time as ISO 8601, UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class _PathBelow:
    """A path that is in every run under the same name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, run: RunDir, owner: type[RunDir]) -> Path:
        return run.root / self._name


@dataclass(frozen=True, slots=True)
class RunDir:
    """The paths of a run. Nothing is created until something is written."""

    root: Path
    """The run's `save_path`, made absolute: children work in folders of their own."""

    def __post_init__(self) -> None:
        """Make the root absolute."""
        object.__setattr__(self, "root", self.root.absolute())

    config = _PathBelow("config.json")
    """The resolved settings (no secrets)."""
    provenance = _PathBelow("run.json")
    """Who made the run, with which versions; never rewritten."""
    lock = _PathBelow("lock")
    """The lock file."""
    lock_holder = _PathBelow("lock.holder")
    """Who holds the lock."""
    state = _PathBelow("state.json")
    """The command that is under way: what `resume` takes up again."""
    metrics = _PathBelow("metrics.jsonl")
    """One JSON object a line, an event each."""
    tracking = _PathBelow("tracking.json")
    """How much of the metrics Weights & Biases was given."""
    screenshots = _PathBelow("screenshots")
    """The image store, shared by all iterations."""
    dataset = _PathBelow("llamafactory_data")
    """What `prepare` writes."""
    rl_data = _PathBelow("rl_data")
    """An iteration's batch for policy gradients."""
    batches = _PathBelow("batches.jsonl")
    """The ledger: which trajectories each training is made of, one batch a line."""
    action_logprobs = _PathBelow("action_logprobs.jsonl")
    """How probable policies found stored actions: one JSON object a line, an action each."""
    checkpoints = _PathBelow("checkpoints")
    """What training wrote."""
    logs = _PathBelow("logs")
    """The logs, a folder an attempt."""
    coordinator = _PathBelow("nodes/coordinator.json")
    """Where the other nodes of a training reach node 0; removed when node 0's command ends."""
    first_version = _PathBelow("first_version.json")
    """The version of the first policy, where imported episodes have iterations before it."""
    blocklist = _PathBelow("blocklist.jsonl")
    """The sites that shut the browser out, one JSON object a line."""
    report = _PathBelow("report.html")
    """The run as one HTML page, made by `webgym report`."""

    def plan(self, split: Split, iteration: int) -> Path:
        """The seeded plan of an iteration: written before its first episode."""
        return self.root / "tasks" / f"{split}.iteration_{iteration:04d}.jsonl"

    def new_tasks(self, iteration: int) -> Path:
        """The tasks that were made for an iteration: where there are some, its training episodes are of these alone."""
        return self.root / "tasks" / f"new.iteration_{iteration:04d}.jsonl"

    def trajectories(self, split: Split) -> Path:
        """The folder of a split's trajectories."""
        return self.root / f"{split}_trajectories"

    def part(self, split: Split, iteration: int, rank: int = 0) -> Path:
        """The append-only file of one writer: the truth."""
        return self.trajectories(split) / f"iteration_{iteration:04d}" / f"part-{rank}.jsonl"

    def verdicts(self, split: Split, iteration: int, rank: int = 0) -> Path:
        """The append-only file of one judge's verdicts on an iteration's trajectories."""
        return self.part(split, iteration).parent / f"verdicts-{rank}.jsonl"

    @property
    def index(self) -> Path:
        """The index of the trajectories: derived, rebuilt at any time."""
        return self.root / "index.parquet"

    def page(self, trajectory: str) -> Path:
        """The HTML page of a trajectory, made by `webgym show`; its id can't lead out of the folder."""
        return self.root / "pages" / f"{quote(trajectory, safe='')}.html"

    def status(self, split: Split = Split.TRAIN) -> Path:
        """What a rollout is doing now, which may have one of the other split beside it: replaced each second."""
        name = "rollout" if split is Split.TRAIN else "evaluation"
        return self.root / "status" / f"{name}-0.json"

    def model(self, settings: Settings) -> Path:
        """The current policy: a link that is replaced by rename, so never half-written."""
        return self.root / settings.algorithm_config.model_output_name

    @property
    def exists(self) -> bool:
        """Whether this folder holds a run."""
        return self.config.is_file()

    @property
    def orm(self) -> RunDir:
        """The run in which this one's outcome reward model is trained: no episodes, settings of its own."""
        # A run of its own, so that its checkpoints are never taken for this run's policy.
        return RunDir(self.root / "orm")

    @property
    def survey(self) -> RunDir:
        """The run in which a curriculum's first policy is tried on the original tasks: it trains nothing."""
        # A run of its own, so that these episodes are not part of a phase's.
        return RunDir(self.root / "survey")

    @property
    def orm_of(self) -> RunDir | None:
        """The run whose outcome reward model is trained here; None for any other."""
        outer = RunDir(self.root.parent)
        return outer if outer.orm == self and outer.exists else None


def refuse_output_in_run(path: Path) -> None:
    """Raise `UsageError` for a person's output that would lie in a run: what is there is read as the run's own."""
    place = path.resolve()
    for folder in (place, *place.parents):
        run = RunDir(folder)
        if run.config.is_file() and run.provenance.is_file():
            raise UsageError(f"{path} is in the run {folder}", hint="name a file or a folder outside of runs")


def open_run(path: Path) -> tuple[RunDir, Settings]:
    """Return an existing run and its settings. Raises `MissingStageError` without one."""
    run = RunDir(path)
    require_readable(run)
    require_run(run, path)
    return run, load(run_config=run.config)


def require_run(run: RunDir, path: Path) -> None:
    """Raise `MissingStageError` where there is no run at a path, which is as a person named it."""
    if not run.exists:
        raise MissingStageError(f"{path}: there is no run{name_runs_near(path)}", hint=f"webgym rollout {path}")


def require_readable(run: RunDir) -> None:
    """Raise `StoreError` for a run of a newer version or with its settings lost, `UsageError` where a file is."""
    if not (place := next(folder for folder in (run.root, *run.root.parents) if folder.exists())).is_dir():
        raise UsageError(f"{run.root}: {place} is a file, a run is a folder", hint="name another folder")
    if not run.exists and (run.provenance.exists() or _has_begun(run)):
        raise StoreError(
            f"{run.config}: is missing, though the rest of the run is there",
            hint="restore it from a copy of the run, or move the folder away to begin anew",
        )
    if newer := _read_newer_version(run.provenance):
        raise StoreError(f"{run.root}: a run of webgym {newer}, this is webgym {webgym_cli.__version__}", hint=UPGRADE)


def _read_newer_version(file: Path) -> str:
    """Return the version that made a run where it is a newer one than this; else empty, also for a damaged file."""

    def minor(version: str) -> list[int]:  # the parts that change settings and records
        return [int(part) for part in version.split(".")[:2]]

    with suppress(StoreError, TypeError, KeyError, ValueError, AttributeError):
        writer = read_json(file)["webgym"]
        return str(writer) if minor(writer) > minor(webgym_cli.__version__) else ""
    return ""


def saved_settings(run: RunDir) -> Settings:
    """Return a run's settings as they were saved, whatever the environment says now. Raises `StoreError`."""
    return parse_saved(read_json(run.config))


def refuse_changes(run: RunDir, settings: Settings, sources: Mapping[str, str] | None = None) -> None:
    """Raise `SettingsError` where settings differ that a known run keeps. `sources`: where each value came from.

    The base model may be corrected before the first episode, and where it is out of reach.
    """
    if not run.exists:
        return
    before, after = saved_settings(run), parse_saved(hide_passwords(settings.model_dump(mode="json")))
    changed = changed_frozen_keys(before, after)
    if BASE_MODEL in changed:
        changed = [key for key in changed if key not in MODEL_DEPENDENT]
        if not _has_begun(run) or _is_out_of_reach(run, before.policy_config.base_model):
            changed.remove(BASE_MODEL)
    if changed:
        old, new = flat_values(before), flat_values(after)
        sources = sources or {}
        differences = [
            f"{key} ({old[key]}, not {new[key]} as in {sources.get(key, 'this command')})" for key in changed
        ]
        raise SettingsError(
            f"{run.root}: a run keeps these settings: {', '.join(differences)}",
            hint="leave them as they are, or start another run in another folder",
        )


def _has_begun(run: RunDir) -> bool:
    """Whether something was made with a run's model."""
    return any(path.exists() for path in (run.dataset, run.checkpoints, *map(run.trajectories, Split)))


def _is_out_of_reach(run: RunDir, model: str) -> bool:
    """Whether a model is a folder that is gone, or was never here and nothing is prepared or trained with it."""
    unused = not run.dataset.exists() and not run.checkpoints.exists()
    return find_model_folder(model) is None and (unused or Path(model).is_absolute())


def create_or_open(run: RunDir, settings: Settings) -> None:
    """Write the settings of a new run, or of a known one after checking that they may change. Needs the lock."""
    refuse_changes(run, settings)
    if run.exists and saved_settings(run) == settings:
        return
    write_json(run.config, hide_passwords(settings.model_dump(mode="json")))
    if not run.provenance.exists():
        versions = {"webgym": webgym_cli.__version__, "python": platform.python_version()}
        provenance = {"created_at": now(), "argv": sys.argv, **versions, "platform": platform.platform()}
        write_json(run.provenance, hide_passwords(provenance))


def run_id(run: RunDir, settings: Settings) -> str:
    """Return the run's id at Weights & Biases: the setting, else 16 hex digits that tell who made it, when and how.

    Empty where there is no run yet.
    """
    if settings.log_config.run_id or not run.provenance.is_file():
        return settings.log_config.run_id
    return hashlib.sha256(run.provenance.read_bytes()).hexdigest()[:16]


def new_attempt(run: RunDir) -> Path:
    """Make the log folder of this attempt and point `logs/latest` at it. Raises `StoreError`."""
    names = (path.name.removeprefix("attempt_") for path in run.logs.glob("attempt_*"))
    number = max((int(name) for name in names if name.isdecimal()), default=0) + 1
    folder = run.logs / f"attempt_{number:04d}"
    try:
        folder.mkdir(parents=True)
        replace_link(run.logs / "latest", folder)
    except OSError as error:
        raise StoreError(f"{folder}: can't be made: {error.strerror}") from error
    return folder
