"""The whole of `execute` with a scripted trainer in the place of LLaMA-Factory: each behaviour in a second."""

import asyncio
import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import yaml

import webgym_cli.train.execute as execution
from tests.train.fake_checkpoints import published, weights
from tests.train.train_data import prepare, rows, settings_for
from webgym_cli.errors import JobError, SettingsError, StoreError, VenvError
from webgym_cli.loop.training import plan_training
from webgym_cli.store import checkpoints
from webgym_cli.store.run import new_attempt
from webgym_cli.train import process_limits
from webgym_cli.train.trainer_log import with_report_folders

NAME = "model_20260109_000000"
SLEEP = f"300.{os.getpid()}"
"""Seconds, in a way that only this test session sleeps."""
TRAINER = f"""#!{sys.executable}
import json, os, subprocess, sys, time
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from tests.train.fake_checkpoints import checkpoint, weights
import yaml
config = yaml.safe_load(open(sys.argv[2]))
behave = os.environ.get("BEHAVE", "")
if sys.argv[1] == "export":
    out = Path(config["export_dir"])
    out.mkdir()
    weights(out / "model.safetensors", 128)
    (out / "Modelfile").touch()
    (out / "config.json").write_text(json.dumps({{"merged": config}}))
    if behave == "fail to merge":
        sys.exit("ValueError: bad merge")
    if behave == "merge by half":
        (out / "model.safetensors").write_bytes(b"torn")
    sys.exit(0)
out = Path(config["output_dir"])
Path(os.environ.get("TENSORBOARD_LOGGING_DIR", out / "runs")).mkdir(parents=True, exist_ok=True)
lora = config["finetuning_type"] == "lora"
resumed = config.get("resume_from_checkpoint", "")
start = int(resumed.rpartition("-")[2]) if "checkpoint-" in resumed else 0
for step in range(start + 1, 5):
    facts = dict(current_steps=step, total_steps=4, loss=5.0 - step, lr=config["learning_rate"])
    with (out / "trainer_log.jsonl").open("a") as log:
        log.write(json.dumps(facts) + "\\n")
    if behave == f"save at {{step}}":
        checkpoint(out / f"checkpoint-{{step}}", step=step, lora=lora)
        sys.exit("ValueError: bad luck")
    if behave == "early" and step == 2:
        sys.exit(0)
    if behave == "hang":
        subprocess.Popen(["sleep", {SLEEP!r}], start_new_session=True)
        time.sleep(300)
checkpoint(out / "checkpoint-4", lora=lora)
"""


def under_torchrun(role, otherwise=""):
    """Return what a role's interpreter does, in shell: where torchrun would run LLaMA-Factory, the scripted trainer."""
    trainer = f"{role}/bin/llamafactory-cli train launch.yaml"
    return f'case "$*" in *llamafactory.launcher*) exec {trainer};; {otherwise} esac\n'


@pytest.fixture
def ready(run, role, tmp_path, monkeypatch):
    monkeypatch.delenv("TENSORBOARD_LOGGING_DIR", raising=False)
    (role / "bin/llamafactory-cli").write_text(TRAINER)
    (role / "bin/python").write_text(f"#!/bin/sh\n{under_torchrun(role)}")
    events = []

    async def go(behave="", name=NAME, digest="d0", again=False, sink=events.append, of=run, **more):
        train, model = more.pop("train", None), more.pop("model", "tiny")
        monkeypatch.setenv("BEHAVE", behave)
        settings = settings_for(model, role=role, train=train, **more)
        if not again:
            prepare(of, settings, rows(tmp_path / "images", 4), name, digest)
        return await execution.execute(plan_training(of, settings), of, settings, new_attempt(of), sink)

    go.events = events
    return go


def named(events, name):
    return [event for event in events if event["event"] == name]


async def test_trains_and_publishes(ready, run, monkeypatch):
    monkeypatch.setattr(process_limits, "POLL_SECONDS", 1)  # the last steps are read after the trainer's end
    result = await ready()
    assert checkpoints.current(run) == result
    assert [event["done"] for event in named(ready.events, "train")] == [1, 2, 3, 4]
    events = [event["event"] for event in ready.events if event["event"] != "train"]
    assert events == ["train_note", "train_start", "train_done"]
    assert "is not known: the free space is not checked" in ready.events[0]["message"]
    assert result.seconds > 0
    assert result.loss == 2.5
    assert run.model(settings_for()).resolve() == (run.checkpoints / NAME).resolve()
    assert (run.logs / "latest/train.log").is_file()
    assert (run.logs / "latest/tensorboard" / NAME).is_dir()  # in the trainer's folder it would be lost


async def test_the_lock_of_a_killed_build_is_removed_with_a_note(ready, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "builds"))
    lock = tmp_path / "builds/cpu_adam/lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    await ready()
    assert [str(lock) in event["message"] for event in named(ready.events, "train_note")] == [False, True]
    assert not lock.exists()


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("TENSORBOARD_LOGGING_DIR", None, f"LOGS/tensorboard/{NAME}"),
        ("TENSORBOARD_LOGGING_DIR", "", f"LOGS/tensorboard/{NAME}"),
        ("TENSORBOARD_LOGGING_DIR", "/own", f"/own/{NAME}"),
        ("TENSORBOARD_LOGGING_DIR", "own", f"HERE/own/{NAME}"),  # not in the trainer's folder
        ("TENSORBOARD_LOGGING_DIR", "s3://own/", f"s3://own/{NAME}"),
        ("SWANLAB_LOG_DIR", None, "LOGS/swanlab"),
        ("SWANLAB_LOG_DIR", "own", "HERE/own"),
        ("MLFLOW_TRACKING_URI", None, "sqlite:///LOGS/mlflow.db"),
        ("MLFLOW_TRACKING_URI", "", "sqlite:///LOGS/mlflow.db"),
        ("MLFLOW_TRACKING_URI", "http://a.test:5000", "http://a.test:5000"),
    ],
)
def test_a_training_s_reports_outlive_its_folder(tmp_path, monkeypatch, variable, value, expected):
    monkeypatch.chdir(tmp_path)
    env = with_report_folders({} if value is None else {variable: value}, tmp_path / "logs", NAME)
    assert env[variable] == expected.replace("LOGS", f"{tmp_path}/logs").replace("HERE", str(tmp_path))
    assert env["WANDB_DIR"] == f"{tmp_path}/logs"


async def test_a_failure_keeps_what_was_saved_and_goes_on_from_there(ready, run):
    with pytest.raises(JobError, match=r"exit status 1.*bad luck") as caught:
        await ready("save at 2")
    assert caught.value.returncode == 1
    launched = yaml.safe_load((run.checkpoints / f"{NAME}.partial/launch.yaml").read_text())
    prepared = yaml.safe_load((run.dataset / "train_config.yaml").read_text())
    assert {key for key in launched if launched[key] != prepared.get(key)} == {"output_dir"}
    assert checkpoints.current(run) is None
    result = await ready(again=True)
    assert [event["done"] for event in named(ready.events, "train")] == [1, 2, 3, 4]
    assert any("goes on after step 2" in event["message"] for event in named(ready.events, "train_note"))
    assert result.loss == 2.5


@pytest.mark.parametrize("own", [True, False])
async def test_states_of_deepspeed_are_unpickled_only_in_a_run_made_here(ready, run, monkeypatch, own):
    """Their pickles execute code, and nothing checks them."""
    with pytest.raises(JobError):
        await ready("save at 2", deepspeed_config_filename="ds_config_cpu_zero2.json")
    monkeypatch.setattr("webgym_cli.train.execute.is_own", lambda root: own)
    going = ready(again=True, deepspeed_config_filename="ds_config_cpu_zero2.json")
    if own:
        assert await going
    else:
        with pytest.raises(SettingsError, match="pickles") as caught:
            await going
        assert "--trust" in caught.value.hint


async def test_a_dataset_that_changed_discards_the_interrupted_training(ready, run):
    with pytest.raises(JobError):
        await ready("save at 2")
    await ready(digest="d1", name="model_20260110_000000")
    assert [event["done"] for event in named(ready.events, "train")][2:] == [1, 2, 3, 4]
    assert any("removed" in event["message"] for event in named(ready.events, "train_note"))
    assert [path.name for path in run.checkpoints.iterdir()] == ["model_20260110_000000"]


async def test_exit_0_before_the_last_step_is_a_failure(ready, run):
    with pytest.raises(JobError, match="after 2 of 4 steps"):
        await ready("early")
    assert checkpoints.current(run) is None


async def test_a_trainer_that_makes_no_progress_is_ended(ready, monkeypatch):
    monkeypatch.setattr(process_limits, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(process_limits, "STALL_FACTOR", 0)
    with pytest.raises(JobError, match="no progress"):
        await ready("hang", train={"stall_minutes": 2 / 60})
    assert any("no progress" in event.get("message", "") for event in ready.events)
    assert await ready(again=True)


async def test_the_time_limit(ready):
    with pytest.raises(JobError, match="time limit"):
        await ready("hang", train={"time_limit_minutes": 1 / 60})
    assert not sleepers()


def sleepers():
    return [process for process in psutil.process_iter(["cmdline"]) if process.info["cmdline"] == ["sleep", SLEEP]]


async def test_a_trainer_of_before_is_waited_for_behind_a_link_too(ready, run, tmp_path, monkeypatch):
    for name in ("STOP_GRACE", "KILL_MARGIN"):
        monkeypatch.setattr(execution, name, 0.0)
    run.root.mkdir(parents=True, exist_ok=True)
    linked = replace(run, root=tmp_path / "link")
    linked.root.symlink_to(run.root, target_is_directory=True)
    folder = linked.checkpoints / f"{NAME}.partial"
    folder.mkdir(parents=True)
    before = await asyncio.create_subprocess_exec("sleep", "300", cwd=folder)
    try:
        with pytest.raises(JobError, match=f"process {before.pid} still works there"):
            await ready(of=linked)
    finally:
        before.kill()
        await before.wait()


async def test_cancelling_ends_the_whole_tree(ready, run):
    def sink(event):
        ready.events.append(event)

    task = asyncio.ensure_future(ready("hang", sink=sink))
    while not (named(ready.events, "train") and sleepers()):  # noqa: ASYNC110 - processes set no events
        await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not sleepers()
    assert (run.checkpoints / f"{NAME}.partial").is_dir()


async def test_the_parents_moments_are_carried(ready, run, role):
    published(run, 1)
    (role / "bin/python").write_text('#!/bin/sh\ntouch "$3/optimizer.pt"\n')
    result = await ready()
    assert (result.version, result.parent) == (2, "model_20260101_000000")
    assert named(ready.events, "train_start")[0]["mode"] == "carried"
    assert sorted(path.name for path in run.checkpoints.iterdir()) == ["model_20260101_000000", NAME]


@pytest.mark.parametrize(("says", "code"), [("webgym: torn file", 3), ("MemoryError", 1)])
async def test_states_that_can_not_be_carried_are_told_and_a_builder_that_fails_stops_the_training(
    ready, run, role, says, code
):
    published(run, 1)
    (role / "bin/python").write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {code}\n")
    if code == 1:
        with pytest.raises(JobError, match="MemoryError"):
            await ready()
    else:
        await ready()
        assert named(ready.events, "train_start")[0]["mode"] == "fresh"
        assert any("torn file" in event["message"] for event in named(ready.events, "train_note"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
async def test_a_folder_that_can_not_be_written(ready, run):
    run.checkpoints.mkdir()
    run.checkpoints.chmod(0o500)
    with pytest.raises(StoreError):
        await ready()


async def test_a_file_in_the_place_of_the_folder(ready, run):
    run.checkpoints.write_text("")
    with pytest.raises(StoreError, match="checkpoints"):
        await ready()


LORA = {"finetuning_type": "lora", "lora_rank": 4}


@pytest.mark.parametrize("processes", [1, 2])
async def test_an_adapter_is_merged_and_published_as_a_model(ready, run, processes):
    result = await ready(train={"nproc_per_node": processes}, **LORA)
    folder = run.checkpoints / result.name
    names = {path.name for path in folder.iterdir()}
    assert {"model.safetensors", "config.json", "trainer_state.json", "checkpoint.json", "adapter"} <= names
    assert "Modelfile" not in names
    files = sorted(path.name for path in (folder / "adapter").iterdir())
    assert files == ["adapter_config.json", "adapter_model.safetensors"]
    assert (result.steps, result.resumable, result.loss) == (4, False, 2.5)
    merged = json.loads((folder / "config.json").read_text())["merged"]
    assert (merged["model_name_or_path"], merged["finetuning_type"], merged["infer_dtype"]) == ("tiny", "lora", "auto")
    assert merged["adapter_name_or_path"].endswith("checkpoint-4")
    assert merged["template"] == settings_for().policy_config.template
    assert [path.name for path in run.checkpoints.iterdir()] == [result.name]


@pytest.mark.parametrize(("behave", "words"), [("fail to merge", "bad merge"), ("merge by half", "no whole weights")])
async def test_a_merge_that_fails_is_taken_up_without_training_again(ready, run, behave, words):
    with pytest.raises(JobError, match=words):
        await ready(behave, **LORA)
    assert checkpoints.current(run) is None
    trained = len(named(ready.events, "train"))
    result = await ready(again=True, **LORA)
    assert len(named(ready.events, "train")) == trained == 4
    assert named(ready.events, "train_start")[-1]["mode"] == "finished"
    assert len(named(ready.events, "train_merge")) == 1
    assert (run.checkpoints / result.name / "model.safetensors").stat().st_size > 128


async def test_a_merge_that_was_done_is_not_done_again(ready, run, monkeypatch):
    def full(*_):
        raise StoreError("disk full")

    with monkeypatch.context() as patch, pytest.raises(StoreError, match="disk full"):
        patch.setattr("webgym_cli.train.publish.publish", full)
        await ready(**LORA)
    result = await ready("fail to merge", again=True, **LORA)
    assert (run.checkpoints / result.name / "model.safetensors").is_file()


async def test_the_merged_weights_keep_the_precision_of_the_model(ready, run, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    weights(model / "model.safetensors")
    (model / "config.json").write_text('{"text_config": {"dtype": "bfloat16"}}')
    result = await ready(model=model, **LORA)
    merged = json.loads((run.checkpoints / result.name / "config.json").read_text())["merged"]
    assert merged["infer_dtype"] == "bfloat16"


async def test_a_disk_that_is_too_small_stops_it_before_it_starts(ready, run, tmp_path, monkeypatch):
    model = tmp_path / "model"
    model.mkdir()
    weights(model / "model.safetensors", 4 * 10**6)
    free = shutil.disk_usage(tmp_path)._replace(free=10**6)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: free)
    with pytest.raises(StoreError, match=r"needs about 0\.016 GB of disk, 0\.001 GB are free"):
        await ready(model=model)
    assert not named(ready.events, "train_start")
    await ready(again=True, model=model, train={"check_disk_space": False})


async def test_an_optimizer_that_can_not_be_built_stops_it_before_it_starts(ready, run, role, tmp_path):
    (role / "bin/python").write_text("#!/bin/sh\necho 'RuntimeError: g++ not found' >&2\nexit 1\n")
    with pytest.raises(VenvError, match=r"CPUAdamBuilder.*g\+\+ not found") as caught:
        await ready(deepspeed_config_filename="ds_config_h100_zero2_offload.json")
    assert "without offload" in caught.value.hint
    assert not named(ready.events, "train")
    built = under_torchrun(role, "*CPUAdamBuilder*) exit 0;;")
    (role / "bin/python").write_text(f"#!/bin/sh\n{built}exit 1\n")
    await ready(again=True, deepspeed_config_filename="ds_config_h100_zero2_offload.json")
