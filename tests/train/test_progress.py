import json

import pytest

from webgym_cli.errors import JobError
from webgym_cli.train.process_limits import StallDetector
from webgym_cli.train.trainer_log import TrainerLogTail, read_log
from webgym_cli.util.training_log import trim_log


def line(step, total=4, **facts):
    return json.dumps({"current_steps": step, "total_steps": total} | facts) + "\n"


def test_follows_a_log_with_a_torn_line(tmp_path):
    path = tmp_path / "trainer_log.jsonl"
    clock = iter([0.0, 10.0, 30.0])
    follower = TrainerLogTail(path, clock=lambda: next(clock))
    assert follower.new_events() == []
    whole, second = line(1, loss=2.0, lr=1e-5), line(2, loss=1.0, lr=1e-5)
    path.write_text(whole + second[:9])
    (event,) = follower.new_events()
    facts = {"loss": 2.0, "learning_rate": 1e-5, "facts": "loss 2  lr 1e-05"}
    assert event == {"event": "train", "done": 1, "total": 4, **facts}
    assert follower.new_events() == []
    path.write_text(whole + second)
    (event,) = follower.new_events()
    assert (event["done"], event["eta"], event["facts"]) == (2, 20.0, "loss 1  lr 1e-05  ETA 0:00:20")


def test_a_damaged_line_is_passed_over_and_nan_never_reaches_an_event(tmp_path):
    path = tmp_path / "log"
    path.write_text("{\n\n[]\nnull\n" + line(1, loss="x") + line(2, loss=1.5))
    assert [(one["current_steps"], one.get("loss")) for one in read_log(path)] == [(1, None), (2, 1.5)]
    assert [event["done"] for event in TrainerLogTail(path).new_events()] == [1, 2]
    path.write_text('{"current_steps": 1, "total_steps": 2, "loss": NaN, "lr": Infinity}\n')
    (event,) = TrainerLogTail(path).new_events()
    assert "NaN" not in json.dumps(event) and "loss" not in event


def test_the_closing_line_adds_nothing_where_its_step_is_known_and_evaluations_are_told_apart(tmp_path):
    path = tmp_path / "log"
    for text in (line(4, loss=1.0) + line(4), line(4)):
        path.write_text(text)
        assert len(TrainerLogTail(path).new_events()) == 1
    path.write_text(line(1, loss=1.0) + line(1, eval_loss=3.0))
    assert TrainerLogTail(path).new_events()[1]["eval_loss"] == 3.0
    assert [one.get("loss") for one in read_log(path)] == [1.0, None]


def test_trim_keeps_what_was_before_the_checkpoint(tmp_path):
    path = tmp_path / "log"
    path.write_text(line(1, loss=3.0) + line(2, loss=2.0) + line(3, loss=1.0)[:-5])
    trim_log(path, 1)
    assert path.read_text() == line(1, loss=3.0)
    trim_log(tmp_path / "none", 1)


def test_the_newest_whole_line_of_a_step_counts(tmp_path):
    log = tmp_path / "trainer_log.jsonl"
    log.write_text(line(1, loss=3.0) + line(2, loss=9.0) + line(2, loss=2.0))
    assert [one["loss"] for one in read_log(log)] == [3.0, 2.0]
    metrics = {"lr": 0.1, "actor/loss": 0.5, "critic/score/mean": 1}
    text = line(1, 1, **{"actor/loss": 9.0}) + line(1, 1, **metrics, **{"actor/bad": None})
    log.write_text(f'{text}{{"current_steps": 2, "torn')
    assert read_log(log) == [{"current_steps": 1, "total_steps": 1} | metrics]
    log.write_text("")
    assert read_log(log) == []


@pytest.fixture
def stall(tmp_path):
    """A detector with a clock of its own: `at` sets the time, and a text the trainer's output."""
    now = [0.0]
    detector = StallDetector(
        tmp_path / "folder", tmp_path / "train.log", 600, others=(tmp_path / "first.log",), clock=lambda: now[0]
    )

    def at(seconds, output=None):
        now[0] = seconds
        if output is not None:
            detector.log.write_text(output)
        return detector.observe()

    at.detector = detector
    return at


def test_the_files_are_measured_at_intervals(stall):
    assert stall.detector.is_due
    stall(0)
    assert not stall.detector.is_due


def test_a_trainer_without_progress_is_named_and_then_ended(stall):
    assert stall(0) == stall(100) == ""
    assert "no progress for 130 s" in stall(130)
    assert stall(140) == ""  # once
    with pytest.raises(JobError, match=r"10 minutes.*train\.log") as caught:
        stall(601)
    assert "stall_minutes" in caught.value.hint


def test_a_slow_trainer_is_measured_by_its_own_steps(stall):
    for step in range(4):
        assert stall(300 * step, "." * step) == ""
    assert stall(900 + 1400) == ""
    assert "at most 300 s before" in stall(900 + 1501)
    with pytest.raises(JobError):
        stall(900 + 3001)


@pytest.mark.parametrize("name", ["folder/checkpoint-1/model.safetensors", "first.log"])
def test_files_that_grow_are_progress(stall, tmp_path, name):
    (tmp_path / "folder/checkpoint-1").mkdir(parents=True)
    stall(0)
    for minute in range(1, 30):
        (tmp_path / name).write_bytes(b"." * minute)
        assert stall(60 * minute) == ""
