"""Verification of a run: all lines, the index against them, and the images and records beside them.

All referenced images must exist, be unaltered and readable, and have the recorded size.
"""

from __future__ import annotations

import io
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
from PIL import Image
from pydantic import ValidationError

from webgym_cli.errors import StoreError
from webgym_cli.inspect.findings import FindingKind, Findings
from webgym_cli.inspect.gc import Reference, References, read_call_images
from webgym_cli.records.base import describe_invalid
from webgym_cli.records.batch import TrainingBatch
from webgym_cli.records.events import EventSink, make_event
from webgym_cli.records.judgement import Judgement
from webgym_cli.records.task import Split
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.store.buffer import find_misplacement
from webgym_cli.store.checkpoints import find_damaged_records, list_complete
from webgym_cli.store.index import fragments
from webgym_cli.store.index.arrow import read, table_of
from webgym_cli.store.index.build import add_line, plan_index, update
from webgym_cli.store.index.fragments import ByteRange, Catalog, SourceFile
from webgym_cli.store.index.schema import Row
from webgym_cli.store.metrics import read_events
from webgym_cli.store.run import RunDir
from webgym_cli.store.screenshots import MissingImageError, ScreenshotStore
from webgym_cli.util.files import file_size, is_json, read_json, read_lines
from webgym_cli.util.optional import group_by
from webgym_cli.util.text import format_count

# A finding's kind and detail, or width and height in pixels.
_ImageCheck = tuple[FindingKind, str] | tuple[int, int]


def verify(run: RunDir, sink: EventSink) -> dict[str, Any]:
    """Check everything and return the counts and the first findings; `finding` events contain all of them.

    Only lines that were complete at the start are checked, so a rollout may continue to write. Raises `StoreError` if
    the index can't be written or a file can't be read.
    """
    findings = Findings(run.root, sink)
    _find_missing_lines(run, findings)  # before the index is updated to the current files
    update(run, sink)
    check = _Check(run, findings, fragments.list_sources(run), Catalog(run))
    check.truth()
    check.compare_with_metrics()
    for sha256 in read_call_images(run):  # those of helpers and of open sessions are in no trajectory
        check.references.add(sha256)
    check_records(run, findings)
    images = check_images(ScreenshotStore(run.screenshots), check.references, check.sources, check.findings)
    return {
        "run": str(run.root),
        **check.counts,
        "images": images,
        "findings_by_kind": dict(sorted(check.findings.counts.items())),
        "findings": check.findings.first,
    }


def _find_missing_lines(run: RunDir, findings: Findings) -> None:
    """Find source files that are shorter than, or differ from, what was indexed."""
    plans = plan_index(run)
    for path in (plan.source.path for plan in plans if plan.wrong):
        findings.add(FindingKind.LINES_MISSING, path, "", "it was cut or replaced: the index was made of other content")
    here = {plan.source.name for plan in plans}
    for name in sorted({name for _, name, _, _ in Catalog(run).everything()} - here):
        split, iteration, stem = name.split(".", 2)
        path = run.part(Split(split), int(iteration)).with_name(f"{stem}.jsonl")
        findings.add(FindingKind.LINES_MISSING, path, "", "it is gone: the index has lines of it")


@dataclass(slots=True)
class _Check:
    """State of one verification."""

    run: RunDir
    findings: Findings
    sources: list[SourceFile]
    catalog: Catalog
    references: References = field(default_factory=References)
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("trajectories", "steps", "judgements", "unfinished_bytes"), 0)
    )
    lines: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Number of trajectory lines by split and iteration, including damaged ones."""
    _ids: dict[str, str] = field(default_factory=dict)
    """Location of each trajectory of the current iteration."""

    def truth(self) -> None:
        """Read all lines, compare each range with its part of the index, and collect the image references."""
        sizes = [source.path.stat().st_size for source in self.sources]
        iteration = None
        for number, source in enumerate(self.sources):
            if iteration != (source.split, source.iteration):
                iteration = source.split, source.iteration
                self._ids.clear()
            chain = self.catalog.chain(source)
            for span in chain:
                self._compare(source, span, self._derive(number, source, span))
                progress = {"done": sum(sizes[:number]) + span.end, "total": sum(sizes), "transient": True}
                self.findings.sink(make_event("verify_progress", bar="lines", **progress))
            self.counts["unfinished_bytes"] += max(0, sizes[number] - max((span.end for span in chain), default=0))

    def compare_with_metrics(self) -> None:
        """Find iterations with fewer trajectories than their rollouts recorded."""
        known: Counter[tuple[str, int]] = Counter()
        for event in read_events(self.run, "rollout", "evaluation"):
            split, iteration, episodes = (event.get(key) for key in ("split", "iteration", "episodes"))
            if split in list(Split) and isinstance(iteration, int) and isinstance(episodes, int):
                known[split, iteration] = max(known[split, iteration], episodes)
        for (split, iteration), episodes in sorted(known.items()):
            if self.lines[split, iteration] < episodes:
                detail = (
                    f"{self.lines[split, iteration]} trajectories, {episodes} were recorded in {self.run.metrics.name}"
                )
                folder = self.run.part(Split(split), iteration).parent
                self.findings.add(FindingKind.LINES_MISSING, folder, "", detail)

    def _derive(self, number: int, source: SourceFile, span: ByteRange) -> dict[str, pa.Table]:
        """Return the index rows that a range of a source should have."""
        rows: dict[str, list[Row]] = {name: [] for name in source.tables}
        for start, text in fragments.read_lines(source.path, span):
            self._take(number, source, start, text, rows)
        return {name: table_of(name, entries) for name, entries in rows.items()}

    def _take(self, number: int, source: SourceFile, start: int, text: bytes, rows: dict[str, list[Row]]) -> None:
        record = add_line(self.run, source, text, start, rows)
        self.lines[source.split.value, source.iteration] += source.main == "trajectories"
        if isinstance(record, Judgement):
            self.counts["judgements"] += 1
            if record.trajectory not in self._ids:  # trajectory files are read before judgement files
                detail = f"{record.trajectory} is not among the trajectories of its iteration"
                self.findings.add(FindingKind.LONE_JUDGEMENT, source.path, f"byte {start}", detail)
        elif record is None:
            self.findings.add(FindingKind.DAMAGED_LINE, source.path, f"byte {start}", rows["damage"][-1]["reason"])
        elif reason := find_misplacement(record, source.split, source.iteration):
            self.findings.add(FindingKind.MISPLACED_LINE, source.path, f"byte {start}", reason)
        else:
            self._check_trajectory(number, source, start, record)

    def _check_trajectory(self, number: int, source: SourceFile, start: int, trajectory: Trajectory) -> None:
        place, name = f"byte {start}", trajectory.id
        self.counts["trajectories"] += 1
        self.counts["steps"] += len(trajectory.steps)
        for step in trajectory.steps:
            observation = step.observation
            for picture in observation.pictures:
                self.references.add(picture.sha256, picture.width, picture.height, number, start)
            if observation.digest and observation.digest != observation.compute_digest():
                detail = f"step {step.index} of {name}: screenshot, elements, address and title are not of one moment"
                self.findings.add(FindingKind.OBSERVATION_ALTERED, source.path, place, detail)
        if name in self._ids:
            detail = f"{name} stands in {self._ids[name]}, too"
            self.findings.add(FindingKind.DUPLICATE_ID, source.path, place, detail)
        self._ids.setdefault(name, f"{source.path.name} ({place})")

    def _compare(self, source: SourceFile, span: ByteRange, derived: dict[str, pa.Table]) -> None:
        for name, table in derived.items():
            path = self.catalog.fragments(name, source.name)[span]
            try:
                is_same = table.equals(read(path, name))
            except (OSError, pa.ArrowException):
                is_same = False
            if not is_same:
                detail = f"its rows are not what bytes {span.start} to {span.end} of {source.path} say"
                self.findings.add(FindingKind.INDEX_DIFFERS, path, "", detail)


def check_records(run: RunDir, findings: Findings) -> None:
    """Find unreadable checkpoint records, `run.json`, and lines of metrics and batches."""
    for file, reason in find_damaged_records(run).items():
        findings.add(FindingKind.DAMAGED_RECORD, file, "", reason)
    if run.provenance.exists():
        try:
            read_json(run.provenance)
        except StoreError as error:
            findings.add(FindingKind.DAMAGED_RECORD, run.provenance, "", str(error).removeprefix(f"{run.provenance}: "))
    for number, line in read_lines(run.metrics):
        if not is_json(line):
            findings.add(FindingKind.DAMAGED_RECORD, run.metrics, f"line {number}", "not one JSON object")
    _check_batches(run, findings)


def _check_batches(run: RunDir, findings: Findings) -> None:
    """Find damaged and missing lines of the batch ledger, and files shorter than what a batch has read of them."""
    ends: dict[str, int] = {}
    parents: set[int] = set()
    for number, line in read_lines(run.batches):
        try:
            batch = TrainingBatch.model_validate_json(line)
        except ValidationError as error:
            findings.add(FindingKind.DAMAGED_RECORD, run.batches, f"line {number}", describe_invalid(error))
            continue
        parents.add(batch.parent)
        ends |= {name: max(end, ends.get(name, 0)) for name, end in batch.as_of.items()}
    for checkpoint in list_complete(run) if run.orm_of is None else ():
        # the first records with this field are younger than the ledger
        if "adapter" in checkpoint.model_fields_set and checkpoint.version - 1 not in parents:
            detail = f"the batch of version {checkpoint.version - 1} is missing: {checkpoint.name} was trained on it"
            findings.add(FindingKind.LINES_MISSING, run.batches, "", detail)
    for name, end in ends.items():
        file = run.root / name
        if (size := file_size(file)) < end:
            findings.add(FindingKind.LINES_MISSING, file, "", f"{size} bytes, a batch has read {end}")


def check_images(
    store: ScreenshotStore, references: References, sources: list[SourceFile], findings: Findings
) -> dict[str, int]:
    """Check the images folder by folder, two at a time.

    Returns the number of referenced images (`named`), of stored files (`stored`), and of stored files without reference
    (`unnamed`).
    """
    counts = {"named": 0, "stored": 0, "unnamed": 0}
    there, folders = set(store.folders()), references.folders()
    with ThreadPoolExecutor(min(2, len(os.sched_getaffinity(0)))) as pool:
        for number, folder in enumerate(folders):
            by_name = group_by(references.of(folder), lambda reference: reference.sha256)
            files = [sha256 for sha256, _ in store.images(folder)] if folder in there else []
            counts["named"] += len(by_name)
            counts["stored"] += len(files)
            counts["unnamed"] += sum(sha256 not in by_name for sha256 in files)
            for look, named in zip(pool.map(partial(_check_image, store), by_name), by_name.values(), strict=True):
                _report(store, look, named, sources, findings)
            progress = {"bar": "images", "done": number + 1, "total": len(folders), "transient": True}
            findings.sink(make_event("verify_progress", **progress))
    return counts


def _check_image(store: ScreenshotStore, sha256: str) -> _ImageCheck:
    path = store.path(sha256)
    if not path.exists():
        return FindingKind.IMAGE_MISSING, "there is no such file"
    try:
        content = store.get(sha256)
    except StoreError as error:
        kind = FindingKind.IMAGE_ALTERED if isinstance(error, MissingImageError) else FindingKind.IMAGE_UNREADABLE
        return kind, str(error).removeprefix(f"{path}: ")
    try:
        with Image.open(io.BytesIO(content)) as image:
            size: tuple[int, int] = image.size
            image.verify()
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:  # from Pillow
        return FindingKind.IMAGE_BROKEN, str(error).partition("<")[0].strip()
    return size


def _report(
    store: ScreenshotStore, look: _ImageCheck, named: list[Reference], sources: list[SourceFile], findings: Findings
) -> None:
    """Add the findings for an image, and for trajectories with another size of it."""
    path = store.path(named[0].sha256)
    if isinstance(look[0], FindingKind):
        steps = format_count(len(named), "step")
        first = f"{steps} of {_line(named[0], sources)} on show it" if named[0].width else "an agent's call shows it"
        findings.add(look[0], path, "", f"{look[1]}; {first}")
        return
    for reference in named:
        if reference.width and (reference.width, reference.height) != look:
            recorded = f"{reference.width}x{reference.height}"
            detail = f"it is {look[0]}x{look[1]}, {_line(reference, sources)} has {recorded}"
            findings.add(FindingKind.IMAGE_SIZE, path, "", detail)


def _line(reference: Reference, sources: list[SourceFile]) -> str:
    return f"{sources[reference.source].path} (byte {reference.start})"
