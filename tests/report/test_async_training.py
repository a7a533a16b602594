"""What a report tells of asynchronous training."""

from tests.inspect.buffers import fill_run
from tests.report.runs import at, did, facts, note
from webgym_cli.records.batch import DroppedGroup, TrainingBatch
from webgym_cli.records.task import Split
from webgym_cli.report.page import render_report
from webgym_cli.report.training_metrics import build_async_section
from webgym_cli.store.metrics import append_batch


def batch(parent: int, mode: str = "async", dropped=()) -> TrainingBatch:
    return TrainingBatch(
        parent=parent, policy="base", mode=mode, iterations=(parent,), groups=(), dropped=dropped, episodes=4,
        staleness={0: 30, 1: 10}, as_of={}, plan_digest="", config_digest="", created_at=at(parent),
    )  # fmt: skip


def test_staleness_waits_and_drops_are_told(tmp_path):
    run = fill_run(tmp_path / "run", did(0, "shop", solved=True, split=Split.TRAIN))
    stale = DroppedGroup(id="a", reason="stale", trajectories=("a", "b"), rewards=(0.0, None))
    append_batch(run, batch(0, dropped=(stale,)))
    staleness = {"mean": 0.25, "p95": 1, "max": 1, "tokens": {"0": 30, "1": 10}}
    counts = {"episodes": 4, "groups": 2, "ready": 1, "open": 0, "staleness": staleness}
    waits = {"trainer_wait_seconds": 7.0, "admission_wait_seconds": 0.0, "held_seconds": 2.5}
    note(run, {"event": "batch", "iteration": 0, "at": at(50), **counts, **waits})
    result = facts(run)
    assert result["asynchronous"]["dropped"] == [{"reason": "stale", "count": 2, "mean_reward": 0.0}]
    section = build_async_section(result["asynchronous"])
    titles = ["Staleness of the trained tokens", "Waits before each batch"]
    assert [figure.title for figure in section.figures] == [*titles, "Episodes that were not trained on"]
    assert "trainer waited for episodes" in render_report(result).decode()


def test_training_in_turns_has_no_such_section(tmp_path):
    run = fill_run(tmp_path / "run", did(0, "shop", solved=True, split=Split.TRAIN))
    append_batch(run, batch(0, mode="sync"))
    assert build_async_section(facts(run)["asynchronous"]).figures == ()
