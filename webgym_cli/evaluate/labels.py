"""Labels of people: whether an episode solved its task. Readers of three file formats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webgym_cli.errors import UsageError
from webgym_cli.store.labels import iter_labels
from webgym_cli.store.run import RunDir
from webgym_cli.tasks.convert import read_records, rename_fields
from webgym_cli.tasks.registry import BadTaskError

_YES = {"true", "yes", "y", "1", "1.0", "success", "successful", "correct", "pass", "passed"}
_NO = {"false", "no", "n", "0", "0.0", "failure", "unsuccessful", "incorrect", "fail", "failed"}
_UNSURE = {"", "none", "null", "nan", "unsure", "-1", "-1.0"}


@dataclass(frozen=True, slots=True)
class Label:
    """What one person said of one episode."""

    name: str
    """Name of the episode: a trajectory's id, or a task's."""
    success: bool | None
    """None: unsure."""
    who: str = ""
    benchmark: str = ""
    policy: str = ""
    """Part of the policy's name; empty: any."""


def read_labels(path: Path, names: Mapping[str, str] | None = None) -> list[Label]:
    """Return the labels of a run (`webgym label`), or of a file: our JSON Lines, AgentRewardBench's annotations, or
    CUAVerifierBench's files. Of one person the newest of an episode counts.

    `names`: our field -> theirs, in a file of other names. Raises `UsageError` with the number of the first record that
    is no label.
    """
    run = RunDir(path)
    labels = (
        [_read_label(label.model_dump()) for label in iter_labels(run)] if run.exists else _read_file(path, names or {})
    )
    if not labels:
        raise UsageError(f"{path}: no label is there", hint="webgym label RUN, or a file with one label a line")
    newest = {(label.who or number, label.name, label.policy): label for number, label in enumerate(labels)}
    return [*newest.values()]


def _read_file(path: Path, names: Mapping[str, str]) -> list[Label]:
    labels = []
    for number, read in read_records(path):
        record: Mapping[str, Any] = {}
        try:
            record = read()
            labels.append(_read_label(rename_fields(record, names)))
        except (BadTaskError, KeyError, ValueError) as error:
            reason = f"the field {error} is missing" if isinstance(error, KeyError) else error
            hint = f"trajectory or task, label and who are needed: --field label=THEIRS; there are: {', '.join(record)}"
            raise UsageError(f"{path}:{number}: no label: {reason}", hint=hint) from None
    return labels


def _read_label(record: Mapping[str, Any]) -> Label:
    if "trajectory" in record or "task" in record:
        name, label, who = record.get("trajectory", record.get("task")), record["label"], record.get("who")
    elif "trajectory_success" in record:  # AgentRewardBench, whose `exp_name` is one of all tasks of an agent
        name, label, who = record["task_id"], record["trajectory_success"], record.get("annotator_name")
    elif "human_judgement_outcome" in record:  # CUAVerifierBench, its annotations
        name, label, who = record["task_id"], record["human_judgement_outcome"], record.get("annotator")
    else:  # CUAVerifierBench, its trajectories
        name, label, who = record["task_id"], record["majority_human_outcome_vote"], "majority"
    policy = record.get("policy") or record.get("model_name")
    benchmark = str(record.get("benchmark") or "")
    if not isinstance(name, str | int) or name == "":
        raise ValueError("it names no episode")
    return Label(str(name), _read_answer(label), str(who or ""), benchmark, str(policy or ""))


def _read_answer(value: Any) -> bool | None:
    word = str(value).strip().casefold()
    if word in _UNSURE:
        return None
    if word not in _YES | _NO:
        raise ValueError(f"{value!r} is neither yes, no nor unsure")
    return word in _YES
