"""Labels of people, in three file formats, and the agreement of verdicts with them: precision, kappa, thresholds."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations, product
from operator import attrgetter
from pathlib import Path
from typing import Any

from webgym_cli.errors import UsageError
from webgym_cli.records.failure import is_rolled_out
from webgym_cli.records.judgement import Judgement, environment_verdict, newest_judgement, newest_verdict, with_verdict
from webgym_cli.records.statistics import cohen_kappa, known_interval, ratio
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.store.buffer import iter_labels
from webgym_cli.store.run import RunDir
from webgym_cli.tasks.convert import read_records, rename_fields
from webgym_cli.tasks.registry import BadTaskError
from webgym_cli.util.optional import group_by, when

_YES = {"true", "yes", "y", "1", "1.0", "success", "successful", "correct", "pass", "passed"}
_NO = {"false", "no", "n", "0", "0.0", "failure", "unsuccessful", "incorrect", "fail", "failed"}
_UNSURE = {"", "none", "null", "nan", "n/a", "na", "unsure", "unclear", "unknown", "-1", "-1.0"}
# Column of CUAVerifierBench's trajectories, whose labels are those of the majority.
_MAJORITY = "majority_human_outcome_vote"
# Column of the label in AgentRewardBench's annotations and in CUAVerifierBench's files -> that of the person.
_DATA_SETS = {"trajectory_success": "annotator_name", "human_judgement_outcome": "annotator", _MAJORITY: "who"}
# Columns of the tables that the command prints, by their name in the result.
TABLES = {
    "rows": (
        *("source", "group", "labelled", "no_verdict", "tp", "fp", "fn", "tn", "precision", "precision_interval"),
        *("recall", "recall_interval", "false_positive_rate", "false_positive_interval", "kappa", "kappa_interval"),
    ),
    "thresholds": ("source", "wanted", "threshold", "precision", "precision_interval", "recall", "recall_interval"),
    "people": ("pairs", "kappa"),
}


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
    """Return the label of a record: in our fields, also those that `--field` names, or in those of a data set."""
    # pandas writes an empty cell as NaN, which is nobody's name
    record = dict.fromkeys(record) | {name: value for name, value in record.items() if value == value}
    theirs = next((column for column in _DATA_SETS if column in record), "label")
    label = record["label"] if "label" in record else record[theirs]
    person = record.get("who") or record.get(_DATA_SETS.get(theirs, "who")) or when(theirs == _MAJORITY, "majority")
    given = (record.get(name) for name in ("trajectory", "task", "task_id"))
    named = next((one for one in given if one not in (None, "")), "")
    if not isinstance(named, str | int) or named == "":
        raise ValueError("it names no episode")
    policy, benchmark = record.get("policy") or record.get("model_name"), str(record.get("benchmark") or "")
    return Label(str(named), _read_answer(label), str(person or "").strip(), benchmark, str(policy or ""))


def _read_answer(value: Any) -> bool | None:
    word = str(value).strip().casefold()
    if word in _UNSURE:
        return None
    if word not in _YES | _NO:
        raise ValueError(f"{value!r} is neither yes, no nor unsure")
    return word in _YES


@dataclass(slots=True)
class LabelledEpisode:
    """One episode with the label of the majority of people and the verdicts of each source."""

    label: bool
    benchmark: str
    policy: str
    verdicts: dict[str, bool | None] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)
    """Share of the votes, or a reward model's probability."""


def measure_agreement(
    labels: Sequence[Label], judged: Iterable[tuple[Trajectory, list[Judgement]]], precision: float | None
) -> dict[str, Any]:
    """Return counts, one row for each source and group, and the thresholds that a wanted precision needs."""
    counts: Counter[str] = Counter(dict.fromkeys(("labels", "episodes", "unsure", "tied", "unmatched", "ambiguous"), 0))
    counts["labels"] = len(labels)
    episodes = list(_label_episodes(labels, judged, counts))
    counts["episodes"] = len(episodes)
    groups = {"all": episodes, **_group(episodes, "benchmark"), **_group(episodes, "policy")}
    sources = dict.fromkeys(chain.from_iterable(one.verdicts for one in episodes))
    wanted = [] if precision is None else [precision]
    thresholds = (find_threshold(episodes, source, share) for source, share in product(("votes", "orm"), wanted))
    return {
        "event": "agreement",
        **counts,
        "people": _measure_people(labels),
        "rows": [
            {"source": source, "group": group, **measure_source(members, source)}
            for source in sources
            for group, members in groups.items()
        ],
        "thresholds": [one for one in thresholds if one],
    }


def _label_episodes(
    labels: Sequence[Label], judged: Iterable[tuple[Trajectory, list[Judgement]]], counts: Counter[str]
) -> Iterator[LabelledEpisode]:
    """Yield the labelled episodes; what can't be used is counted."""
    by_name: defaultdict[str, list[tuple[Trajectory, list[Judgement]]]] = defaultdict(list)
    groups = group_by(labels, attrgetter("name", "policy"))
    wanted = set(chain.from_iterable(_list_names(of_one[0]) for of_one in groups.values()))
    for trajectory, judgements in judged:
        for name in wanted & {trajectory.id, trajectory.task.id}:
            by_name[name].append((trajectory, judgements))
    for (_, policy), of_one in groups.items():
        named = {one[0].id: one for one in chain.from_iterable(by_name[alias] for alias in _list_names(of_one[0]))}
        matches = [one for one in named.values() if policy in one[0].policy]
        # A task's name is also that of its attempts that failed before the one that people saw.
        matches = [one for one in matches if is_rolled_out(one[0].outcome.failure)] or matches
        if len(matches) != 1:
            counts["ambiguous" if matches else "unmatched"] += 1
            continue
        votes = Counter(label.success for label in of_one)
        if votes[True] == votes[False]:
            counts["tied" if votes[True] else "unsure"] += 1
            continue
        ((trajectory, judgements),) = matches
        benchmark = of_one[0].benchmark or str(trajectory.task.extra.get("benchmark") or trajectory.task.environment)
        episode = LabelledEpisode(votes[True] > votes[False], benchmark, policy or trajectory.policy)
        _add_verdicts(episode, trajectory, judgements)
        yield episode


def _list_names(label: Label) -> set[str]:
    """Return the names of a label's episode: AgentRewardBench's `webarena.7` is WebArena's task 7."""
    return {label.name, label.name.removeprefix(f"{label.benchmark}.")}


def _add_verdicts(episode: LabelledEpisode, trajectory: Trajectory, judgements: Sequence[Judgement]) -> None:
    if judge := newest_verdict(judgements, "judge"):
        episode.verdicts["judge"] = judge.success
        voted = [
            verdict.votes for verdict in (judge.claims, *judge.facts, judge.reference) if verdict and verdict.votes
        ]
        if any(len(votes) > 1 for votes in voted):  # the weakest question decides
            share = min(sum(votes) / len(votes) for votes in voted)
            episode.scores["votes"] = share
            episode.verdicts["votes"] = share == 1
    if model := newest_judgement(judgements, "orm"):
        episode.verdicts["orm"] = model.success
        episode.scores["orm"] = model.probability or 0.0
    if (check := environment_verdict(with_verdict(trajectory, newest_judgement(judgements, "check")))) is not None:
        episode.verdicts["check"] = check


def _group(episodes: Iterable[LabelledEpisode], name: str) -> dict[str, list[LabelledEpisode]]:
    groups = group_by(episodes, lambda one: f"{name} {getattr(one, name)}")
    return when(len(groups) > 1, dict(sorted(groups.items())))


def measure_source(episodes: Sequence[LabelledEpisode], source: str) -> dict[str, Any]:
    """Return the confusion matrix of one source and its rates. A missing verdict is in none of the cells."""
    known = [(one.verdicts.get(source), one.label) for one in episodes]
    cells = Counter(known)
    tp, fp, fn, tn = (cells[pair] for pair in ((True, True), (True, False), (False, True), (False, False)))
    kappa = cohen_kappa(tp, fp, fn, tn)
    return {
        "labelled": len(known),
        "no_verdict": cells[None, True] + cells[None, False],
        **{"tp": tp, "fp": fp, "fn": fn, "tn": tn},
        **_rate("precision", "precision_interval", tp, tp + fp),
        **_rate("recall", "recall_interval", tp, tp + fn),
        **_rate("false_positive_rate", "false_positive_interval", fp, fp + tn),
        "kappa": kappa and round(kappa[0], 4),
        "kappa_interval": kappa and [round(bound, 4) for bound in kappa[1:]],
    }


def _rate(name: str, interval: str, part: int, whole: int) -> dict[str, Any]:
    return {name: ratio(part, whole), interval: known_interval(part, whole)}


def find_threshold(episodes: Sequence[LabelledEpisode], source: str, wanted: float) -> Mapping[str, Any] | None:
    """Return the smallest threshold of a source's score with at least the wanted precision; None without scores.

    The threshold is None if none reaches it.
    """
    scored = [(one.scores[source], one.label) for one in episodes if source in one.scores]
    positives = sum(label for _, label in scored)
    for threshold in sorted({score for score, _ in scored}):
        passed = [label for score, label in scored if score >= threshold]
        if sum(passed) / len(passed) >= wanted:  # 55 of 100 are 0.55, but 0.55 * 100 is more than 55
            reached = {**_rate("precision", "precision_interval", sum(passed), len(passed))}
            recall = _rate("recall", "recall_interval", sum(passed), positives)
            return {"source": source, "wanted": wanted, "threshold": threshold, **reached, **recall}
    if not scored:
        return None
    missing = dict.fromkeys(("threshold", "precision", "precision_interval", "recall", "recall_interval"))
    return {"source": source, "wanted": wanted, **missing}


def _measure_people(labels: Iterable[Label]) -> dict[str, Any]:
    """Return the agreement of people with each other, over all pairs of labels of an episode."""
    cells: Counter[tuple[bool | None, bool | None]] = Counter()
    for of_one in group_by(labels, attrgetter("name", "policy")).values():
        # by name: kappa tells its two raters apart
        sure = sorted((label for label in of_one if label.success is not None), key=lambda label: label.who)
        pairs = [(one, two) for one, two in combinations(sure, 2) if one.who != two.who]
        cells.update((one.success, two.success) for one, two in pairs)
    kappa = cohen_kappa(cells[True, True], cells[True, False], cells[False, True], cells[False, False])
    return {"pairs": cells.total(), "kappa": kappa and round(kappa[0], 4)}
