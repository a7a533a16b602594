import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.records.builders import checkpoint, new_run, published, trajectory
from tests.records.test_judgement import judgement
from webgym_cli.config.model import Settings
from webgym_cli.errors import RunLockedError, StoreError, UsageError
from webgym_cli.records.judgement import EpisodeLabel
from webgym_cli.records.stored_events import EvaluationEvent
from webgym_cli.records.task import Split
from webgym_cli.store import checkpoints, metrics, status
from webgym_cli.store.buffer import append, append_judgement, append_label
from webgym_cli.store.index.build import rebuild
from webgym_cli.store.outputs import check_output
from webgym_cli.store.run import RunDir, create_or_open, new_attempt
from webgym_cli.store.status import lock_run
from webgym_cli.util.files import replace_link

HOLDER = """
import sys
from pathlib import Path
from webgym_cli.store.index.build import rebuild
from webgym_cli.store.status import lock_run
from webgym_cli.store.run import RunDir
with lock_run(RunDir(Path(sys.argv[1])), "train runs/a"):
    print("held", flush=True)
    sys.stdin.read()
"""

LABEL = EpisodeLabel(trajectory="train-0000-00000", who="ben", label="yes", labelled_at="2026-01-01T00:00:00Z")


@pytest.fixture
def run(tmp_path):
    """The folder of a run that is not there yet."""
    return RunDir(tmp_path / "run")


@pytest.fixture
def holder(run):
    """Another process that holds the run until its stdin closes."""
    command, pipe = [sys.executable, "-c", HOLDER, str(run.root)], subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def make(run, *versions):
    for version in versions:
        published(run, Settings(), version)


def refused(run, words):
    """Another command must not get the run."""
    with pytest.raises(RunLockedError, match=words), lock_run(run, "second"):
        pass


def test_a_locked_run_names_its_holder_and_a_killed_one_frees_it(run, holder):
    refused(run, re.escape(f"`webgym train runs/a` (process {holder.pid} on "))
    assert RunLockedError.exit_code == 75
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    with lock_run(run, "rollout"):
        assert run.lock_holder.is_file()
    assert not run.lock_holder.exists()


def test_one_process_can_not_hold_a_run_twice_and_it_is_freed_after_an_error(run):
    with pytest.raises(ZeroDivisionError), lock_run(run, "first"):
        refused(run, "webgym first")
        raise ZeroDivisionError
    with lock_run(run, "b"):
        for damaged in ("[]", "{}", "", "null"):
            run.lock_holder.write_text(damaged)
            refused(run, "another webgym")


def test_a_run_or_an_attempt_that_can_not_be_made_is_an_error_of_ours(tmp_path, run):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="can't be written"), lock_run(RunDir(tmp_path / "file" / "run"), "a"):
        pass
    run.root.mkdir()
    run.logs.write_text("a file")
    with pytest.raises(StoreError, match="logs"):
        new_attempt(run)


def test_a_link_flips_from_one_folder_to_another_and_a_real_folder_in_its_place_is_moved_aside(tmp_path):
    (tmp_path / "now").mkdir()
    (tmp_path / "now" / "precious").write_text("x")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        replace_link(tmp_path / "now", tmp_path / name)
        assert os.readlink(tmp_path / "now") == name
    (aside,) = tmp_path.glob("now.before-*")
    assert (aside / "precious").read_text() == "x"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "now", aside.name]


def test_the_link_survives_moving_the_run(tmp_path):
    run = RunDir(tmp_path / "run")
    make(run, 1)
    run.root.rename(tmp_path / "moved")
    assert (tmp_path / "moved" / "model.pt" / "weights").read_text() == "1"


def test_attempts_are_numbered(run):
    assert [new_attempt(run).name for _ in range(3)] == ["attempt_0001", "attempt_0002", "attempt_0003"]
    (run.logs / "attempt_0002").rmdir()
    (run.logs / "attempt_0003.old").mkdir()
    assert new_attempt(run).name == "attempt_0004"
    assert os.readlink(run.logs / "latest") == "attempt_0004"


def test_before_the_first_training_the_base_model_acts(run):
    assert checkpoints.current(run) is None
    assert checkpoints.version(run) == 0
    assert str(checkpoints.policy_path(run, Settings())) == "Qwen/Qwen3-VL-8B-Instruct"
    checkpoints.repair_link(run, Settings())
    assert not run.root.exists()


def test_published_weights_are_the_current_policy(run):
    for version in (1, 2):
        make(run, version)
        assert checkpoints.version(run) == version
        assert checkpoints.current(run) == checkpoint(version)
        assert (run.model(Settings()) / "weights").read_text() == str(version)
        assert checkpoints.policy_path(run, Settings()) == run.checkpoints / checkpoint(version).name
    assert checkpoints.checkpoints(run) == [checkpoint(1), checkpoint(2)]


def test_the_weights_can_be_read_by_all_who_can_read_the_run(run):
    weights = run.checkpoints / "half"
    (weights / "adapter").mkdir(parents=True)
    for file in ("model.safetensors", "adapter/adapter_model.safetensors"):
        (weights / file).touch(mode=0o600)
    checkpoints.publish(run, Settings(), weights, checkpoint(1))
    assert len({file.stat().st_mode for file in run.checkpoints.rglob("*") if file.is_file()}) == 1


def test_the_version_decides_not_the_name_and_weights_without_a_record_are_no_checkpoint(run):
    make(run, 2)
    weights = run.checkpoints / "model_99999999_000000"
    weights.mkdir()
    assert checkpoints.version(run) == 2
    checkpoints.publish(run, Settings(), weights, checkpoint(name="model_99999999_000000"))
    assert checkpoints.version(run) == 2


@pytest.mark.parametrize(
    "used", ["model_20990101_235959", "model_20990101_235959.partial", "model_20990101_235959.start"]
)
def test_a_new_name_is_later_than_all_others_though_the_clock_was_set_back(run, used):
    for name in ("model_20260101_000000", used, "model_99999999_000000", "model_best"):
        (run.checkpoints / name).mkdir(parents=True)
    assert checkpoints.new_name(run) == "model_20990102_000000"


def test_a_crash_before_the_rename_leaves_the_old_policy_and_a_link_that_it_left_behind_is_mended(run, monkeypatch):
    make(run, 1)

    def crash(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("pathlib.Path.rename", crash)
        make(run, 2)
    assert checkpoints.current(run) == checkpoint(1)
    assert checkpoints.policy_path(run, Settings()).is_dir()
    make(run, 3)
    replace_link(run.model(Settings()), run.checkpoints / checkpoint(1).name)
    checkpoints.repair_link(run, Settings())
    assert (run.model(Settings()) / "weights").read_text() == "3"


def test_a_damaged_record_is_named(run):
    make(run, 1)
    record = run.checkpoints / checkpoint(1).name / "checkpoint.json"
    record.write_text('{"name": "x"}')
    with pytest.raises(StoreError, match=str(record)):
        checkpoints.checkpoints(run)


@pytest.mark.parametrize(("number", "weights"), [(0, "base"), (1, "1"), (2, "2"), (3, "3")])
def test_an_older_version_is_the_current_one_of_its_evaluation(run, number, weights):
    settings = Settings(policy_config={"base_model": "base"})
    for version in (1, 2, 3):
        make(run, version)
    older = checkpoints.select_version(run, number)
    model = checkpoints.policy_path(older, settings)
    assert checkpoints.version(older) == number
    assert str(model) == weights if not number else (model / "weights").read_text() == weights
    checkpoints.repair_link(older, settings)
    assert (run.model(settings) / "weights").read_text() == "3", "the run's policy is another"
    assert checkpoints.version(run) == 3


def test_a_version_without_weights_or_that_never_was_is_refused(run):
    checkpoints.set_first_version(run, 2)
    for version in (3, 5):
        published(run, Settings(), version, weights=version == 5)
    for number in (0, 1, 4, 6):
        with pytest.raises(UsageError, match=f"no policy version {number}") as caught:
            checkpoints.select_version(run, number)
        assert caught.value.hint == "versions: 2, 3, 5"
    with pytest.raises(UsageError, match="weights of version 3"):
        checkpoints.select_version(run, 3)


@pytest.mark.parametrize("content", ["", "{", '{"name": "x"}', "[]"])
def test_a_damaged_record_of_an_older_policy_or_under_another_name_stops_nothing(run, content):
    make(run, 1, 2)
    (run.checkpoints / checkpoint(1).name / "checkpoint.json").write_text(content)
    for name in ("model_best", "model_old", "model_99990101_000000.bak"):
        (run.checkpoints / name).mkdir()
        (run.checkpoints / name / "checkpoint.json").write_text("{")
    assert [saved.version for saved in checkpoints.checkpoints(run)] == [2]
    assert checkpoints.version(run) == 2
    assert len(checkpoints.find_damaged_records(run)) == 4


def test_a_damaged_line_of_the_metrics_is_skipped(run):
    whole = {"event": "evaluation", "iteration": 1, "episodes": 2, "success_rate": 0.5, "interval": [0.1, 0.9], "x": 1}
    damaged = [{"event": "evaluation"}, whole | {"iteration": "1"}, whole | {"interval": [0.1]}, [whole]]
    run.root.mkdir(parents=True, exist_ok=True)
    lines = [*map(json.dumps, damaged), "{", json.dumps(whole)]
    run.metrics.write_bytes(b"\xff\n" + "".join(f"{line}\n" for line in lines).encode())
    assert list(metrics.read_valid_events(run, EvaluationEvent)) == [whole]


def test_a_command_is_under_way_until_it_is_finished(run):
    assert status.read_running_command(run) is None
    status.begin(run, "rollout", {"split": "test", "episodes": None})
    running_command = status.read_running_command(run)
    assert (running_command.command, running_command.options) == ("rollout", {"split": "test", "episodes": None})
    status.finish(run, ())
    status.finish(run, ())
    assert status.read_running_command(run) is None


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"command": "other", "options": {}, "since": "now"}'])
def test_a_damaged_note_of_what_is_under_way_is_named(run, content):
    run.root.mkdir(parents=True, exist_ok=True)
    run.state.write_text(content)
    with pytest.raises(StoreError, match=str(run.state)):
        status.read_running_command(run)


WRITERS = {
    "trajectory": lambda run: append(run, trajectory()),
    "judgement": lambda run: append_judgement(run, Split.TRAIN, 0, judgement()),
    "label": lambda run: append_label(run, "train_trajectories/iteration_0000/part-0.jsonl", LABEL),
    "event": lambda run: metrics.append_event(run, {"event": "train"}),
    "blocked site": lambda run: metrics.Blocklist(run, 1).add("http://a.example/", "train-0000-00000", "captcha"),
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_nothing_is_appended_to_a_run_that_is_not_there(run, write):
    with pytest.raises(StoreError, match=re.escape(f"{run.root}: ")):
        write(run)
    assert not run.root.exists()


def test_events_come_back_by_name_with_their_time_and_a_torn_one_does_not_hide_the_others(run):
    new_run(run.root)
    assert list(metrics.read_events(run, "train")) == []
    for number, name in enumerate(["train", "prepare", "train"]):
        metrics.append_event(run, {"event": name, "number": number})
    events = list(metrics.read_events(run, "train"))
    assert all(event["at"].endswith("+00:00") for event in events)
    with run.metrics.open("a") as file:
        file.write('{"event": "tra')
    assert [event["number"] for event in metrics.read_events(run, "train")] == [0, 2]
    metrics.append_event(run, {"event": "train", "number": 3})
    assert [event["number"] for event in metrics.read_events(run, "train")] == [0, 2, 3]


def test_a_run_named_by_a_relative_path_has_absolute_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = RunDir(Path("runs/a"))
    monkeypatch.chdir("/")
    assert run.root == tmp_path / "runs/a"
    assert run.checkpoints.is_absolute()


@pytest.mark.parametrize("name", ["run.json", "config.json", "metrics.jsonl", "pages/x.html", "new/folder/a.html"])
@pytest.mark.parametrize("kept", ["run.json", "train_trajectories"])
def test_no_output_is_written_into_a_run(run, tmp_path, name, kept):
    create_or_open(run, Settings())
    run.trajectories("train").mkdir()
    if kept == "run.json":
        run.trajectories("train").rmdir()
    else:  # a run from which a copy left something out
        run.provenance.unlink()
        run.config.unlink()
    (tmp_path / "link").symlink_to(run.root)
    for place in (run.root / name, tmp_path / "link" / name):
        with pytest.raises(UsageError, match="is in the run"):
            check_output(place, b"")


def test_an_output_replaces_its_own_kind_only_and_no_device_pipe_or_folder(tmp_path):
    file = tmp_path / "page.html"
    start = b"<!doctype html>" * 10
    check_output(file, start)
    file.write_bytes(b"")
    check_output(file, start)
    file.write_bytes(start + b"older content")
    check_output(file, start + b"newer content")
    for other in (b"my notes", b"<!doctype html>", b"\0" + start):
        file.write_bytes(other)
        with pytest.raises(UsageError, match="there is another file"):
            check_output(file, start)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    for place in (tmp_path, tmp_path / "pipe", tmp_path / "loop", Path("/dev/null"), Path("/dev/stdout")):
        with pytest.raises(UsageError, match="can't be replaced"):
            check_output(place, b"x")


def test_links_in_a_run_lead_no_write_out_of_it(run, tmp_path):
    other, folder = tmp_path / "mine.txt", tmp_path / "folder" / "deep"
    other.write_text("mine")
    folder.mkdir(parents=True)
    new_run(run.root)
    for place in (run.metrics, run.lock):
        place.symlink_to(other)
    run.index.symlink_to(folder.parent)
    with pytest.raises(StoreError, match=str(run.metrics)):
        metrics.append_event(run, {"event": "x"})
    with pytest.raises(StoreError), lock_run(run, "rollout"):
        pass
    with pytest.raises(StoreError, match="is a link"):
        rebuild(run)
    assert other.read_text() == "mine" and folder.is_dir()
