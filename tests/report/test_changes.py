"""What was gained and lost between policy versions, by task family."""

from tests.inspect.buffers import made
from tests.records.made import step
from tests.report.runs import did, facts
from webgym_cli.records.task import Split
from webgym_cli.report.changes import EXAMPLES, FAMILIES, build_change_section, name_family
from webgym_cli.report.page import render_report
from webgym_cli.store.index.paired import PairedCase


def solved(iteration, **by_task):
    """Return an evaluation: whether each seed of each task was solved."""
    names = [(name, seed, to_be) for name, found in by_task.items() for seed, to_be in enumerate(found)]
    return [did(seed, name, solved=bool(to_be), iteration=iteration) for name, seed, to_be in names]


def case(task, site="s"):
    return PairedCase(task_key=task, seed=0, task=task, site=site, id=task, rate=1.0, steps=1.0)


def test_the_newest_version_against_the_one_before_and_the_first(tmp_path):
    first, second = solved(0, tab=[0, 0, 1, 0], link=[1, 1]), solved(1, tab=[0, 1, 1, 0], link=[1, 1])
    run = made(tmp_path / "run", *first, *second, *solved(3, tab=[1, 1, 0, 0], link=[1, 0]))
    before, start = facts(run)["changes"]
    assert [(of["before"], of["after"], of["pairs"], of["gained"], of["lost"]) for of in (before, start)] == [
        (1, 3, 6, 1, 2),
        (0, 3, 6, 2, 2),
    ]
    assert start["families"] == [
        {"family": "tab", "pairs": 4, "before": 1, "after": 2, "gained": 2, "lost": 1},
        {"family": "link", "pairs": 2, "before": 2, "after": 1, "gained": 0, "lost": 1},
    ]
    assert start["p_value"] == 1.0
    assert [(of["change"], of["family"]) for of in before["examples"]] == [
        ("gained", "tab"),
        ("lost", "link"),
        ("lost", "tab"),
    ]
    table, _, examples, _ = build_change_section([before, start]).figures
    assert table.title == "Version 1 to 3"
    assert ("link", "2", "100 %", "50 %", "-", "1") in table.table.rows
    assert examples.table.rows == tuple(
        (of["change"], of["family"], of["before"], of["after"]) for of in before["examples"]
    )


def test_a_single_evaluation_changes_nothing(tmp_path):
    run = made(tmp_path / "run", *solved(0, tab=[0, 1]))
    assert facts(run)["changes"] == []
    assert 'id="changes"' not in render_report(facts(run)).decode()


def test_many_tasks_are_families_by_name_and_then_by_site():
    few, numbered = [case(f"t-{n}") for n in range(FAMILIES)], [case(f"sums-{n:03d}") for n in range(FAMILIES + 1)]
    assert name_family(few)(few[3]) == "t-3"
    assert name_family(numbered)(numbered[3]) == "sums"
    apart = [case(f"task {n} x", site=f"site{n % 2}") for n in range(FAMILIES + 1)]
    assert name_family(apart)(apart[3]) == "site1"


def test_each_family_has_an_example_before_any_has_two(tmp_path):
    run = made(tmp_path / "run", *solved(0, a=[0] * 9, b=[0]), *solved(1, a=[1] * 9, b=[1]))
    (change,) = facts(run)["changes"]
    assert sorted(of["family"] for of in change["examples"]) == ["a"] * (EXAMPLES - 1) + ["b"]
    assert {of["family"] for of in change["examples"][:2]} == {"a", "b"}


def episode(number, *responses):
    steps = tuple(step(at, response=said) for at, said in enumerate(responses))
    made = did(number, f"task{number % 3}", solved=False, split=Split.TRAIN)
    return made.model_copy(update={"steps": steps})


def test_repeated_responses_are_said_in_words(tmp_path):
    stuck = made(tmp_path / "stuck", *(episode(n, *[f"click {n}"] * 6) for n in range(12)))
    (warning,) = facts(stuck)["warnings"]
    assert "100 % of the responses repeat that of the step before" in warning
    same = made(tmp_path / "same", *(episode(n, "click 1") for n in range(60)))
    (warning,) = facts(same)["warnings"]
    assert "over 3 tasks, are one and the same" in warning
    varied = made(tmp_path / "varied", *(episode(n, *(f"click {n} {at}" for at in range(6))) for n in range(12)))
    assert facts(varied)["warnings"] == []
