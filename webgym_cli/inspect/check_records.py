"""Check of the record files beside the trajectories."""

from __future__ import annotations

from pydantic import ValidationError

from webgym_cli.errors import StoreError
from webgym_cli.inspect.findings import FindingKind, Findings
from webgym_cli.records.base import describe_invalid
from webgym_cli.records.batch import TrainingBatch
from webgym_cli.store.checkpoints import find_damaged_records, list_complete
from webgym_cli.store.run import RunDir
from webgym_cli.util.files import file_size, is_json, read_json, read_lines


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
