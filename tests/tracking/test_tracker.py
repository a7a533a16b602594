"""The real wandb package at work: offline, read back from its files; online, with servers that fail us."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from types import SimpleNamespace

import psutil
import pytest

from tests.executable import file_system, fill
from tests.tracking.conftest import KEY, happened, new_tracked_run
from tests.tracking.offline_file import segments
from webgym_cli.config.load import load
from webgym_cli.errors import WebGymError
from webgym_cli.jobs.signals import run_async
from webgym_cli.loop import training
from webgym_cli.loop.context import StageContext
from webgym_cli.store.run import new_attempt, run_id
from webgym_cli.store.screenshots import png_size
from webgym_cli.tracking import execute
from webgym_cli.tracking.execute import FOLDER, LOG, Tracker, has_pending, plan_tracking

PATIENCE = 60.0


def settings(*overrides):
    return load(overrides=["log_config.run_name=webgym-test", *overrides])


def track(run, rows, *, in_time=True):
    """Be a command of a run that has nothing to do; return what it told."""
    events = []

    async def work():
        tracker = Tracker(run, rows, new_attempt(run), events.append)
        tracker.note()
        await tracker.close(in_time=in_time)

    run_async(work())
    return events


@pytest.fixture(scope="module")
def tracked(tmp_path_factory):
    """Two iterations, tracked by three commands; with a key in the environment that nothing is to repeat."""
    loaded_settings = settings("log_config.sample_trajectories=6", "log_config.entity_name=team")
    run = new_tracked_run(tmp_path_factory.mktemp("tracked") / "run", loaded_settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "offline")
        patch.setenv("WANDB_API_KEY", KEY)
        for iteration in range(2):
            happened(run, iteration)
            assert track(run, loaded_settings) == []
        assert track(run, loaded_settings) == []  # nothing new: no third file
    return run, loaded_settings, segments(run)


def test_all_commands_tell_of_one_run(tracked):
    run, result, files = tracked
    assert len(files) == 2
    wanted = (run_id(run, result), "rl", "team", "webgym-test")
    assert {(file.run.run_id, file.run.project, file.run.entity, file.run.display_name) for file in files} == {wanted}
    assert [file.config["webgym"]["seed"] for file in files] == [result.seed] * 2
    plan = plan_tracking(run, result, {"WANDB_MODE": "offline"})
    assert not has_pending(run, plan.destination)
    assert has_pending(run, plan.model_copy(update={"mode": "online"}).destination)  # the server has nothing yet


def test_metrics_are_drawn_over_the_iteration(tracked):
    _, _, files = tracked
    for iteration, file in enumerate(files):
        evaluation, rollout, prepare, judge, train = file.history
        assert {row["iteration"] for row in file.history} == {iteration}
        assert evaluation["evaluation/success_rate"] == 0.25 * (iteration + 1)
        assert evaluation["evaluation/interval_high"] == 0.6
        assert evaluation["evaluation/failures/browser_crashed"] == 4
        assert rollout["rollout/steps_per_second"] == 3.5
        assert prepare["prepare/train_samples"] == 40 + iteration
        assert judge["judge/judged"] == 5
        assert train["train/mean_loss"] == 0.5
        logged = {name for row in file.history for name in row} - {"iteration"}
        assert {name.partition("/")[0] for name in logged} == {
            "evaluation",
            "rollout",
            "prepare",
            "judge",
            "train",
            "spent",
        }
        assert {name: file.axes[name] for name in logged} == dict.fromkeys(logged, "iteration")


def test_a_table_shows_trajectories_of_every_outcome(tracked):
    run, _, files = tracked
    for iteration, file in enumerate(files):
        for row, name, split in ((file.history[0], "evaluation", "test"), (file.history[1], "rollout", "train")):
            rows = file.table(row[f"{name}/samples"])
            assert sorted(row["outcome"] for row in rows) == ["failure"] * 2 + ["not solved"] * 2 + ["solved"] * 2
            for item in rows:
                assert item["id"].startswith(f"{split}-{iteration:04d}-")
                assert (item["failure"] == "browser_crashed: gone") == (item["outcome"] == "failure")
                pictures = [item[place] for place in ("first", "middle", "last") if item[place]]
                assert len(pictures) == min(3, item["steps"])
                for picture in pictures:
                    assert (picture["_type"], picture["width"], picture["height"]) == ("image-file", 40, 32)
                    assert png_size(file.files[picture["path"]].read_bytes()) == (40, 32)
                    assert file.files[picture["path"]].is_relative_to(run.root)


def test_the_key_stands_in_no_file(tracked):
    run, _, _ = tracked
    files = [file for file in run.root.rglob("*") if file.is_file()]
    assert len(files) > 50
    assert [file for file in files if KEY.encode() in file.read_bytes()] == []


def test_disabled_means_no_process_and_no_file(run, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    happened(run, 0)
    assert track(run, settings()) == []
    assert not run.tracking.exists()
    assert [file for file in run.logs.rglob("*") if file.is_file()] == []


class Silent:
    """A server that takes connections and never says a word."""

    def __init__(self):
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        self.called = threading.Event()
        self._connections = []
        threading.Thread(target=self._take, daemon=True).start()

    def _take(self):
        while True:
            try:
                self._connections.append(self.socket.accept()[0])
            except OSError:
                return
            self.called.set()


@pytest.fixture
def silent(monkeypatch):
    server = Silent()
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setenv("WANDB_BASE_URL", server.url)
    yield server
    server.socket.close()


def test_a_silent_server_holds_nobody_up_and_its_events_are_sent_later(run, silent, monkeypatch):
    happened(run, 0)
    loaded_settings = settings("log_config.wait_seconds=1")
    events = []
    others = set(psutil.Process().children(recursive=True))

    async def train():
        tracker = Tracker(run, loaded_settings, new_attempt(run), events.append)
        tracker.note()
        assert await asyncio.to_thread(silent.called.wait, PATIENCE)  # wandb takes its time on a busy machine
        assert not await tracker.make_way()  # the trainer is to stay offline
        assert tracker._job is None
        assert not await tracker.make_way()
        await tracker.close(in_time=False)

    run_async(train())
    assert [event["event"] for event in events] == ["tracking_failed"]
    assert "no answer within 1 s" in events[0]["message"]
    assert set(psutil.Process().children(recursive=True)) <= others
    assert KEY not in "".join(file.read_text() for file in run.logs.rglob("*.log"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert track(run, settings()) == []
    (file,) = segments(run)
    assert len(file.history) == 5


def test_a_trainer_stays_offline_where_the_server_did_not_answer(run, silent, monkeypatch):
    seen, planned = [], SimpleNamespace(data=SimpleNamespace(iteration=0))

    def report_offline(plan):
        seen.append(plan)
        raise WebGymError("planned")

    async def train():
        async with StageContext(run, settings("log_config.wait_seconds=3"), new_attempt(run), seen.append) as context:
            await training.train(context, planned)

    monkeypatch.setattr("webgym_cli.train.plan.report_offline", report_offline)
    with pytest.raises(WebGymError, match="planned"):
        run_async(train())
    failed, plan = seen
    assert failed["event"] == "tracking_failed"
    assert plan is planned


def test_a_key_that_is_no_key_is_told_once(run, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "short")
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    happened(run, 0)
    (event,) = track(run, settings())
    assert event["event"] == "tracking_failed"
    assert LOG in event["message"] and "Traceback" not in event["message"]
    assert has_pending(run, plan_tracking(run, settings()).destination)


def test_a_full_disk_only_stops_the_tracking_and_is_named(run):
    happened(run, 0)
    folder, events = new_attempt(run), []
    with file_system(folder / FOLDER, "16k") as disk:
        fill(disk)
        tracker = Tracker(run, settings(), folder, events.append)
        tracker.note()
        run_async(tracker.close(in_time=True))
    (event,) = events
    assert (event["event"], "No space left on device" in event["message"]) == ("tracking_failed", True)


def test_an_uploader_that_writes_nothing_is_named_by_its_exit_status(run, monkeypatch):
    happened(run, 0)
    monkeypatch.setattr(execute, "sys", SimpleNamespace(executable="/bin/false"))
    (event,) = track(run, settings())
    assert "exit status 1" in event["message"]


def test_a_log_that_can_not_be_written_only_stops_the_tracking(run):
    happened(run, 0)
    folder = new_attempt(run)
    (folder / LOG).mkdir()
    events = []
    tracker = Tracker(run, settings(), folder, events.append)
    tracker.note()
    run_async(tracker.close(in_time=True))
    assert [event["event"] for event in events] == ["tracking_failed"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_no_process_outlives_the_command(run, silent, number):
    happened(run, 0)
    held = subprocess.Popen(
        [sys.executable, "-m", "tests.tracking.held", str(run.root)], stdout=subprocess.PIPE, env=dict(os.environ)
    )
    assert held.stdout.readline() == b"held\n"
    assert silent.called.wait(PATIENCE)  # wandb's service is at work
    below = psutil.Process(held.pid).children(recursive=True)
    assert any("wandb-core" in " ".join(process.cmdline()) for process in below)
    held.send_signal(number)
    held.wait(PATIENCE)
    assert psutil.wait_procs(below, PATIENCE)[1] == []
