import hashlib
import json
import re
import shutil
from pathlib import Path
from unittest.mock import AsyncMock

import pytest

from tests.train.fake_checkpoints import checkpoint, published, weights
from tests.train.train_data import prepare, rows, settings_for
from webgym_cli.config.train import LogSettings
from webgym_cli.errors import MissingStageError, SettingsError, UsageError, VenvError
from webgym_cli.jobs import devices
from webgym_cli.loop.training import plan_training
from webgym_cli.prepare.sft.train_config import refresh_train_config
from webgym_cli.store.run import RunDir, run_id
from webgym_cli.train import plan as train_plan
from webgym_cli.train import working_dir
from webgym_cli.train.llamafactory import optimizer_carryover
from webgym_cli.train.llamafactory.dataset import PLACES, read_train_config, total_steps
from webgym_cli.train.llamafactory.optimizer_carryover import UNUSABLE, build_start
from webgym_cli.train.llamafactory.rendering import require_same_rendering
from webgym_cli.util.files import read_json, write_json
from webgym_cli.util.json_values import digest_json

NAME = "model_20260109_000000"
ALONE = ("--standalone", "--nproc_per_node")


@pytest.fixture
def ready(run, role, tmp_path):
    """A prepared run; returns how to plan its training."""

    def plan(samples=4, digest="d0", environ=None, name=NAME, again=True, train=None, **algorithm):
        settings = settings_for(role=role, train=train, **algorithm)
        if again:
            prepare(run, settings, rows(tmp_path / "images", samples), name, digest)
        return plan_training(run, settings, environ or {})

    return plan


def interrupt(plan, step=2, **facts):
    folder = checkpoint(plan.folder / f"checkpoint-{step}", step=step, **facts)
    write_json(plan.folder / working_dir.RECORD, plan.start.training.model_dump(mode="json"))
    return folder


def test_the_first_training_is_fresh(ready, run, role, monkeypatch):
    with pytest.raises(MissingStageError) as caught:  # without a dataset
        ready(again=False)
    assert (caught.value.hint, caught.value.exit_code) == (f"webgym prepare {run.root}", 3)
    monkeypatch.setenv("WANDB_API_KEY", "secret-key")
    plan = ready(samples=5)
    assert (plan.start.mode, plan.data.parent, plan.total_steps) == ("fresh", "tiny", 4)
    assert plan.launch.argv == (str(role / "bin/llamafactory-cli"), "train", "launch.yaml")
    assert plan.overrides == {"output_dir": str(run.checkpoints / f"{NAME}.partial")}
    assert plan.launch.env["OMP_NUM_THREADS"] == "1"
    assert plan.options["learning_rate"] == 1e-3
    assert not plan.folder.exists()
    assert "secret-key" not in json.dumps(plan.to_json())


def test_a_dataset_that_was_trained(ready, run):
    ready()
    published(run, 1)
    with pytest.raises(MissingStageError, match="already trained"):
        ready(again=False)


def test_a_dataset_for_another_parent(ready, run):
    published(run, 1)
    ready()
    (run.checkpoints / "model_20260101_000000").rename(run.checkpoints / "model_20260102_000000")
    record = run.checkpoints / "model_20260102_000000/checkpoint.json"
    record.write_text(record.read_text().replace("model_20260101", "model_20260102"))
    with pytest.raises(MissingStageError):
        ready(again=False)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        *(("prepared.json", text) for text in ("", "{", '{"iteration": "x"}', "[]", '{"iteration": 0}')),
        *(("train_config.yaml", text) for text in ("", "a: [", "- 1", "stage: sft", "a: \x01", f"a: {'[' * 3000}")),
    ],
)
def test_a_damaged_file_of_the_dataset_is_named(ready, run, file, text):
    ready()
    (run.dataset / file).write_text(text)
    with pytest.raises(UsageError if file.endswith("yaml") else Exception, match=re.escape(file)) as caught:
        ready(again=False)
    assert caught.value.exit_code in (1, 2)


@pytest.mark.parametrize(
    ("error", "kind"),
    [(FileNotFoundError, MissingStageError), (PermissionError, UsageError), (NotADirectoryError, UsageError)],
)
def test_a_training_s_configuration_that_can_not_be_read(ready, run, monkeypatch, error, kind):
    ready()

    def refuse(path, *arguments, **options):
        raise error(path)

    monkeypatch.setattr(Path, "read_text", refuse)
    monkeypatch.setattr(Path, "exists", refuse)
    with pytest.raises(kind, match=r"train_config\.yaml: "):
        read_train_config(run)


def test_a_run_that_was_copied_trains_on_its_own_files(ready, run):
    before = ready()
    copy = RunDir(run.root.with_name("copy"))
    shutil.copytree(run.root, copy.root)
    train_plan = plan_training(copy, settings_for(role=before.launch.python.parent.parent), {})
    assert (train_plan.launch.config["dataset_dir"], train_plan.folder.parent) == (str(copy.dataset), copy.checkpoints)
    assert str(run.root / "") not in json.dumps(train_plan.to_json() | train_plan.options)
    assert train_plan.start.training == before.start.training


def test_samples_of_an_older_version_that_name_another_folder(ready, run, tmp_path):
    def write(image):
        content = json.dumps([{"conversations": [], "images": [image]}])
        (run.dataset / "finetune_train.json").write_text(content)
        prepared = run.dataset / "prepared.json"
        digests = {"data_digest": hashlib.sha256(content.encode()).hexdigest()}
        write_json(prepared, read_json(prepared) | digests)

    ready()
    write(str(run.screenshots / "3f/3f.png"))
    ready(again=False)
    write(str(tmp_path / "elsewhere/3f.png"))
    with pytest.raises(MissingStageError, match="moved or copied") as caught:
        ready(again=False)
    assert caught.value.hint == f"webgym prepare {run.root}"


def test_samples_that_were_edited_are_noticed(ready, run):
    plan = ready()
    interrupt(plan)
    assert ready(again=False).start.mode == "continued"
    file = run.dataset / "finetune_train.json"
    file.write_text(file.read_text().replace("find it", "find this"))
    edited = ready(again=False)
    assert (edited.start.mode, edited.start.training.data_digest == plan.start.training.data_digest) == ("fresh", False)
    assert any("edited by hand" in note for note in edited.notes)
    file.unlink()
    with pytest.raises(MissingStageError, match=r"finetune_train\.json"):
        ready(again=False)


def test_a_missing_llamafactory_and_a_missing_deepspeed_file_are_named(ready, run, role):
    ready(deepspeed_config_filename="ds_config_cpu_zero1.json")
    (run.dataset / "deepspeed.json").unlink()
    with pytest.raises(SettingsError, match=r"deepspeed\.json"):
        ready(again=False)
    (role / "bin/llamafactory-cli").unlink()
    with pytest.raises(VenvError, match="llamafactory-cli"):
        ready()


@pytest.mark.parametrize("processes", [1, 2])
def test_deepspeed_is_started_by_torchrun(ready, role, processes):
    plan = ready(deepspeed_config_filename="ds_config_cpu_zero2.json", train={"nproc_per_node": processes})
    torchrun = ("-m", "torch.distributed.run", *ALONE, str(processes))
    assert plan.launch.argv == (str(role / "bin/python"), *torchrun, "-m", "llamafactory.launcher", "launch.yaml")
    assert (plan.start.training.world_size, plan.start.training.zero_stage) == (processes, 2)


def test_one_process_of_several_gpus_is_started_by_torchrun(ready, role, monkeypatch):
    monkeypatch.setattr(train_plan, "resolve_device", lambda setting: "cuda")
    monkeypatch.setattr(devices, "present", lambda: 8)
    plan = ready(train={"nproc_per_node": 1})  # llamafactory-cli would train in eight
    assert plan.launch.argv[:6] == (str(role / "bin/python"), "-m", "torch.distributed.run", *ALONE, "1")


def test_several_machines_count(ready):
    plan = ready(samples=8, train={"executor": "ray", "nodes": 2, "nproc_per_node": 2}, num_train_epochs=1)
    assert (plan.start.training.world_size, plan.total_steps) == (4, 1)


def test_a_deepspeed_file_that_is_set_after_prepare_is_planned_with(ready, run, role):
    ready()
    file = run.dataset.resolve() / "deepspeed.json"
    prepared = run.dataset / "prepared.json"
    digests = {"config_digest": hashlib.sha256((run.dataset / "train_config.yaml").read_bytes()).hexdigest()}
    write_json(prepared, read_json(prepared) | digests)
    settings = settings_for(role=role, deepspeed_config_filename="ds_config_cpu_zero2.json")
    assert plan_training(run, settings, {}).start.training.zero_stage == 2
    assert not file.exists()
    refresh_train_config(run, settings, lambda event: None)
    file.write_text('{"zero_optimization": {"stage": 1}}')  # edited: trained as it stands, whatever else is renewed
    changed = settings_for(role=role, deepspeed_config_filename="ds_config_cpu_zero2.json", learning_rate=0.5)
    plan = plan_training(run, changed, {})
    assert (plan.start.training.zero_stage, plan.launch.config["learning_rate"]) == (1, 0.5)


@pytest.mark.parametrize(("given", "run_with"), [("no", "steps"), ("best", "steps"), ("epoch", "epoch")])
def test_the_last_step_is_saved_because_it_is_the_policy(ready, given, run_with):
    assert ready(train={"extra": {"save_strategy": given}}).options["save_strategy"] == run_with


async def test_moments_are_carried_from_the_parent(ready, run, monkeypatch):
    parent = published(run, 1)
    plan = ready()
    assert (plan.start.mode, plan.start.source, plan.start.training.carried) == ("carried", parent, True)
    assert plan.overrides["warmup_steps"] == 0
    assert plan.overrides["resume_from_checkpoint"].endswith(f"{NAME}.start")
    monkeypatch.setattr(optimizer_carryover, "run_within", AsyncMock(return_value=UNUSABLE))
    (run.root / "log").write_text("webgym: why\n")
    fresh = await build_start(plan, settings_for(), run.root / "log", lambda event: None)
    assert (fresh.start.mode, fresh.options["warmup_steps"], fresh.start.training.carried) == ("fresh", 2, False)
    assert "resume_from_checkpoint" not in fresh.options
    assert fresh.start.note == "the optimizer starts fresh: why"


def test_moments_are_carried_from_a_base_model_that_has_them(run, role, tmp_path):
    base = checkpoint(tmp_path / "model.pt")

    def plan(**train):
        settings = settings_for(base, role=role, train=train)
        prepare(run, settings, rows(tmp_path / "images", 4), NAME)
        return plan_training(run, settings, {})

    assert (plan().start.mode, plan().start.source, plan().overrides["warmup_steps"]) == ("carried", base, 0)
    assert "keep_optimizer_state" in plan(keep_optimizer_state=False).notes[-1]
    (base / "trainer_state.json").unlink()
    assert (plan().start.mode, plan().notes) == ("fresh", ())


def test_a_parent_without_states_or_with_an_adapter_gives_its_weights_only(ready, run):
    parent = published(run, 1)
    plan = ready(finetuning_type="lora")
    assert (plan.start.mode, "moments are not" in plan.notes[-1]) == ("fresh", True)
    (parent / "optimizer.pt").unlink()
    plan = ready()
    assert (plan.start.mode, "no optimizer states" in plan.notes[-1]) == ("fresh", True)


@pytest.mark.parametrize(
    ("before", "processes", "stage", "reason"),
    [
        (2, 2, 1, ""),
        (2, 1, 1, "2 process(es), this training has 1"),
        (1, 2, 1, "1 process(es), this training has 2"),
        (2, 2, 3, "ZeRO-1, this training uses DeepSpeed ZeRO-3"),
        (2, 2, None, "ZeRO-1, this training uses no DeepSpeed"),
    ],
)
def test_deepspeed_states_fit_the_same_stage_and_size_only(ready, run, before, processes, stage, reason):
    facts = {"data_digest": "d", "config_digest": "c", "parent": "p", "carried": False, "world_size": before}
    training = working_dir.TrainingIdentity(**facts, zero_stage=1)
    published(run, 1, training=training, world_size=before, zero=True)
    name = stage and f"ds_config_cpu_zero{stage}.json"
    plan = ready(deepspeed_config_filename=name, train={"nproc_per_node": processes})
    assert plan.start.mode == ("fresh" if reason else "carried")
    assert reason in "".join(plan.notes)


@pytest.mark.parametrize("stage", [None, 1])
@pytest.mark.parametrize(("before", "now"), [(2, 1), (1, 2)])
def test_an_interrupted_training_of_other_processes_starts_over_and_says_so(ready, stage, before, now):
    algorithm = {"deepspeed_config_filename": stage and f"ds_config_cpu_zero{stage}.json"}
    interrupt(ready(train={"nproc_per_node": before}, **algorithm), world_size=before, zero=stage is not None)
    plan = ready(again=False, train={"nproc_per_node": now}, **algorithm)
    assert plan.start.mode == "fresh"
    assert f"interrupted with {before} process(es) and can't go on with {now}" in plan.notes[-1]
    again = ready(again=False, train={"nproc_per_node": before}, **algorithm)
    assert (again.start.mode, len(again.notes)) == ("continued", 1)


def test_an_interrupted_training_goes_on(ready):
    here = interrupt(ready(), step=3)
    plan = ready(again=False)
    assert (plan.start.mode, plan.start.source) == ("continued", here)
    assert plan.overrides["resume_from_checkpoint"] == str(here)
    assert "warmup_steps" not in plan.overrides


def test_a_carried_training_that_goes_on_has_no_warm_up(ready, run):
    published(run, 1)
    interrupt(ready())
    plan = ready(again=False)
    assert (plan.start.mode, plan.overrides["warmup_steps"], plan.start.training.carried) == ("continued", 0, True)


def test_goes_on_from_the_newest_whole_checkpoint_and_starts_over_without_one(ready):
    plan = ready()
    whole = interrupt(plan, step=2)
    torn = checkpoint(plan.folder / "checkpoint-3", step=3)
    (torn / "optimizer.pt").write_bytes((torn / "optimizer.pt").read_bytes()[:50])
    assert ready(again=False).start.source == whole
    (whole / "trainer_state.json").write_text('{"global_')
    assert ready(again=False).start.mode == "fresh"


def test_other_data_or_settings_start_over(ready):
    interrupt(ready())
    assert ready(digest="d1").start.mode == "fresh"
    assert ready(learning_rate=2e-3).start.mode == "fresh"
    assert ready().start.mode == "continued"


def test_a_dataset_prepared_again_under_another_name_goes_on(ready):
    first = ready()
    interrupt(first)
    plan = ready(name="model_20260110_000000")
    assert (plan.start.mode, plan.start.adopted) == ("continued", first.folder)
    assert plan.start.source == plan.folder / "checkpoint-2"


@pytest.mark.parametrize(("step", "mode"), [(3, "continued"), (4, "finished")])
def test_a_training_by_hand_is_taken_over(ready, run, step, mode):
    plan = ready()
    checkpoint(run.checkpoints / NAME / f"checkpoint-{step}", step=step)
    plan = ready(again=False)
    assert (plan.start.mode, plan.start.adopted) == (mode, run.checkpoints / NAME)


def test_a_training_that_made_all_its_steps_is_not_run_again(ready):
    last = interrupt(ready(save_only_model=True), step=4)
    (last / "optimizer.pt").unlink()  # what has no states to go on from can still be published
    plan = ready(again=False, save_only_model=True)
    assert (plan.start.mode, plan.start.source) == ("finished", last)
    assert "resume_from_checkpoint" not in plan.options
    assert "publication is missing" in plan.notes[-1]
    assert ready(digest="d1", save_only_model=True).start.mode == "fresh"


def test_an_interrupted_training_of_a_run_that_was_moved_goes_on(ready, run, role, tmp_path):
    published(run, 1)
    plan = ready()
    interrupt(plan)
    record, config = plan.folder / working_dir.RECORD, read_train_config(run)
    kept = {name: value for name, value in config.items() if name not in PLACES}
    older = digest_json(kept | {"deepspeed": plan.launch.deepspeed})  # it names the run's place
    write_json(record, plan.start.training.model_dump(mode="json") | {"config_digest": older})
    assert ready(again=False).start.training.config_digest == older != plan.start.training.config_digest
    write_json(record, plan.start.training.model_dump(mode="json"))
    moved = RunDir(run.root.rename(tmp_path / "moved"))
    assert plan_training(moved, settings_for(role=role), {}).start.mode == "continued"
    for name in ("lr[1]", "a*", "a?"):
        moved = RunDir(moved.root.rename(tmp_path / name))
        with pytest.raises(UsageError, match="pattern of files"):
            plan_training(moved, settings_for(role=role), {})


def test_the_plan_of_a_local_model_tells_what_the_disk_must_hold_and_needs_no_network(run, role, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    weights(model / "model.safetensors", 400)
    settings = settings_for(model=model, role=role)
    prepare(run, settings, rows(tmp_path / "images", 2), NAME)
    plan = plan_training(run, settings, {})
    # 100 numbers in fp32: 400 bytes of weights twice, 800 of moments
    assert plan.to_json()["disk_bytes"] == 1600
    assert (plan.launch.placement.device, plan.launch.env["HF_HUB_OFFLINE"]) == ("cpu", "1")
    model.rename(tmp_path / "moved")
    with pytest.raises(MissingStageError, match="model_name_or_path"):
        plan_training(run, settings, {})


@pytest.mark.parametrize(
    ("visible", "setting", "processes"),
    [("0,1,2", None, 3), ("0,1,2", 2, 2), ("0,-1,2", None, 1), ("MIG-1a", None, 1), ("GPU-1a,GPU-2b", None, 2)],
)
def test_processes_follow_the_gpus_that_can_be_used(monkeypatch, visible, setting, processes):
    monkeypatch.setattr(devices, "present", lambda: 4)
    settings = settings_for(train={"nproc_per_node": setting})
    assert train_plan.count_processes(settings, "cuda", {"CUDA_VISIBLE_DEVICES": visible}) == processes
    assert train_plan.count_processes(settings, "cpu", {"CUDA_VISIBLE_DEVICES": visible}) == (setting or 1)


def test_a_training_takes_the_gpus_that_the_settings_name(monkeypatch):
    monkeypatch.setattr(devices, "present", lambda: 8)
    settings = settings_for(train={"gpus": ["4", "5", "6"]})
    assert train_plan.count_processes(settings, "cuda", {}) == 3
    with pytest.raises(SettingsError, match=r"train\.gpus: CUDA_VISIBLE_DEVICES=0,4 hides 5, 6"):
        train_plan.count_processes(settings, "cuda", {"CUDA_VISIBLE_DEVICES": "0,4"})
    where = {"model": "owner/model", "folder": Path("folder")}
    assert train_plan.trainer_env(settings, "cuda", **where)["CUDA_VISIBLE_DEVICES"] == "4,5,6"
    assert "CUDA_VISIBLE_DEVICES" not in train_plan.trainer_env(settings, "cpu", **where)


def test_processes_without_the_variable(monkeypatch):
    monkeypatch.setattr(devices, "present", lambda: 8)
    assert train_plan.count_processes(settings_for(), "cuda", {}) == 8
    monkeypatch.setattr(devices, "present", lambda: 0)  # a driver that shows no device files
    assert train_plan.count_processes(settings_for(), "cuda", {}) == 1
    assert train_plan.count_processes(settings_for(train={"nproc_per_node": 4}), "cuda", {}) == 4


@pytest.mark.parametrize(
    ("visible", "setting", "words"),
    [("", None, "hides every GPU"), ("-1", 2, "hides every GPU"), ("0,1", 4, "4 processes need as many GPUs, 2 can")],
)
def test_gpus_that_do_not_suffice_are_named(monkeypatch, visible, setting, words):
    monkeypatch.setattr(devices, "present", lambda: 8)
    settings = settings_for(train={"nproc_per_node": setting})
    with pytest.raises(UsageError, match=words) as caught:
        train_plan.count_processes(settings, "cuda", {"CUDA_VISIBLE_DEVICES": visible})
    assert caught.value.hint


@pytest.mark.parametrize("given", [("--chat-template", "x.jinja"), ("--default_chat_template_kwargs={}",)])
async def test_prompts_by_a_chat_template_that_vllm_alone_has_are_no_data_to_compare(run, tmp_path, given):
    write_json(tmp_path / "model" / "config.json", {"model_type": "qwen3"})
    settings = settings_for(tmp_path / "model", train={"check_template": True})
    settings = settings.with_changes(serve={"extra_args": given})
    prepare(run, settings, rows(tmp_path / "images", 1), NAME)
    with pytest.raises(SettingsError, match=r"^serve\.extra_args: .* by --\S*chat-template") as caught:
        await require_same_rendering(run, settings, run.logs)
    assert "train.check_template=false" in caught.value.hint


def test_a_strange_folder_in_the_way_is_named(ready, run):
    (run.checkpoints / NAME).mkdir(parents=True)
    with pytest.raises(UsageError, match="in the way"):
        ready()


def wandb(role):
    package = role / "lib/python3.11/site-packages/wandb"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()


def test_wandb_without_a_key_stays_offline(ready, role, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    wandb(role)
    plan = ready(report_to="wandb")
    assert (plan.launch.env["WANDB_MODE"], plan.launch.env["WANDB_PROJECT"]) == ("offline", "rl")
    assert "WANDB_API_KEY is not set" in plan.notes[0]
    assert ready(report_to="wandb", environ={"WANDB_API_KEY": "k"}).launch.env["WANDB_MODE"] == "online"
    offline = ready(report_to="wandb", environ={"WANDB_API_KEY": "k", "WANDB_MODE": "offline"})
    assert (offline.launch.env["WANDB_MODE"], offline.overrides.get("report_to")) == ("offline", None)
    disabled = ready(report_to="wandb", environ={"WANDB_API_KEY": "k", "WANDB_MODE": "disabled"})
    assert ("WANDB_MODE" in disabled.launch.env, disabled.overrides["report_to"]) == (False, "none")


def test_the_wandb_run_is_that_of_today_s_settings_with_the_file_s_tags_and_notes(
    ready, run, role, monkeypatch, tmp_path
):
    monkeypatch.setenv("HOME", str(tmp_path))
    wandb(role)
    first = ready(report_to="wandb").launch.env
    assert first["WANDB_RUN_ID"] == run_id(run, settings_for())
    lines = (
        "LD_PRELOAD=/evil",
        f"WANDB_PROJECT=mine\ntouch {tmp_path}/executed",
        "WANDB_NOTES=$(id)",
        "WANDB_TAGS=a,b",
    )
    (run.dataset / "wandb_env.sh").write_text("".join(f"export {line}\n" for line in lines))
    log = LogSettings(project_name="second", entity_name="team", run_name="other")
    settings = settings_for(role=role, report_to="wandb").model_copy(update={"log_config": log})
    env = plan_training(run, settings, {}).launch.env
    names = {"WANDB_PROJECT": "second", "WANDB_ENTITY": "team", "WANDB_RUN_NAME": "other"}
    assert env == first | names | {"WANDB_NOTES": "$(id)", "WANDB_TAGS": "a,b"}
    assert not (tmp_path / "executed").exists()


def test_wandb_that_is_not_installed_is_left_out(ready):
    plan = ready(report_to="wandb")
    assert plan.overrides["report_to"] == "none"
    assert "not installed" in plan.notes[0]


@pytest.mark.parametrize(
    ("samples", "batch", "accumulation", "epochs", "world", "steps"),
    [(10, 2, 2, 2, 1, 6), (1, 8, 8, 1, 1, 1), (1, 8, 8, 0.1, 1, 1), (9, 2, 1, 1, 2, 3), (10, 3, 4, 2.5, 1, 3)],
)
def test_steps_are_counted_as_the_trainer_does(samples, batch, accumulation, epochs, world, steps):
    config = {"per_device_train_batch_size": batch, "gradient_accumulation_steps": accumulation}
    assert total_steps(config | {"num_train_epochs": epochs}, samples, world) == steps
    assert total_steps(config | {"max_steps": 5}, samples, world) == 5
