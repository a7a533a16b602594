"""Records of evaluations side by side, by hand."""

import json

import pytest

from webgym_cli.compare.study import compare_records, find_record
from webgym_cli.compare.views import build_comparison_tables
from webgym_cli.errors import StoreError, UsageError
from webgym_cli.records.statistics import holm

S, U, B = "success", "unsolved", "site_blocked"
CONDITIONS = {
    "tasks": {"source": "a.jsonl", "digest": "d1", "seed": 0, "repeats": 3},
    "decoding": {"temperature": 1.0},
    "judge": {"protocol": "webgym", "digest": "j1"},
    "browser": {"access": "local"},
    "limits": {"max_steps": {"30": 10}},
    "scoring": {},
    "prompt": {},
    "policy": {"name": "p"},
    "versions": {"webgym": "1"},
}


def write(folder, name, results, **conditions):
    merged = {section: {**of, **conditions.get(section, {})} for section, of in CONDITIONS.items()}
    rate = {"rate": 0.5, "interval": [0, 1], "by_repeat": [0.5], "mean": 0.5, "standard_deviation": None}
    cases = [
        {"key": key, "seed": 0, "task": key, "site": "", "band": "easy", "results": of} for key, of in results.items()
    ]
    counts = {"episodes": 3, "valid": 3, "blocked": 0, "failed": 0, "overall": rate, "valid_only": rate}
    file = folder / f"{name}.json"
    file.write_text(json.dumps({"schema": 1, "conditions": merged, "tasks": cases, **counts}))
    return file


def test_tasks_are_paired_by_the_majority_of_their_repeats(tmp_path):
    one = write(tmp_path, "one", {"a": [U, U, S], "b": [S, S, U], "c": [U, U, U], "only": [S]})
    two = write(tmp_path, "two", {"a": [S, S, U], "b": [S, U, U], "c": [U, U, U]})
    (other,) = compare_records([one, two], across=False)["others"]
    assert other["overall"]["counts"] == {"gained": 1, "lost": 1, "kept": 0, "failed": 1}
    assert (other["overall"]["pairs"], other["overall"]["p_value"], other["overall"]["significant"]) == (3, 1.0, False)
    assert other["overall"]["tasks"] == {"gained": ["a"], "lost": ["b"]}


def test_blocked_episodes_count_overall_and_are_left_out_of_the_valid(tmp_path):
    one = write(tmp_path, "one", {"a": [S, B, B], "b": [B, B, B]})
    two = write(tmp_path, "two", {"a": [S, S, S], "b": [S, S, S]})
    (other,) = compare_records([one, two], across=False)["others"]
    assert (other["overall"]["counts"]["gained"], other["overall"]["difference"]) == (2, round((2 / 3 + 1) / 2, 4))
    assert (other["valid_only"]["pairs"], other["valid_only"]["counts"]["kept"]) == (1, 1)


def test_several_comparisons_are_adjusted_by_holm(tmp_path):
    first = write(tmp_path, "first", {f"t{n}": [U] for n in range(6)})
    six, five = ({f"t{n}": [S if n < count else U] for n in range(6)} for count in (6, 5))
    others = [write(tmp_path, "six", six), write(tmp_path, "five", five)]
    comparison = compare_records([first, *others], across=False)
    assert [one["overall"]["p_value"] for one in comparison["others"]] == [0.03125, 0.0625]
    assert [one["overall"]["p_holm"] for one in comparison["others"]] == [0.0625, 0.0625]
    assert not any(one["overall"]["significant"] for one in comparison["others"])
    tests = build_comparison_tables(comparison, tasks=True)[1]
    assert (len(tests.rows), tests.columns[-1]) == (4, "p (Holm)")


def test_three_records_with_blocked_and_failed_episodes_by_hand(tmp_path):
    f = "page_timeout"
    tables = {
        "one": {"a": [S] * 3, "b": [S, U, B], "c": [f, f, S], "d": [U] * 3, "e": [B] * 3, "f": [S, f, U]},
        "two": {"a": [U] * 3, "b": [S] * 3, "c": [S] * 3, "d": [S, S, U], "e": [S, B, B], "f": [S] * 3},
        "three": {"a": [S, S, U], "b": [S] * 3, "c": [U, S, S], "d": [S] * 3, "e": [S] * 3, "f": [B] * 3},
    }
    comparison = compare_records([write(tmp_path, *table) for table in tables.items()], across=False)
    columns = ("pairs", "difference", "p_value", "p_holm")
    measured = [
        (*one[rate]["counts"].values(), *(one[rate][column] for column in columns))
        for one in comparison["others"]
        for rate in ("overall", "valid_only")
    ]
    # gained, lost, kept, failed; p of 1 of 5 and of 0 of 4 changes; Holm: twice the smaller one
    assert measured == [
        (4, 1, 0, 1, 6, 0.3333, 0.375, 0.375),
        (1, 1, 3, 0, 5, 0.1333, 1.0, 1.0),
        (4, 0, 1, 1, 6, 0.3889, 0.125, 0.25),
        (1, 0, 3, 0, 4, 0.2083, 1.0, 1.0),
    ]


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"judge": {"protocol": "webjudge"}}, "judge.protocol"),
        ({"judge": {"digest": "j2"}}, "judge.digest"),
        ({"tasks": {"digest": "d2"}}, "tasks.digest"),
        ({"tasks": {"seed": 1}}, "tasks.seed"),
        ({"tasks": {"repeats": 1}}, "tasks.repeats"),
        ({"tasks": {"episodes": 4}}, "tasks.episodes"),
        ({"decoding": {"temperature": 0.0}}, "decoding.temperature"),
        ({"browser": {"access": "cdp"}}, "browser.access"),
        ({"limits": {"max_steps": {"15": 10}}}, "limits.max_steps"),
    ],
)
def test_other_conditions_are_refused_by_name_unless_asked_for(tmp_path, changed, named):
    one, two = write(tmp_path, "one", {"a": [S]}), write(tmp_path, "two", {"a": [U]}, **changed)
    with pytest.raises(UsageError, match=named):
        compare_records([one, two], across=False)
    (other,) = compare_records([one, two], across=True)["others"]
    assert any(line.startswith(named) for line in other["different"])


def test_two_known_checks_that_differ_are_refused(tmp_path):
    one, two = (write(tmp_path, d, {"a": [S]}, scoring={"checks": {"mine": d}}) for d in ("d1", "d2"))
    with pytest.raises(UsageError, match=r"scoring\.checks\.mine: 'd1', not 'd2'"):
        compare_records([one, two], across=False)


@pytest.mark.parametrize("added", [{"checks": {"webarena-verified": "d1"}}, {"reward_digest": "d1"}])
def test_a_record_with_a_prompt_digest_has_all_its_checks(tmp_path, added):
    known = {"prompt": {"digest": "p"}}
    one, two = write(tmp_path, "one", {"a": [S]}, **known), write(tmp_path, "two", {"a": [U]}, scoring=added, **known)
    for sides in ([one, two], [two, one]):
        with pytest.raises(UsageError, match=r"scoring\.(checks\.webarena-verified|reward_digest)"):
            compare_records(sides, across=False)


@pytest.mark.parametrize(
    "changed",
    [
        {"tasks": {"source": "b.jsonl"}},
        {"policy": {"name": "q"}},
        {"versions": {"x": "2"}},
        {"scoring": {"checks": {"mine": "d1"}}},
        {"prompt": {"digest": "d1"}},
        {"tasks": {"edition": "WebVoyager, 643 tasks"}},
    ],
)
def test_what_is_compared_may_differ(tmp_path, changed):
    one, two = write(tmp_path, "one", {"a": [S]}), write(tmp_path, "two", {"a": [U]}, **changed)
    (other,) = compare_records([one, two], across=False)["others"]
    assert len(other["different"]) >= 1


def test_no_common_task_is_no_comparison(tmp_path):
    one, two = write(tmp_path, "one", {"a": [S]}), write(tmp_path, "two", {"b": [U]})
    with pytest.raises(UsageError, match="in common"):
        compare_records([one, two], across=True)


def test_a_folder_stands_for_its_only_record(tmp_path):
    assert find_record(tmp_path) is None
    (tmp_path / "conditions.json").write_text("{}")
    with pytest.raises(UsageError, match="none"):
        find_record(tmp_path)
    one = write(tmp_path, "evaluation-1", {})
    assert find_record(tmp_path) == one
    write(tmp_path, "evaluation-2", {})
    with pytest.raises(UsageError, match="evaluation-2"):
        find_record(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        *({name: None} for name in ("conditions", "tasks", "overall", "valid_only", "episodes", "valid", "blocked")),
        {"schema": None},
        {"conditions": {}},
        {"overall": {}},
        {"overall": {"rate": 7}},
        {"overall": {"rate": float("nan")}},
        {"tasks": [{}]},
        {"tasks": [{"key": "a", "seed": 0, "task": "a", "site": "", "results": []}]},
        {"tasks": [{"key": "a", "seed": 0, "task": "a", "site": "", "results": [S]}] * 2},
    ],
)
def test_a_record_that_was_edited_is_refused_by_name(tmp_path, change):
    one, two = (write(tmp_path, name, {"a": [S]}) for name in ("one", "two"))
    two.write_text(json.dumps(json.loads(two.read_text()) | change))
    for sides in ([one, two], [two, one]):
        with pytest.raises(StoreError, match=r"two\.json: no record"):
            compare_records(sides, across=True)
