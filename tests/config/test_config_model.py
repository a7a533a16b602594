import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.records.builders import new_run
from tests.tables import each
from webgym_cli.cli.options import SettingsOptions
from webgym_cli.cli.stage import resolve
from webgym_cli.config.algorithm_config import AlgorithmSettings
from webgym_cli.config.load import changed_frozen_keys, flatten, known_keys, load, load_with_sources
from webgym_cli.config.model import FROZEN_FOR_A_RUN, Settings
from webgym_cli.config.model_defaults import resolve_model_defaults
from webgym_cli.config.renamed import REMOVED
from webgym_cli.config.shipped import (
    find_config_file,
    find_deepspeed_file,
    is_offloaded,
    read_deepspeed_file,
    requirements_files,
    shipped_root,
    zero_stage,
)
from webgym_cli.errors import MissingStageError, SettingsError, StoreError
from webgym_cli.records.task import Split
from webgym_cli.store.find_run import open_run
from webgym_cli.store.run import RunDir, create_or_open, refuse_changes
from webgym_cli.util.files import read_json, write_atomic, write_json

SEED_DOCUMENT = {
    "model_output_name": "model.pt",
    "positive_samples_to_train": 1800,
    "recency_bias_power": 2,
    "val_split_ratio": 0.05,
    "cutoff_len": 16384,
    "per_device_train_batch_size": 3,
    "per_device_eval_batch_size": 3,
    "gradient_accumulation_steps": 4,
    "learning_rate": 1e-6,
    "max_grad_norm": 1.0,
    "weight_decay": 0.01,
    "num_train_epochs": 2,
    "warmup_steps": 30,
    "lr_scheduler_type": "constant_with_warmup",
    "logging_steps": 1,
    "bf16": True,
    "do_eval": False,
    "eval_strategy": "epoch",
    "save_strategy": "steps",
    "save_steps": 999999,
    "save_total_limit": 1,
    "save_only_model": False,
    "preprocessing_num_workers": 16,
    "dataloader_num_workers": 2,
    "dataloader_pin_memory": True,
    "remove_unused_columns": False,
    "min_token_length": 10,
    "plot_loss": False,
    "deepspeed_config_filename": "ds_config_b200_zero1.json",
    "report_to": "wandb",
}
"""`algorithm_config` of `update_online.yaml`, as WebGym's page on `update_prepare.py` lists it, without
`gradient_checkpointing: False`, which LLaMA-Factory does not read."""


def test_algorithm_config_has_the_defaults_of_webgym():
    record = AlgorithmSettings().model_dump()
    passed_on = {key.removeprefix("algorithm_config."): removed.value for key, removed in REMOVED.items()}
    record |= {name: passed_on[name] for name in SEED_DOCUMENT.keys() & passed_on.keys()}
    assert {name: record.get(name, "missing") for name in SEED_DOCUMENT} == SEED_DOCUMENT
    assert record["disable_gradient_checkpointing"] is False


def test_the_rest_of_the_page_holds_too():
    loaded_settings = Settings()
    assert loaded_settings.algorithm_config.last_n_iterations == 4
    assert loaded_settings.algorithm_config.filter_successful_only is True
    assert loaded_settings.algorithm_config.filter_same_screenshot is True
    assert loaded_settings.algorithm_config.min_trajectory_steps == 2
    assert loaded_settings.log_config.model_dump(
        exclude={"run_id", "tracking", "sample_trajectories", "wait_seconds"}
    ) == {"run_name": "webgym-", "wandb_key_env_var": "WANDB_API_KEY", "entity_name": "", "project_name": "rl"}


@each("file", sorted(shipped_root().glob("*.yaml")))
def test_a_shipped_file_loads_by_its_name(file):
    assert find_config_file(file.stem) == file
    assert load([file.stem]) != Settings()


@pytest.mark.parametrize("zero", [None, {"stage": 2, "offload_optimizer": None}, {"offload_param": {}}])
def test_what_a_deepspeed_file_leaves_null_is_off(tmp_path, zero):
    write_json(tmp_path / "ds.json", {"zero_optimization": zero})
    read = read_deepspeed_file(tmp_path / "ds.json")
    assert zero_stage(read) == (zero or {}).get("stage", 0)
    assert not is_offloaded(read, "optimizer") and not is_offloaded(read, "param")


@pytest.mark.parametrize("stage", ["auto", None, 4])
def test_a_stage_that_deepspeed_lacks_is_refused(tmp_path, stage):
    write_json(tmp_path / "ds.json", {"zero_optimization": {"stage": stage}})
    with pytest.raises(SettingsError, match=r"ds\.json: zero_optimization\.stage must be 0, 1, 2 or 3$"):
        read_deepspeed_file(tmp_path / "ds.json")


@each("file", sorted(shipped_root().glob("deepspeed/*.json")))
def test_a_shipped_deepspeed_file_is_what_its_name_says(file):
    config = json.loads(file.read_text())
    zero = config["zero_optimization"]
    stage, _, offload = file.stem.partition("zero")[2].partition("_")
    assert zero["stage"] == int(stage)
    offloaded = {name for name in zero if name.startswith("offload_") and zero[name]["device"] == "cpu"}
    assert offloaded == ({"offload_optimizer"} | ({"offload_param"} if stage == "3" else set()) if offload else set())
    assert config["bf16"] == {"enabled": "auto"}
    sizes = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping")
    assert {config[name] for name in sizes} == {"auto"}, "LLaMA-Factory's own settings decide"
    assert find_deepspeed_file(file.name) == file


def test_each_host_has_every_stage_with_and_without_offload():
    names = {file.name for file in shipped_root().glob("deepspeed/*.json")}
    hosts = [f"ds_config_{host}_zero{stage}" for host in ("h100", "h200", "b200") for stage in (1, 2, 3)]
    wanted = {f"{name}{offload}.json" for name in hosts for offload in ("", "_offload")}
    wanted |= {f"ds_config_cpu_zero{stage}.json" for stage in (1, 2, 3)}
    assert {find_deepspeed_file(name).name for name in wanted} == names
    assert find_deepspeed_file(str(AlgorithmSettings().deepspeed_config_filename)).name in names
    assert find_deepspeed_file("ds_config_b200_zero1.json").name == "ds_config_h200_zero1.json"
    contents = [file.read_text() for file in shipped_root().glob("deepspeed/*.json")]
    assert len(set(contents)) == len(contents) == 13


@pytest.mark.parametrize(
    ("system", "processor", "python", "suffixes"),
    [
        ("linux", "x86_64", (3, 11), [".lock"]),
        ("linux", "x86_64", (3, 14), [".lock", ".txt"]),
        ("linux", "aarch64", (3, 11), [".txt"]),
        ("darwin", "x86_64", (3, 11), [".txt"]),
        ("darwin", "arm64", (3, 14), [".txt"]),
    ],
)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_lock_file_is_taken_on_its_platform_only(monkeypatch, system, processor, python, suffixes, device):
    monkeypatch.setattr("sys.platform", system)
    monkeypatch.setattr("sys.version_info", (*python, 0, "final", 0))
    monkeypatch.setattr("platform.machine", lambda: processor)
    files = requirements_files("serve", device)
    assert [file.suffix for file in files] == suffixes and all(file.is_file() for file in files)


@pytest.mark.parametrize("find", [find_config_file, find_deepspeed_file])
def test_a_file_that_is_not_there_names_the_shipped_ones(find):
    with pytest.raises(SettingsError, match="nosuch") as caught:
        find("nosuch")
    assert "demo" in caught.value.hint or "ds_config_h200_zero3.json" in caught.value.hint


def test_the_json_schema_has_a_help_text_from_the_docstrings():
    schema = Settings.model_json_schema()
    assert schema["$defs"]["RolloutSettings"]["properties"]["concurrency"]["description"] == (
        "Maximum number of concurrent episodes, on Ray of each node; null: by the machine's cores and free memory."
    )
    json.dumps(schema)


def test_known_keys_are_those_of_the_settings_and_hold_each_frozen_name():
    keys = known_keys()
    assert set(keys) == {"sites", *flatten(Settings().model_dump(mode="json"))}
    assert all(any(key == name or key.startswith(f"{name}.") for key in keys) for name in FROZEN_FOR_A_RUN)


@each(
    ("override", "changed"),
    [
        ("seed=1", ["seed"]),
        ("tasks.train=miniwob:click-test", ["tasks.train"]),
        ("context_config.history_window=3", ["context_config.history_window"]),
        ("agent.greedy_chain=true", ["agent.greedy_chain"]),
        ("policy_config.base_model=x", ["policy_config.base_model", "policy_config.template"]),
        ("image.image_max_pixels=1000", ["image.image_max_pixels"]),
        ("policy_config.temperature=0", []),
        ("rollout.episodes=3", []),
        ("algorithm_config.learning_rate=1", []),
    ],
)
def test_what_a_run_keeps(override, changed):
    assert changed_frozen_keys(load(), load(overrides=[override])) == changed


def test_what_is_derived_from_a_model_may_follow_when_the_model_comes(tmp_path):
    run, model = RunDir(tmp_path / "run"), tmp_path / "model"
    override = [f"policy_config.base_model={model}"]
    create_or_open(run, load(overrides=override))  # demonstrations need no model
    (run.root / "train_trajectories").mkdir()
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "qwen3_vl"}')
    settings = load(overrides=override, run_config=run.config)
    create_or_open(run, settings)
    assert open_run(run.root)[1].policy_config.template == settings.policy_config.template == "qwen3_vl_nothink"
    with pytest.raises(SettingsError, match=r"policy_config\.template \(qwen3_vl_nothink"):
        create_or_open(run, load(overrides=["policy_config.template=qwen2_vl"], run_config=run.config))


def test_a_file_of_a_run_may_be_named_where_it_was_moved_to(tmp_path):
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "tasks.jsonl").touch()
    (tmp_path / "old" / "tools.py").touch()

    def given(folder):
        place = f'["calculator", "{tmp_path}/{folder}/tools.py:weigh"]'
        return load(overrides=[f"tasks.train={tmp_path}/{folder}/tasks.jsonl", f"agent.tools={place}"])

    before, after = given("old"), given("new")
    assert changed_frozen_keys(before, after) == ["tasks.train", "agent.tools"]
    (tmp_path / "old").rename(tmp_path / "new")
    assert changed_frozen_keys(before, after) == []
    assert changed_frozen_keys(before, load(overrides=["agent.tools=[]"])) == ["agent.tools"]


def test_a_run_refuses_changes_by_name(tmp_path):
    run = new_run(tmp_path / "run")
    before = run.config.read_bytes()
    settings, sources = load_with_sources((), ["seed=1", "context_config.history_window=2", "rollout.episodes=3"])
    with pytest.raises(SettingsError, match=r"seed \(0, not 1 as in -s seed\), context_config\.history_window \("):
        refuse_changes(run, settings, sources)
    with pytest.raises(SettingsError, match=r"keeps these settings: seed .*, context_config\.history_window "):
        create_or_open(run, settings)
    assert run.config.read_bytes() == before
    born = run.provenance.read_bytes()
    create_or_open(run, load(overrides=["rollout.episodes=3"], run_config=run.config))
    assert (open_run(run.root)[1].rollout.episodes, run.provenance.read_bytes()) == (3, born)


def test_a_model_can_be_corrected_before_the_first_episode(tmp_path):
    run = new_run(tmp_path / "run", load(overrides=["policy_config.base_model=org/mistyped"]))
    (tmp_path / "model").mkdir()
    right = load(overrides=[f"policy_config.base_model={tmp_path / 'model'}"], run_config=run.config)
    create_or_open(run, right)
    write_atomic(run.part(Split.TRAIN, 0), "")
    other = load(overrides=["policy_config.base_model=org/other"], run_config=run.config)
    with pytest.raises(SettingsError, match=r"policy_config\.base_model .*, not org/other"):
        create_or_open(run, other)
    run.dataset.mkdir()
    (tmp_path / "model").rename(tmp_path / "moved")  # the run would be lost without it
    create_or_open(run, load(overrides=[f"policy_config.base_model={tmp_path / 'moved'}"], run_config=run.config))


def test_a_run_of_a_newer_version_is_said_to_be_that(tmp_path):
    run = new_run(tmp_path / "run")
    record = read_json(run.provenance)
    write_json(run.provenance, record | {"webgym": "0.1.99"})
    open_run(run.root)
    write_json(run.provenance, record | {"webgym": "99.0.0"})
    for opened in (lambda: open_run(run.root), lambda: resolve(run.root, SettingsOptions())):
        with pytest.raises(StoreError, match=r"a run of webgym 99\.0\.0"):
            opened()
    run.provenance.write_text("{")  # older versions' runs have less, and damage there stops nothing
    write_json(run.config, {"tasks": {"of_tomorrow": 1}})
    with pytest.raises(SettingsError, match="a newer webgym wrote it"):
        open_run(run.root)


def test_settings_that_were_lost_are_named(tmp_path):
    run = new_run(tmp_path / "run", load(overrides=["seed=4"]))
    run.config.unlink()
    for opened in (open_run, lambda root: resolve(root, SettingsOptions())):
        with pytest.raises(StoreError, match=r"config\.json: is missing"):
            opened(run.root)


def test_a_folder_without_a_run_names_the_command_that_makes_one(tmp_path):
    with pytest.raises(MissingStageError) as caught:
        open_run(tmp_path / "x")
    assert caught.value.hint == f"webgym rollout {tmp_path / 'x'}"


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(["\x85", "\x7f", "1e3", "null"])


@settings(max_examples=30)
@given(name=text, args=st.lists(text, max_size=2), extra=st.dictionaries(text, text | st.integers(), max_size=2))
def test_settings_survive_the_run_directory(name, args, extra, tmp_path_factory):
    fields = {"log_config": {"run_name": name}, "browser": {"args": args}, "train": {"extra": extra}}
    loaded_settings = resolve_model_defaults(Settings.model_validate(fields))
    run = new_run(Path(tmp_path_factory.mktemp("run")), loaded_settings)
    assert open_run(run.root)[1] == loaded_settings
