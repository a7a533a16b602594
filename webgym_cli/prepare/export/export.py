"""Export of stored trajectories as datasets, streamed from the index record by record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from webgym_cli.agent.tokens.tokens import ModelTokens
from webgym_cli.config.model import Settings
from webgym_cli.errors import StoreError, WebGymError
from webgym_cli.prepare.export.options import ExportObjective, ExportOptions, ExportUnit
from webgym_cli.prepare.export.outputs import ExportOutput, open_output
from webgym_cli.prepare.export.pairs import sample_pairs
from webgym_cli.prepare.export.registry import FORMATS, ExportFormat
from webgym_cli.prepare.rl.drop_reasons import MaskReason
from webgym_cli.prepare.rl.rows import read_turns
from webgym_cli.prepare.sft.convert import (
    Example,
    build_step_sample,
    build_trajectory_sample,
    find_step_problem,
    find_trajectory_problem,
)
from webgym_cli.prepare.sft.filters import DropReason, build_filters, find_step_drop, list_parameters
from webgym_cli.records.events import EventSink
from webgym_cli.records.task import Split
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.store.buffer import LineRef, read, refuse_unknown
from webgym_cli.store.checkpoints import policy_path
from webgym_cli.store.index.query import Index, open_index
from webgym_cli.store.index.selection import TrajectoryQuery
from webgym_cli.store.outputs import refuse_output_in_run
from webgym_cli.store.run import RunDir
from webgym_cli.tasks.encryption import CANARY
from webgym_cli.util.files import WriteLine, disk_errors, write_json
from webgym_cli.util.optional import when

# Maximum number of reported problems; all are counted.
NAMED = 20
# Size of the trajectory cache for pairs, in which a trajectory may occur several times.
KEPT_TRAJECTORIES = 32
# Trajectories between two progress events.
PROGRESS_EVERY = 100


@dataclass
class ExportStats:
    """Statistics of an export."""

    records: int = 0
    trajectories: int = 0
    """Number of trajectories read; 0 for pairs, which are read by steps."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Unusable steps, or whole trajectories, by reason."""
    unfit_turns: int = 0
    """Turns of exported conversations that `prepare` would not train on."""
    damaged: int = 0
    """Lines and records skipped because a line or screenshot is damaged or missing."""
    problems: list[str] = field(default_factory=list)
    """Messages of the first such problems."""

    def add_problem(self, message: str) -> None:
        """Count a problem, and keep its message unless it is known."""
        self.damaged += 1
        if message not in self.problems and len(self.problems) < NAMED:
            self.problems.append(message)

    def to_json(self) -> dict[str, Any]:
        """Return the statistics as in `export.json`."""
        return vars(self) | {"dropped": dict(sorted(self.dropped.items()))}


@dataclass(frozen=True, slots=True)
class Export:
    """One export: run, selection and format. Raises `UsageError` for options that the format does not support."""

    run: RunDir
    settings: Settings
    options: ExportOptions
    ids: Sequence[str] | None = None
    """Ids of the trajectories; None: all that `prepare` could use, and for preferences the judged failures too."""
    query: TrajectoryQuery = field(default_factory=TrajectoryQuery)
    """Additional filter; its expression is the user's."""
    out: Path | None = None
    """A file or folder; None: lines go to `emit`."""

    def __post_init__(self) -> None:
        self.format.refuse(self.options)

    @property
    def format(self) -> ExportFormat:
        """The registered format. Raises `UsageError` for an unknown name."""
        return FORMATS.find(self.options.format)

    def execute(self, emit: WriteLine, sink: EventSink) -> ExportStats:
        """Write the records trajectory by trajectory. Damaged or missing ones are skipped and counted.

        Raises `UsageError` for an unknown id before anything is written, and `StoreError` if writing fails.
        """
        for place in filter(None, (self.out, self.options.copy_images)):
            refuse_output_in_run(place)
        stats = ExportStats()
        with open_index(self.run, progress=sink) as index:
            where, values = build_condition(index, self)
            writing = open_output(self.out, self.format.file_name, self.options, self.run, emit)
            with disk_errors(self.out or "stdout"), writing as output:
                examples = _ExampleReader(self, index, stats, sink).examples(where, values)
                self.format.write(_check_images(examples, output, stats), output)
                if output.building is not None:
                    self._describe(output.building, stats)
        return stats

    def _describe(self, folder: Path, stats: ExportStats) -> None:
        if not stats.records:
            reasons = ", ".join(f"{count} x {reason}" for reason, count in stats.dropped.items())
            raise WebGymError(
                f"{self.run.root}: there is nothing to export ({reasons or 'no trajectory is chosen'})",
                hint=f"webgym inspect-buffer {self.run.root}",
            )
        if (info := self.format.build_dataset_info(self.options.objective)) is not None:
            write_json(folder / "dataset_info.json", info)
        write_json(folder / "export.json", stats.to_json())


def _check_images(examples: Iterator[Example], output: ExportOutput, stats: ExportStats) -> Iterator[Example]:
    """Yield the examples whose images are all present and valid, as formats require."""
    for example in examples:
        try:
            for sha256 in example.sample.images:
                output.check_image(sha256)
        except StoreError as error:
            stats.add_problem(str(error))
            continue
        stats.records += 1
        yield example


def build_condition(index: Index, export: Export) -> tuple[str, list[Any]]:
    """Return the SQL condition of the exported trajectories and its parameters.

    Raises `UsageError` for an unknown id or an invalid expression.
    """
    ids, query = export.ids, export.query
    if query.expression is not None:
        query = replace(query, expression=index.check_where(query.expression))
    where, values = query.where()
    where = f"NOT contains(task_fields, '\"{CANARY}\": ') AND {where}"  # no policy may be trained on encrypted tasks
    if ids is not None:
        sql = "SELECT id FROM (SELECT unnest(?::VARCHAR[]) AS id) WHERE id NOT IN (SELECT id FROM stored)"
        if missing := {row["id"] for row in index.rows(sql, [list(ids)])}:
            raise refuse_unknown(export.run, [name for name in ids if name in missing])
        return f"id IN (SELECT unnest(?::VARCHAR[])) AND {where}", [list(ids), *values]
    split = str(query.split or Split.TRAIN)
    if export.format.unit is not None:  # also those without a reward: another scorer may give it
        return f"split = ? AND failure IS NULL AND {where}", [split, *values]
    filters = build_filters(export.settings).trajectories  # what `prepare` could use
    of_successes = (DropReason.UNSUCCESSFUL, DropReason.TOO_FEW_STEPS)
    conditions = []
    for item in filters:
        # Filters of successes apply only to successes, where failures are exported too.
        by_success = export.options.objective is not ExportObjective.SFT and item.drop in of_successes
        conditions.append(f"NOT coalesce(({item.predicate}){when(by_success, ' AND success')}, false)")
    return " AND ".join(["split = ?", *conditions, where]), [split, *list_parameters(filters), *values]


@lru_cache(1)
def _load_tokens(model: str) -> ModelTokens:
    return ModelTokens(model)


@dataclass(frozen=True, slots=True)
class _ExampleReader:
    export: Export
    index: Index
    stats: ExportStats
    sink: EventSink

    def examples(self, where: str, values: list[Any]) -> Iterator[Example]:
        if self.export.ids is None:  # report selected lines that could not be indexed
            scope = [str(self.export.query.split or Split.TRAIN), self.export.query.iteration]
            for line in self.index.damaged_lines("split = ? AND coalesce(iteration = ?, true)", scope):
                self.stats.add_problem(line)
        if self.export.options.objective is ExportObjective.DPO:
            draw = {
                "seed": self.export.settings.sampling_seed,
                "per_task": self.export.options.max_pairs_per_task or 16,
            }
            read_cached = lru_cache(KEPT_TRAJECTORIES)(self._read)
            yield from sample_pairs(self.index, read_cached, self.export.settings, where, values, **draw)
            return
        total = self.index.one(f"SELECT count(*) AS found FROM trajectories WHERE {where}", values)["found"]
        for done, place in enumerate(self.index.places(where, values), 1):
            trajectory = self._read(place)
            if trajectory is not None:
                self.stats.trajectories += 1
                yield from self._of(trajectory)
            if done % PROGRESS_EVERY == 0 or done == total:
                self.sink({"event": "export_progress", "bar": "export", "done": done, "total": total})

    def _of(self, trajectory: Trajectory) -> Iterator[Example]:
        if self.export.format.unit is not None:
            yield from self._record(trajectory)
            return
        desirable = None
        if self.export.options.objective is ExportObjective.KTO:
            desirable = trajectory.outcome.success
            if desirable is None:
                reason = DropReason.FAILURE if trajectory.outcome.failure else DropReason.REWARD_UNKNOWN
                self.stats.dropped[reason] += 1
                return
        if self.export.options.unit is ExportUnit.TRAJECTORY:
            yield from self._whole(trajectory, desirable)
        else:
            for step in trajectory.steps:
                problem = find_step_problem(step, self.export.settings, wanted=desirable is not False)
                if problem is None:
                    yield Example(build_step_sample(trajectory, step.index), desirable=desirable)
                else:
                    self.stats.dropped[problem] += 1

    def _record(self, trajectory: Trajectory) -> Iterator[Example]:
        if (reason := find_trajectory_problem(trajectory)) is not None:
            self.stats.dropped[reason] += 1
            return
        prompts: tuple[list[int], ...] = ()
        if self.export.format.with_tokens:
            sampled = [(step.generation.token_ids, step.generation.logprobs) for step in trajectory.steps]
            tokens = _load_tokens(str(policy_path(self.export.run, self.export.settings)))
            # Another server's or an expert's have no tokens.
            lacking = any(None in one for one in sampled)
            turns = MaskReason.LOGPROBS_UNUSABLE if lacking else read_turns(trajectory, tokens)
            if isinstance(turns, MaskReason):
                self.stats.dropped[turns] += 1
                return
            prompts = tuple(turn.prompt for turn in turns)
        sample = build_step_sample(trajectory, len(trajectory.steps) - 1)
        images = dict.fromkeys(picture.sha256 for picture in trajectory.pictures)
        sample = sample.model_copy(update={"images": tuple(images)})
        yield Example(sample, trajectory=trajectory, prompt_ids=prompts)

    def _whole(self, trajectory: Trajectory, desirable: bool | None) -> Iterator[Example]:
        if (reason := find_trajectory_problem(trajectory)) is not None:
            self.stats.dropped[reason] += 1
            return
        settings = self.export.settings
        self.stats.unfit_turns += sum(find_step_drop(step, settings) is not None for step in trajectory.steps)
        yield Example(build_trajectory_sample(trajectory), desirable=desirable)

    def _read(self, place: LineRef) -> Trajectory | None:
        try:
            return read(self.export.run, place)
        except StoreError as error:
            self.stats.add_problem(str(error))
            return None
