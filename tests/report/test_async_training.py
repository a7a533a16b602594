"""What a report tells of asynchronous training."""

from __future__ import annotations

from tests.inspect.buffers import made
from tests.report.runs import at, did, facts, note
from webgym_cli.records.batch import DroppedGroup, TrainingBatch
from webgym_cli.records.task import Split
from webgym_cli.report.async_training import build_async_section
from webgym_cli.report.page import render_report
from webgym_cli.store.batches import append_batch


def batch(parent: int, mode: str = "async", dropped=()) -> TrainingBatch:
    return TrainingBatch(
        parent=parent, policy="base", mode=mode, iterations=(parent,), groups=(), dropped=dropped, episodes=4,
        staleness={0: 30, 1: 10}, as_of={}, plan_digest="", config_digest="", created_at=at(parent),
    )  # fmt: skip


def test_staleness_waits_drops_and_the_idle_halves_are_told(tmp_path):
    spans = {0: (10, 20), 1: (15, 30), 2: (50, 10)}  # start and seconds: at work from 10 to 45 and from 50 to 60
    episodes = (
        did(n, "shop", solved=True, split=Split.TRAIN, started_at=at(start), seconds=seconds)
        for n, (start, seconds) in spans.items()
    )
    run = made(tmp_path / "run", *episodes)
    stale = DroppedGroup(id="a", reason="stale", trajectories=("a", "b"), rewards=(0.0, None))
    append_batch(run, batch(0, dropped=(stale,)))
    staleness = {"mean": 0.25, "p95": 1, "max": 1, "tokens": {"0": 30, "1": 10}}
    counts = {"episodes": 4, "groups": 2, "ready": 1, "open": 0, "staleness": staleness}
    waits = {"trainer_wait_seconds": 7.0, "admission_wait_seconds": 0.0, "held_seconds": 2.5}
    note(run, {"event": "batch", "iteration": 0, "at": at(50), **counts, **waits})
    note(run, {"event": "swap", "seconds": 4.0, "at": at(24)})  # from 20 to 24
    note(run, {"event": "sleep", "seconds": 1.0, "at": at(40)}, {"event": "wake", "seconds": 2.0, "at": at(52)})
    note(
        run,
        {
            "event": "train",
            "version": 1,
            "name": "m",
            "parent": "base",
            "iteration": 0,
            "steps": 1,
            "seconds": 40.0,
            "created_at": at(90),
            "at": at(90),
        },
    )  # fmt: skip  from 50 to 90
    told = facts(run)
    assert told["asynchronous"]["dropped"] == [{"reason": "stale", "count": 2, "mean_reward": 0.0}]
    # The whole is from 10 to 90. The server neither swaps its weights nor sleeps: 10-20, 24-39 and 52-60.
    assert told["asynchronous"]["lanes"] == {
        "server": {"at_work": 33.0, "idle": 47.0, "idle_share": 0.5875, "spans": [[0, 10], [14, 29], [42, 50]]},
        "trainer": {"at_work": 40.0, "idle": 40.0, "idle_share": 0.5, "spans": [[40, 80]]},
    }
    section = build_async_section(told["asynchronous"])
    titles = ["Server and trainer", "Staleness of the trained tokens", "Waits before each batch"]
    assert [figure.title for figure in section.figures] == [*titles, "Episodes that were not trained on"]
    page = render_report(told).decode()
    assert "server, idle 58.8 %" in page and "trainer, idle 50 %" in page


def test_training_in_turns_has_no_such_section(tmp_path):
    run = made(tmp_path / "run", did(0, "shop", solved=True, split=Split.TRAIN))
    append_batch(run, batch(0, mode="sync"))
    assert build_async_section(facts(run)["asynchronous"]).figures == ()
