"""Verdicts against labels, by hand."""

import csv
import json

import pyarrow
import pytest
from pyarrow import parquet

from tests.forked import webgym
from tests.records.builders import new_run, trajectory
from webgym_cli.config.load import load
from webgym_cli.errors import UsageError
from webgym_cli.evaluate.agreement import Label, measure_agreement, read_labels
from webgym_cli.evaluate.results import EpisodeEnd, read_results
from webgym_cli.records.failure import FailureKind, Stop
from webgym_cli.records.judgement import Judgement, Verdict
from webgym_cli.records.statistics import cohen_kappa, wilson
from webgym_cli.records.task import Episode, Split, Task
from webgym_cli.records.trajectory import FinalState, Outcome
from webgym_cli.store.buffer import append, append_judgement
from webgym_cli.store.run import RunDir, create_or_open
from webgym_cli.util.files import write_lines

AGENT_REWARD = {"trajectory_success": "Successful", "annotator_name": "y"}
WHEN = "2026-01-02T03:04:05.000+00:00"


def judged(number, verdict, *, votes=(), probability=None, **changes):
    """Return an episode and its judgements: by a judge, and by a reward model if there is a probability."""
    given = {"outcome": Outcome(stop=Stop.ANSWERED, answer="x"), "task": Task(id=f"t{number}", environment="web")}
    episode = trajectory(number, **{**given, **changes})
    facts = {"trajectory": episode.id, "models": {}, "settings_digest": "d", "judged_at": WHEN}
    failure = FailureKind.JUDGE_FAILED if verdict is None else None
    result = (Verdict(question="q", passed=bool(verdict), votes=votes),)
    judgements = [Judgement(success=verdict, failure=failure, facts=result, **facts)]
    if probability is not None:
        judgements.append(Judgement(source="orm", probability=probability, success=probability >= 0.5, **facts))
    return episode, judgements


def label(one, success, who="anna", **more):
    return Label(one[0].id, success, who, **more)


def rows(agreement, source="judge", group="all"):
    return next(row for row in agreement["rows"] if (row["source"], row["group"]) == (source, group))


def test_a_check_that_scored_later_is_the_environment_s_verdict():
    episode, judgements = judged(0, True)
    facts = {"trajectory": episode.id, "models": {"verdict": "c"}, "settings_digest": "c", "judged_at": WHEN}
    later = Judgement(source="check", reward=0.0, success=False, **facts)
    agreement = measure_agreement([label((episode, []), True)], [(episode, [*judgements, later])], None)
    assert [(row["source"], row["tp"], row["fn"]) for row in agreement["rows"]] == [("judge", 1, 0), ("check", 0, 1)]


def test_a_judge_that_fails_replaces_no_verdict(tmp_path):
    task = Task(id="t", environment="web", instruction="Find a lamp.", start_url="https://a.test/")
    (episode, judgements), (_, failed) = (judged(0, verdict, split=Split.TEST, task=task) for verdict in (True, None))
    judgements += failed
    agreement = measure_agreement([label((episode, []), True)], [(episode, judgements)], None)
    assert [rows(agreement)[name] for name in ("tp", "no_verdict")] == [1, 0]
    run = new_run(tmp_path)
    tested = Episode(id=episode.episode, split=Split.TEST, iteration=0, task=task, seed=1, max_steps=9)
    write_lines(run.plan(Split.TEST, 0), [tested.model_dump(mode="json")])
    append(run, episode)
    for one in judgements:
        append_judgement(run, Split.TEST, 0, one)
    (result,) = read_results(run, "d", {}, {}, "")
    assert (result.end, result.failure) == (EpisodeEnd.SUCCESS, "")


def test_an_attempt_that_a_mended_check_scored_is_the_result_whatever_ended_those_after_it(tmp_path):
    """An evaluation was to run the episode still, which no command ran: by its plan it was done."""
    run, facts = new_run(tmp_path), {"split": Split.TEST, "task": Task(id="t", check="c"), "final": FinalState()}
    failed = Outcome(failure="environment_error", failure_detail="the check failed")
    stopped = Outcome(failure="cancelled")
    episodes = trajectory(outcome=failed, **facts), trajectory(outcome=stopped, id="later", attempt=1, **facts)
    first = episodes[0]
    tested = Episode(id=first.episode, split=Split.TEST, iteration=0, task=first.task, seed=1, max_steps=9)
    write_lines(run.plan(Split.TEST, 0), [tested.model_dump(mode="json")])
    for one in episodes:
        append(run, one)
    verdict = {"trajectory": first.id, "models": {"verdict": "c"}, "settings_digest": "d", "judged_at": WHEN}
    append_judgement(run, Split.TEST, 0, Judgement(source="check", reward=1.0, success=True, **verdict))
    (result,) = read_results(run, "", {"c": "d"}, {"c": "before"}, "")
    assert (result.end, result.trajectory) == (EpisodeEnd.SUCCESS, first.id)


def test_a_known_confusion_matrix_comes_out_exactly():
    cells = (
        [(True, True)] * 20 + [(True, False)] * 5 + [(False, True)] * 10 + [(False, False)] * 15 + [(None, True)] * 2
    )
    episodes = [judged(number, verdict) for number, (verdict, _) in enumerate(cells)]
    labels = [label(one, truth) for one, (_, truth) in zip(episodes, cells, strict=True)]
    row = rows(measure_agreement(labels, episodes, None))
    assert [row[cell] for cell in ("tp", "fp", "fn", "tn", "no_verdict", "labelled")] == [20, 5, 10, 15, 2, 52]
    assert (row["precision"], row["recall"], row["false_positive_rate"]) == (0.8, 0.6667, 0.25)
    assert row["precision_interval"] == [round(bound, 4) for bound in wilson(20, 25)]
    assert row["false_positive_interval"] == [round(bound, 4) for bound in wilson(5, 20)]
    assert row["kappa"] == 0.4  # agreement 0.7, by chance 0.5
    # 1.96 * sqrt(0.7 * 0.3 / 50) / 0.5
    assert row["kappa_interval"] == [0.146, 0.654]


@pytest.mark.parametrize(
    ("cells", "kappa"),
    [((20, 5, 10, 15), 0.4), ((5, 0, 0, 5), 1.0), ((0, 5, 5, 0), -1.0), ((5, 0, 0, 0), None), ((0,) * 4, None)],
)
def test_kappa_by_hand(cells, kappa):
    computed = cohen_kappa(*cells)
    assert (computed and round(computed[0], 6)) == kappa


@pytest.mark.parametrize("swapped", [(), (1,), (2,), (0, 1, 3)])
def test_the_order_of_labels_does_not_change_how_people_agree(swapped):
    labels = []
    for number, (anna, ben) in enumerate(((True, True), (True, False), (True, False), (False, False))):
        pair = [Label(str(number), anna, "anna"), Label(str(number), ben, "ben")]
        labels += pair[::-1] if number in swapped else pair
    # they agree on 2 of 4, by chance on (3 * 1 + 1 * 3) / 16: (0.5 - 0.375) / (1 - 0.375)
    assert measure_agreement(labels, [], None)["people"] == {"pairs": 4, "kappa": 0.2}


def test_the_majority_of_people_counts_and_ties_and_doubts_are_left_out():
    episodes = [judged(number, True) for number in range(4)]
    labels = [label(episodes[0], truth, who) for truth, who in ((True, "a"), (True, "b"), (False, "c"))]
    labels += [label(episodes[1], True, "a"), label(episodes[1], False, "b"), label(episodes[2], None, "a")]
    labels += [Label("nowhere", True)]
    agreement = measure_agreement(labels, episodes, None)
    assert [agreement[name] for name in ("episodes", "tied", "unsure", "unmatched")] == [1, 1, 1, 1]
    assert rows(agreement)["tp"] == 1
    assert agreement["people"]["pairs"] == 4


def test_groups_are_by_benchmark_and_policy():
    episodes = [judged(0, True, policy="p"), judged(1, True, policy="q"), judged(2, False, policy="q")]
    labels = [label(one, True, benchmark=name) for one, name in zip(episodes, ("x", "x", "y"), strict=True)]
    agreement = measure_agreement(labels, episodes, None)
    assert rows(agreement, group="benchmark x")["tp"] == 2
    assert rows(agreement, group="policy q")["fn"] == 1


def test_a_task_stands_for_its_only_episode_of_a_policy():
    episodes = [
        judged(0, True, policy="p", task=Task(id="t", environment="web")),
        judged(1, True, policy="q", task=Task(id="t", environment="web")),
    ]
    agreement = measure_agreement([Label("t", True, policy="q")], episodes, None)
    assert (agreement["episodes"], agreement["ambiguous"]) == (1, 0)
    assert measure_agreement([Label("t", True)], episodes, None)["ambiguous"] == 1
    crashed = Outcome(failure=FailureKind.BROWSER_CRASHED)
    tried = [judged(2, True, policy="q", task=Task(id="t", environment="web"), outcome=crashed), *episodes]
    assert measure_agreement([Label("t", True, policy="q")], tried, None)["rows"] == agreement["rows"]


def test_the_threshold_that_a_precision_needs():
    scores = [(0.9, True), (0.8, True), (0.7, False), (0.6, True), (0.4, False), (0.2, True)]
    votes = [
        (True, True, True),
        (True, True, False),
        (True, True, False),
        (True, False, False),
        (False,) * 3,
        (False,) * 3,
    ]
    episodes = [
        judged(number, sum(of) > 1, probability=score, votes=of)
        for number, ((score, _), of) in enumerate(zip(scores, votes, strict=True))
    ]
    labels = [label(one, truth) for one, (_, truth) in zip(episodes, scores, strict=True)]
    agreement = measure_agreement(labels, episodes, 0.75)
    by_source = {row["source"]: row for row in agreement["thresholds"]}
    assert by_source["orm"]["threshold"] == 0.6
    assert (by_source["orm"]["precision"], by_source["orm"]["recall"]) == (0.75, 0.75)
    assert by_source["votes"]["threshold"] == pytest.approx(1 / 3)  # 3 of 4
    assert rows(agreement, "votes")["tp"] == 1  # unanimous
    assert rows(agreement, "orm")["fp"] == 1
    never = measure_agreement([label(one, False) for one in episodes], episodes, 0.9)["thresholds"]
    assert [row["threshold"] for row in never] == [None, None]


def test_a_precision_that_is_just_reached_suffices():
    episodes = [judged(number, True, probability=0.5) for number in range(25)]
    labels = [label(one, number < 14) for number, one in enumerate(episodes)]
    (row,) = measure_agreement(labels, episodes, 0.56)["thresholds"]  # 0.56 * 25 is more than 14 in floating point
    assert (row["threshold"], row["precision"]) == (0.5, 0.56)


@pytest.mark.parametrize(
    ("name", "records", "labels"),
    [
        (
            "ours.jsonl",
            [
                {"trajectory": "a", "label": "yes", "who": "anna"},
                {"trajectory": "b", "label": 0},
                {"trajectory": "c", "label": "N/A"},
                {"trajectory": "d", "label": "Pass"},
                {"trajectory": "e", "label": "N"},
            ],
            [Label("a", True, "anna"), Label("b", False), Label("c", None), Label("d", True), Label("e", False)],
        ),
        (
            "annotations.csv",
            [
                {
                    "annotator_name": "A1",
                    "benchmark": "webarena",
                    "task_id": "webarena.7",
                    "model_name": "m",
                    "exp_name": "e",
                    "trajectory_success": "Unsuccessful",
                }
            ],
            [Label("webarena.7", False, "A1", "webarena", "m")],
        ),
        (
            "annotations.jsonl",
            [{"task_id": "t", "annotator": "Judge1", "human_judgement_outcome": "Correct"}],
            [Label("t", True, "Judge1")],
        ),
        (
            "trajectories.jsonl",
            [{"task_id": "t", "majority_human_outcome_vote": 0, "final_human_outcome_label": 1}],
            [Label("t", False, "majority")],
        ),
        (
            "several.jsonl",  # the first field counts
            [
                {"trajectory": "a", "task": "b", "task_id": "c", "label": "yes"},
                {"task": "b", "task_id": "c", "label": "yes"},
                {"task_id": "c", "human_judgement_outcome": 0, "annotator": "x", **AGENT_REWARD},
            ],
            [Label("a", True), Label("b", True), Label("c", True, "y")],
        ),
        (
            "pandas.jsonl",
            [{"task": "a", "label": label, "who": float("nan"), "policy": float("nan")} for label in (1.0, 0.0)],
            [Label("a", True), Label("a", False)],  # of two people
        ),
    ],
)
def test_the_formats_of_labels(tmp_path, name, records, labels):
    file = tmp_path / name
    if name.endswith(".csv"):
        with file.open("w") as stream:
            writer = csv.DictWriter(stream, records[0])
            writer.writeheader()
            writer.writerows(records)
    else:
        file.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    assert read_labels(file) == labels


def test_labels_by_task_and_under_other_names(tmp_path):
    file = tmp_path / "sheet.csv"
    file.write_text("\ufeffNo;Urteil;Wer;trajectory\n7;yes;anna;\n7;;ben;\n;;;\n")
    labels = read_labels(file, {"task": "No", "label": "Urteil", "who": "Wer"})
    assert labels == [Label("7", True, "anna"), Label("7", None, "ben")]


@pytest.mark.parametrize(
    ("names", "success"),
    [
        ({}, False),  # the annotations have a blank before one of the persons
        ({"label": "trajectory_looping"}, True),
        ({"task": "task_id", "policy": "model_name", "label": "trajectory_looping", "who": "annotator_name"}, True),
        ({"label": "trajectory_optimality"}, None),
    ],
)
def test_fields_that_are_named_count_before_those_of_a_data_set(tmp_path, names, success):
    file = tmp_path / "annotations.csv"
    columns = ("annotator_name", "task_id", "model_name", "trajectory_success", "trajectory_looping")
    file.write_text(f"{','.join(columns)},trajectory_optimality\n H,webarena.7,m,Unsuccessful,Yes,\n")
    assert read_labels(file, names) == [Label("webarena.7", success, "H", "", "m")]


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_two_annotators_of_cuaverifierbench_by_hand(tmp_path, suffix):
    fields = {
        "t0": (1, 1),
        "t1": (1, 1),
        "t2": (0, 0),
        "t3": (1, 0),
        "t4": (0, 0),
        "t5": (1, 1),
        "t6": (0,),
        "t7": (1, 1),
    }
    fields |= {"t99": (1,)}  # no episode
    given = [("t0", "Judge1", 0)]  # labelled again below
    given += [(task, f"Judge{number}", answer) for task, of in fields.items() for number, answer in enumerate(of, 1)]
    records = [
        {"task_id": a, "annotator": b, "human_judgement_outcome": c, "human_process_score": 0.5} for a, b, c in given
    ]
    file = tmp_path / f"annotations.{suffix}"
    if suffix == "parquet":
        parquet.write_table(pyarrow.Table.from_pylist(records), file)
    elif suffix == "csv":
        lines = [",".join(map(str, record.values())) for record in ({name: name for name in records[0]}, *records)]
        file.write_text("\ufeff" + "\r\n".join(lines))
    else:
        file.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    verdicts = (True, True, True, True, False, False, False, None)
    agreement = measure_agreement(read_labels(file), [judged(n, verdict) for n, verdict in enumerate(verdicts)], None)
    counts = {"labels": 16, "episodes": 7, "tied": 1, "unsure": 0, "unmatched": 1, "ambiguous": 0}
    assert {name: agreement[name] for name in counts} == counts
    row = next(row for row in agreement["rows"] if row["source"] == "judge")
    assert [row[cell] for cell in ("tp", "fp", "fn", "tn", "no_verdict")] == [2, 1, 1, 2, 1]
    assert (row["precision"], row["recall"], row["false_positive_rate"]) == (0.6667, 0.6667, 0.3333)
    # (2/3 + z^2/6 -+ z sqrt(2/27 + z^2/36)) / (1 + z^2/3) with z = 1.96
    assert row["precision_interval"] == row["recall_interval"] == [0.2077, 0.9385]
    assert row["false_positive_interval"] == [0.0615, 0.7923]
    # agreement 4/6, by chance 1/2; 1.96 * sqrt(2/54) / 0.5 = 0.7544
    assert (row["kappa"], row["kappa_interval"]) == (0.3333, [-0.4211, 1.0])
    # 4 pairs of yes, 2 of no, 1 of both: (6/7 - 26/49) / (1 - 26/49)
    assert agreement["people"] == {"pairs": 7, "kappa": 0.6957}


def test_without_one_class_of_labels_its_rates_are_null():
    episodes = [judged(number, number > 0) for number in range(3)]
    row = rows(measure_agreement([label(one, True) for one in episodes], episodes, None))
    assert (row["precision"], row["recall"], row["false_positive_rate"], row["kappa"]) == (1.0, 0.6667, None, 0.0)
    row = rows(measure_agreement([label(one, False) for one in episodes[:1]], episodes, None))
    assert (row["precision"], row["recall"], row["false_positive_rate"], row["kappa"]) == (None, None, 0.0, None)


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        '{"trajectory": {"a": 1}, "label": "yes"}',
        '{"trajectory": "", "label": "yes"}',
        '{"trajectory": "a", "label": "maybe not"}',
        '{"trajectory": "a"}',
        "no JSON",
    ],
)
def test_another_file_is_refused_by_its_line(tmp_path, line):
    file = tmp_path / "labels.jsonl"
    file.write_text(f'{{"trajectory": "a", "label": "yes"}}\n{line}\n')
    with pytest.raises(UsageError, match=r"labels\.jsonl:2"):
        read_labels(file)


@pytest.mark.parametrize("columns", ["task_name,level", "task_id,benchmark,split", "id,ques,web"])
def test_a_table_without_labels_is_refused_by_the_field_that_is_needed(tmp_path, columns):
    (tmp_path / "tasks.csv").write_text(f"{columns}\n{columns}\n")
    with pytest.raises(UsageError, match="the field 'label' is missing"):
        read_labels(tmp_path / "tasks.csv")


def test_the_command_measures_what_is_stored(tmp_path):
    run = new_run(tmp_path / "run")
    for number, verdict in enumerate((True, True, False)):
        result, judgements = judged(number, verdict, split=Split.TEST)
        append(run, result)
        append_judgement(run, Split.TEST, 0, judgements[0])
    (tmp_path / "labels.jsonl").write_text(
        "".join(json.dumps({"trajectory": f"test-0000-{n:05d}", "label": n == 0, "who": "a"}) + "\n" for n in range(3))
    )
    outcome = webgym("judge", "run", "--against", "labels.jsonl", "--json", cwd=tmp_path)
    (row,) = json.loads(outcome.stdout)["rows"]
    assert [row[cell] for cell in ("tp", "fp", "fn", "tn")] == [1, 1, 0, 1]


def test_a_file_and_a_run_without_a_label_are_refused(tmp_path):
    (tmp_path / "labels.jsonl").write_text("\n")
    create_or_open(RunDir(tmp_path / "run"), load())
    for path in (tmp_path / "labels.jsonl", tmp_path / "run"):
        with pytest.raises(UsageError, match="no label is there"):
            read_labels(path)


@pytest.mark.parametrize(
    ("benchmark", "name", "matched"),
    [("webarena", "webarena.7", 1), ("webarena", "7", 1), ("webarena", "webarena.8", 0), ("", "webarena.7", 0)],
)
def test_the_benchmarks_prefix_of_a_tasks_name_is_left_out(benchmark, name, matched):
    episode = judged(7, True, task=Task(id="7", environment="webarena"))
    agreement = measure_agreement([Label(name, True, "anna", benchmark)], [episode], None)
    assert (agreement["episodes"], agreement["unmatched"]) == (matched, 1 - matched)


def test_the_printed_columns_have_the_interval_of_recall_and_how_people_agree(tmp_path):
    create_or_open(RunDir(tmp_path / "a"), load())
    episode, judgements = judged(0, True)
    append(RunDir(tmp_path / "a"), episode)
    append_judgement(RunDir(tmp_path / "a"), Split.TRAIN, 0, judgements[0])
    lines = (json.dumps({"trajectory": episode.id, "label": "yes", "who": who}) for who in ("anna", "ben"))
    (tmp_path / "labels.jsonl").write_text("\n".join(lines))
    outcome = webgym("judge", "a", "--against", "labels.jsonl", "--precision", "0.9", cwd=tmp_path)
    shown = outcome.stdout
    assert "--precision: these episodes have no shares of votes" in outcome.stderr
    assert shown.count("[0.2065, 1.0]") == 2  # Wilson, 1 of 1: of precision and of recall
    assert shown.endswith("# people\n1\t\n"), "one pair, and no kappa of one"
