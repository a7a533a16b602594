import json
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.records.builders import CLICK, CRASHED, SOLVED, UNSOLVED, shot, step, trajectory
from tests.tables import each
from webgym_cli.records.action import InteractionMode
from webgym_cli.records.failure import FailureKind, Stop
from webgym_cli.records.sampling import Sampling
from webgym_cli.records.task import Split, Task
from webgym_cli.records.trajectory import (
    Element,
    Generation,
    Observation,
    Outcome,
    ParseErrorKind,
    PromptSpec,
    Score,
    Step,
    Trajectory,
)

ODD = ["", "\n", "\r\n", "\x00", "\u2028\u2029\x85", '"\\', "😀é网", "<|im_end|>", "\x7f", "a" * 5000, "}\n{"]
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.sampled_from(ODD)
number = st.floats(allow_nan=False, width=64)
finite = st.floats(allow_nan=False, allow_infinity=False)
jsons = st.recursive(
    st.none() | st.booleans() | st.integers() | text, lambda inner: st.lists(inner) | st.dictionaries(text, inner)
)
observations = st.builds(
    Observation,
    url=text,
    title=text,
    screenshot=st.integers(0, 9).map(shot),
    elements=st.lists(
        st.builds(
            Element, id=st.integers(0, 99), role=text, name=text, value=text, box=st.tuples(*[st.floats(-9, 9)] * 4)
        ),
        max_size=2,
    ).map(tuple),
)
generations = st.builds(
    Generation,
    prompt_tokens=st.none() | st.integers(0),
    token_ids=st.none() | st.lists(st.integers(0), min_size=1, max_size=3).map(tuple),
    logprobs=st.none() | st.lists(number, min_size=1, max_size=3).map(tuple),
    finish_reason=st.none() | text,
)
done = {"observation": observations, "response": text, "prompt_digest": text, "generation": generations}
steps = st.builds(Step, index=st.integers(0, 50), action=st.just(CLICK), action_error=st.none() | text, **done)
mistakes = st.builds(Step, index=st.integers(0, 50), parse_error=st.sampled_from(ParseErrorKind), **done)
ends = st.builds(
    Outcome,
    reward=st.none() | st.floats(0, 1),
    stop=st.sampled_from(Stop),
    answer=st.none() | text,
    scores=st.lists(st.builds(Score, source=st.just("environment"), value=finite, detail=text), max_size=2).map(tuple),
)
failures = st.builds(Outcome, failure=st.sampled_from(FailureKind), failure_detail=text)
trajectories = st.builds(
    Trajectory,
    id=text,
    episode=text,
    split=st.sampled_from(Split),
    iteration=st.integers(0, 9999),
    attempt=st.integers(0, 9),
    task=st.builds(
        Task,
        id=text.filter(bool),
        instruction=text,
        rubric=st.lists(text, max_size=2).map(tuple),
        reference_answer=st.none() | text,
        extra=st.dictionaries(text, jsons, max_size=3),
    ),
    instruction=text,
    seed=st.integers(0, 2**31),
    policy=text,
    sampling=st.none()
    | st.builds(
        Sampling,
        temperature=st.floats(0, 9),
        top_k=st.integers(-1, 99),
        top_p=st.floats(0, 1, exclude_min=True),
        min_p=st.floats(0, 1),
        logprobs=st.sampled_from(["processed", "raw", None]),
    ),
    prompt=st.builds(PromptSpec, interaction_mode=st.sampled_from(InteractionMode), history_window=st.integers(0, 9)),
    steps=st.lists(steps | mistakes, max_size=2).map(tuple),
    outcome=ends | failures,
    started_at=st.datetimes(datetime(1900, 1, 1), timezones=st.just(UTC)).map(datetime.isoformat),
    seconds=st.floats(0, 1e6),
)


@settings(max_examples=40)
@given(original=trajectories)
def test_a_trajectory_survives_its_line(original):
    line = original.to_line()
    assert "\n" not in line
    assert Trajectory.model_validate_json(line) == original


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_scores_are_finite(number):
    for make in (
        lambda: Score(source="environment", value=number),
        lambda: Score(source="judge", value=1.0, extras={"acc": number}),
        lambda: Outcome(reward=number),
        lambda: Outcome(reward=1.0, success_threshold=number),
    ):
        with pytest.raises(ValidationError, match="finite"):
            make()


def test_the_line_is_strict_json_even_with_infinite_numbers():
    episode = trajectory(steps=(step(generation=Generation(token_ids=(1,), logprobs=(float("-inf"),))),))
    line = episode.to_line()
    json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert Trajectory.model_validate_json(line) == episode


@pytest.mark.parametrize("other", ['"schema":2', '"schema":1,"new":0'], ids=["schema", "field"])
def test_the_line_says_its_schema_and_what_is_unknown_is_refused_not_lost(other):
    line = trajectory().to_line()
    assert json.loads(line)["schema"] == 1
    with pytest.raises(ValidationError):
        Trajectory.model_validate_json(line.replace('"schema":1', other))


def test_a_line_of_before_is_of_unknown_sampling():
    line = json.loads(trajectory().to_line())
    del line["sampling"]
    assert Trajectory.model_validate_json(json.dumps(line)).sampling is None


@each("kind", FailureKind)
def test_a_failure_is_neither_success_nor_the_lack_of_it(kind):
    assert Outcome(failure=kind).success is None


@pytest.mark.parametrize("kind", FailureKind)
@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_a_failure_with_a_reward_is_refused(kind, reward):
    with pytest.raises(ValidationError, match="failure"):
        Outcome(failure=kind, reward=reward)


def test_success_is_the_whole_reward():
    assert SOLVED.success is True
    assert UNSOLVED.success is False
    assert Outcome(reward=0.999, stop=Stop.ANSWERED).success is False
    assert Outcome(stop=Stop.ANSWERED).success is None
    assert CRASHED.success is None


def test_what_is_not_the_fault_of_an_episode_is_no_attempt_of_it():
    ours = {kind.value for kind in FailureKind if not kind.counts_as_attempt}
    assert ours == {
        *("browser_crashed", "policy_unavailable", "environment_unavailable", "internal_error"),
        "network_unavailable",
        *("judge_failed", "cancelled"),
        *("address_refused", "authentication_required"),  # wrong settings
    }
