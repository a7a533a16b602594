"""Labels of people, append-only beside the judge's verdicts."""

from __future__ import annotations

from collections.abc import Iterator

from webgym_cli.records.judgement import EpisodeLabel
from webgym_cli.records.task import Split
from webgym_cli.store.run import RunDir
from webgym_cli.store.validation import refuse_invalid
from webgym_cli.util.files import append_lines, read_lines

_FILE = "labels.jsonl"


def append_label(run: RunDir, file: str, label: EpisodeLabel) -> None:
    """Append a label of a trajectory that is in `file` of the run, durably; earlier ones stay. Raises `StoreError`."""
    append_lines((run.root / file).with_name(_FILE), label.to_line())


def iter_labels(run: RunDir) -> Iterator[EpisodeLabel]:
    """Yield the labels of a run, those of each person and trajectory in order. Raises `StoreError`."""
    for split in Split:
        for file in sorted(run.trajectories(split).glob(f"iteration_*/{_FILE}")):
            for number, line in read_lines(file):
                hint = "mend or remove that line; webgym label writes one a label"
                with refuse_invalid(f"{file}:{number}: no label", hint):
                    label = EpisodeLabel.model_validate_json(line)
                yield label
