"""The small files beside the trajectories: can each be read as what it is?"""

from __future__ import annotations

from webgym_cli.errors import StoreError
from webgym_cli.inspect.findings import FindingKind, Findings
from webgym_cli.store.checkpoints import find_damaged_records
from webgym_cli.store.run import RunDir
from webgym_cli.util.files import is_json, read_json, read_lines


def check_records(run: RunDir, findings: Findings) -> None:
    """Find the checkpoints' records, `run.json` and the lines of `metrics.jsonl` that can't be read."""
    for file, reason in find_damaged_records(run).items():
        findings.add(FindingKind.DAMAGED_RECORD, file, "", reason)
    if run.provenance.exists():
        try:
            read_json(run.provenance)
        except StoreError as error:
            findings.add(FindingKind.DAMAGED_RECORD, run.provenance, "", str(error).removeprefix(f"{run.provenance}: "))
    if run.metrics.is_file():
        for number, line in read_lines(run.metrics):
            if not is_json(line):
                findings.add(FindingKind.DAMAGED_RECORD, run.metrics, f"line {number}", "not one JSON object")
