"""The expert for questions: what it reads of a record, how it spreads its calls over the turns, what it answers."""

import pytest

from tests.tables import each
from webgym_cli.config.agent import AgentSettings
from webgym_cli.config.load import load
from webgym_cli.config.model import Settings
from webgym_cli.environments.tools import environment
from webgym_cli.environments.tools.environment import calculations, next_action, require_workings
from webgym_cli.errors import UsageError
from webgym_cli.records.action import ActionName
from webgym_cli.tasks.format import read_task
from webgym_cli.tools import tool
from webgym_cli.tools.arithmetic import evaluate, format_number
from webgym_cli.tools.builtin import answer, calculator

GSM8K = {
    "id": "clips",
    "question": "Natalia sold 48 clips in April, and half as many in May. How many altogether?",
    "answer": "In May she sold 48/2 = <<48/2=24>>24 clips.\nTogether 48+24 = <<48+24=72>>72 clips.\n#### 72",
}
LIMITS = AgentSettings(max_turns=3)


def task(**fields):
    return read_task({"id": "t", "question": "Q", **fields})


def played(question, limits=LIMITS):
    """Return the expressions of each turn, and the answer, of an episode with a calculator that works."""
    turns, results = [], []
    for _ in range(limits.max_turns):
        action = next_action(question, results, limits)
        if action.name is ActionName.ANSWER:
            return turns, action.text
        turns.append([call.arguments["expression"] for call in action.calls])
        results += [format_number(evaluate(expression)) for expression in turns[-1]]
    raise AssertionError("no turn was left for the answer")


@each(
    ("question", "turns", "answer"),
    [
        (read_task(GSM8K), [["48/2"], ["48+24"]], "72"),
        # annotations that are no arithmetic are passed over
        (
            task(answer="Half is <<2x=10>>, so <<10/2=5>>5, doubled <<5 * $2 = 10>>10. #### $10.00"),
            [["10/2"], ["5 * $2"]],
            "10",
        ),
        *((task(answer="42", expression=one), [["6*7"]], "42") for one in ("6*7", ["6*7"])),
        (task(answer="42", expression=["2*3", "6*7"]), [["2*3"], ["6*7"]], "42"),
    ],
)
def test_annotations_or_a_field_are_calculated_one_a_turn(question, turns, answer):
    assert played(question) == (turns, f"The answer is \\boxed{{{answer}}}.")


def test_a_field_goes_before_annotations():
    assert calculations(task(**{**GSM8K, "expression": "48*1.5"})) == ("48*1.5",)
    assert calculations(task(**{**GSM8K, "expression": None})) == ("48/2", "48+24")


@pytest.mark.parametrize(
    ("count", "turns", "calls", "sizes"),
    [
        (2, 3, 16, [1, 1]),
        (1, 5, 16, [1]),
        (5, 3, 16, [1, 4]),
        (5, 3, 3, [2, 3]),
        (6, 3, 3, [3, 3]),
        (5, 4, 2, [1, 2, 2]),
        (4, 2, 16, [4]),
    ],
)
def test_more_calculations_than_turns_are_made_several_in_the_last_ones(count, turns, calls, sizes, monkeypatch):
    monkeypatch.setattr(environment, "MAX_TOOL_CALLS", calls)
    expressions = [f"{number}+1" for number in range(count)]
    limits = AgentSettings(max_turns=turns)
    result, output = played(task(answer=count, expression=expressions), limits)
    assert [len(turn) for turn in result] == sizes
    assert [expression for turn in result for expression in turn] == expressions
    assert output == f"The answer is \\boxed{{{count}}}."


@each(
    ("answer", "result", "stated"),
    [
        ("1,000", "1000", "1000"),
        ("50%", "0.5", "0.5"),
        (3.0, "3", "3"),
        ("3.33", "3.333333333", "3.33"),
        ("72", "Error: stopped after 5 s", "72"),
        ("\\frac{1}{3}", "0.5", "\\frac{1}{3}"),
        (["7", "seven"], "8", "7"),
        ("So it is. #### 1,250", "7", "1,250"),
        (" Paris ", "1", "Paris"),
    ],
)
def test_the_last_result_is_stated_where_it_is_the_answer(answer, result, stated):
    action = next_action(task(answer=answer, expression="1"), [result], LIMITS)
    assert (action.name, action.text) == (ActionName.ANSWER, f"The answer is \\boxed{{{stated}}}.")


def refused(fields, limits=LIMITS, tools=(calculator, answer)):
    settings = Settings().model_copy(update={"agent": limits})
    with pytest.MonkeyPatch.context() as patch, pytest.raises(UsageError) as caught:
        patch.setattr(environment, "find_tools", lambda names: tools)
        require_workings(settings, [read_task(GSM8K), *(task(**each) for each in fields)])
    return str(caught.value), caught.value.hint


@each(
    ("fields", "reason"),
    [
        ({"answer": "72"}, r"its record has no field expression, and no answer with annotated calculations"),
        ({"answer": "It is <<2*3=6>>6."}, "and #### at its end"),
        *((fields, "no field expression") for fields in ({"answer": "<<x=5>> #### 5"}, {})),
        *(({"expression": "1+1", **answer}, "no answer that is") for answer in ({}, {"answer": []}, {"answer": True})),
        *(({"expression": expression, "answer": "2"}, "expression: a text") for expression in ([], 2, ["1", 2])),
        ({"expression": ["1", "1/0"], "answer": "2"}, "expression '1/0' has no value: division by zero"),
        ({"expression": ["1+1"] * 33, "answer": "2"}, "its calculations (33) and the answer need more than"),
    ],
)
def test_a_task_that_it_cannot_solve_is_named_with_the_reason(fields, reason):
    error, hint = refused([fields])
    assert error.startswith("task t: ") and reason in error
    assert "\n" not in error + hint and "--policy vllm" in hint


def test_the_turns_that_are_needed_and_how_many_tasks_have_no_expert_are_told():
    assert refused([{"expression": ["1"] * 33, "answer": 1}])[1].startswith("-s agent.max_turns=4, or ")
    assert "more than agent.max_turns=1 turns" in refused([], AgentSettings(max_turns=1))[0]
    error, _ = refused([{"id": "first"}, {"id": "second", "answer": "2"}, {"id": "first"}])
    assert error.startswith("task first: ") and error.endswith(" (2 such of 3)")


@tool(name="calculator")
def other(sum: str) -> str:
    """Calculate in another way."""
    return sum


def test_without_the_calculator_there_is_no_expert():
    for tools in ((), (answer,), (other,)):
        error, hint = refused([], tools=tools)
        assert error.startswith("task clips: ") and "calculator" in error
        assert hint.startswith("-s 'agent.tools=[\"calculator\"]'")
    settings = load(overrides=['agent.tools=["answer", "calculator"]'])
    require_workings(settings, [read_task(GSM8K), task(answer="2", expression="1+1")])
