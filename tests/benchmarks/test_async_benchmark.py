"""The benchmark of the asynchronous order measures the real loops: the same episodes are trained on in both."""

import pytest

from benchmarks.harness import program

JOB = {
    "slots": 4, "batch": 4, "updates": 2, "training": 1.0, "factor": 0.01, "threshold": 1.0, "stale": "wait",
    "bound": 1, "seed": 7,
}  # fmt: skip


@pytest.mark.parametrize(
    ("mode", "sliced", "staleness"), [("sync", False, 0), ("async", True, 1)], ids=["in turns", "time-sliced"]
)
def test_an_arm_trains_on_as_many_episodes_as_were_asked_for(tiny_model_dir, mode, sliced, staleness):
    result = program("async_job", JOB | {"model": str(tiny_model_dir), "mode": mode, "sliced": sliced})
    assert result["trained"] == 8
    assert result["max_staleness"] <= staleness and result["makespan"] > 0.02
