from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from tests.tables import each
from webgym_cli.errors import UsageError
from webgym_cli.records.task import Task
from webgym_cli.scoring import reward
from webgym_cli.scoring.define import RewardResult, parse_reward
from webgym_cli.scoring.registry import REWARDS, require_fields, reward_fields


@reward
def graded(final_response, answer, bonus=0, *, trajectory=()):
    """Grade it.

    At length.
    """
    return final_response == answer


@reward(name="all")
async def everything(**fields):
    return fields


def test_arguments_are_matched_by_name():
    assert (graded.name, graded.description) == ("graded", "Grade it.")
    assert graded.required == ("final_response", "answer")
    assert (graded.optional, graded.takes_all) == (("bonus", "trajectory"), False)
    offered = {"final_response": "a", "answer": "b", "other": 1, "bonus": 2}
    assert graded.bound(offered) == {"final_response": "a", "answer": "b", "bonus": 2}
    assert everything.bound(offered) == offered
    assert graded("x", "x") is True


def test_what_a_record_lacks_is_known_before_anything_runs():
    assert graded.missing({"answer"}) == ()
    assert graded.missing({"question", "Answer"}) == ("answer",)
    assert everything.missing(()) == ()
    tasks = [Task(id="a", extra={"answer": 1}), Task(id="b", extra={"solution": 1})]
    with pytest.raises(UsageError, match="graded needs answer, which the task b does not have") as caught:
        require_fields(graded, tasks)
    assert "solution" in caught.value.hint
    require_fields(graded, tasks[:1])


def test_the_reference_answer_is_the_answer_unless_the_record_has_one():
    own = {"answer": 7, "unit": "m"}
    assert reward_fields(Task(id="a", reference_answer="7")) == {"answer": "7"}
    assert reward_fields(Task(id="a", reference_answer="7", extra=own)) == own


def test_arguments_without_a_name_are_refused():
    for given in (lambda *rest: 0, eval("lambda x, /: 0")):
        with pytest.raises(UsageError, match="has no name that a field could have"):
            reward(given)


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        (1, RewardResult(1.0, {})),
        (True, RewardResult(1.0, {})),
        (0.25, RewardResult(0.25, {})),
        ({"reward": 2, "acc": 1.0, "why": "x"}, RewardResult(2.0, {"acc": 1.0, "why": "x"})),
    ],
)
def test_numbers_and_mappings_are_verdicts(value, verdict):
    assert parse_reward(value) == verdict


class Pair:
    """Converts as a tensor of two elements does."""

    def __float__(self):
        raise RuntimeError


def test_numbers_of_other_types_are_numbers_too():
    values = {"a": Decimal("0.5"), "b": np.bool_(True), "c": np.array(3), "reward": Fraction(1, 2), "text": "7"}
    texts = {"d": np.str_("red"), "e": np.bytes_(b"7"), "f": np.array("red"), "g": np.complex64(1 + 2j), "h": Pair()}
    verdict = parse_reward(values | texts | {"many": np.array([1, 2])})
    assert (verdict.reward, verdict.numbers()) == (0.5, {"a": 0.5, "b": 1.0, "c": 3.0})


NO_REWARDS = [
    *(None, "1", b"1", float("nan"), float("inf"), {}, {"acc": 1}, {"reward": None}, [1], {"reward": float("nan")}),
    *({"reward": 1, "acc": value} for value in (float("nan"), float("-inf"), 10**400, Decimal("NaN"), Decimal("sNaN"))),
    *(10**400, np.array([1.0]), np.str_("1"), np.complex128(1), Pair()),
]


@each("value", NO_REWARDS)
def test_anything_else_is_none(value):
    with pytest.raises(ValueError, match=r"reward|not finite"):
        parse_reward(value)


def test_every_built_in_reward_can_be_loaded():
    assert [registered_item.problem for registered_item in REWARDS.known() if registered_item.item is None] == []
    with pytest.raises(UsageError, match=r"agent\.reward_name: .*'math'"):
        REWARDS.find("math")
    with pytest.raises(UsageError, match="is no reward, it is a Tool"):
        REWARDS.find("webgym_cli.tools.builtin:answer")
