"""Warnings of a policy whose responses repeat."""

from tests.inspect.buffers import fill_run
from tests.records.builders import step
from tests.report.runs import did, facts
from webgym_cli.records.task import Split


def episode(number, *responses):
    steps = tuple(step(at, response=result) for at, result in enumerate(responses))
    trajectory = did(number, f"task{number % 3}", solved=False, split=Split.TRAIN)
    return trajectory.model_copy(update={"steps": steps})


def test_repeated_responses_are_said_in_words(tmp_path):
    stuck = fill_run(tmp_path / "stuck", *(episode(n, *[f"click {n}"] * 6) for n in range(12)))
    (warning,) = facts(stuck)["warnings"]
    assert "100 % of the responses repeat that of the step before" in warning
    same = fill_run(tmp_path / "same", *(episode(n, "click 1") for n in range(60)))
    (warning,) = facts(same)["warnings"]
    assert "over 3 tasks, are one and the same" in warning
    varied = fill_run(tmp_path / "varied", *(episode(n, *(f"click {n} {at}" for at in range(6))) for n in range(12)))
    assert facts(varied)["warnings"] == []
