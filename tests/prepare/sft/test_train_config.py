import os
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.tables import each
from webgym_cli.config.model import Settings
from webgym_cli.errors import SettingsError
from webgym_cli.prepare.sft.train_config import build_train_config, build_wandb_env

HOSTILE = ["plain", "a b", "it's; rm -rf ~", '$(id) `id` "x"', "line\nbreak", "=--x", "-n", "\\", "ünïcode 网"]


def config(device="cuda", deepspeed=None, validation=False, samples=None, **sections):
    settings = Settings.model_validate({"policy_config": {"template": "qwen3_vl_nothink"}} | sections)
    places = {"dataset_dir": Path("/run/data"), "output_dir": Path("/run/checkpoints/model_x"), "model": "/m"}
    how = {"deepspeed": deepspeed, "validation": validation, "device": device, "samples": samples}
    return build_train_config(settings, **places, **how)


def test_holds_what_the_seed_documents():
    result = config(deepspeed=Path("/run/data/deepspeed.json"))
    wanted = {
        "stage": "sft",
        "do_train": True,
        "finetuning_type": "full",
        "mask_history": True,
        "dataset": "webgym_training",
        "template": "qwen3_vl_nothink",
        "cutoff_len": 16384,
        "per_device_train_batch_size": 3,
        "gradient_accumulation_steps": 4,
        "learning_rate": 1e-6,
        "num_train_epochs": 2,
        "warmup_steps": 30,
        "lr_scheduler_type": "constant_with_warmup",
        "bf16": True,
        "save_steps": 999999,
        "report_to": "wandb",
        "run_name": "webgym-",
        "deepspeed": "/run/data/deepspeed.json",
        "overwrite_output_dir": False,
    }
    assert wanted.items() <= result.items()
    assert "use_cpu" not in result


TRUSTED = {"template": "qwen3_vl_nothink", "trust_remote_code": True}
PIXELS = {"image_min_pixels": 1000, "image_max_pixels": 2000}


@each(
    ("sections", "wanted"),
    [
        ({}, {"trust_remote_code": None, "disable_gradient_checkpointing": False}),
        ({"policy_config": TRUSTED}, {"trust_remote_code": True}),
        ({"context_config": {"prompt_version": "webrl_released"}}, {"template": "empty"}),
        ({"image": PIXELS}, PIXELS),
        ({"algorithm_config": {"disable_gradient_checkpointing": True}}, {"disable_gradient_checkpointing": True}),
        ({"seed": 5}, {"data_seed": 5}),
        ({"seed": 5, "algorithm_config": {"seed": 0}}, {"data_seed": 0}),
    ],
)
def test_a_setting_has_its_argument(sections, wanted):
    result = config(**sections)
    assert {name: result.get(name) for name in wanted} == wanted


def test_survives_yaml():
    result = config(validation=True)
    assert yaml.safe_load(yaml.safe_dump(result)) == result
    assert yaml.safe_load(yaml.safe_dump(config()))["eval_strategy"] == "no"


def test_evaluates_only_when_asked_and_with_a_validation_set():
    fields = {"do_eval": True}
    assert config(validation=True, algorithm_config=fields)["eval_dataset"] == "webgym_validation"
    for item in (config(algorithm_config=fields), config(validation=True)):
        assert (item["do_eval"], item["eval_strategy"], "eval_dataset" in item) == (False, "no", False)


def test_shares_and_other_integrations_reach_the_trainer():
    fields = {"warmup_steps": 0.1, "save_steps": 0.5, "eval_steps": 0.25, "do_eval": True, "eval_strategy": "steps"}
    result = config(validation=True, algorithm_config={**fields, "report_to": ["tensorboard", "wandb"]})
    assert (fields | {"save_steps": 0.25, "eval_steps": 0.125}).items() <= result.items()  # of two epochs
    assert result["report_to"] == ["tensorboard", "wandb"]
    assert "eval_steps" not in config(algorithm_config={"eval_steps": 3})


@pytest.mark.parametrize(
    ("steps", "epochs", "written"), [(0.5, 1, 0.5), (0.9, 3, 0.3), (7, 2, 7), (1, 2, 1), (0.9, 0.5, 1)]
)
def test_a_fraction_is_one_of_an_epoch_as_in_webgym(steps, epochs, written):
    result = config(algorithm_config={"save_steps": steps, "num_train_epochs": epochs})
    assert result["save_steps"] == pytest.approx(written)
    assert (result["save_steps"] < 1) is (steps < 1), "the trainer takes 1 and more for steps"


def test_cpu_and_bf16_on_one_is_refused_with_the_way_out():
    with pytest.raises(SettingsError) as caught:
        config(device="cpu")
    assert "-s algorithm_config.bf16=false" in caught.value.hint
    result = config(device="cpu", algorithm_config={"bf16": False})
    assert result["use_cpu"] is True and result["dataloader_pin_memory"] is False
    assert "use_cpu" not in config(device="cpu", deepspeed=Path("x"), algorithm_config={"bf16": False})


def test_no_more_workers_than_samples_and_cores():
    assert config(samples=499)["preprocessing_num_workers"] is None
    assert (config(samples=10**6)["preprocessing_num_workers"] or 1) <= len(os.sched_getaffinity(0))


def test_extra_wins():
    result = config(train={"extra": {"cutoff_len": 7, "freeze_vision_tower": False, "use_dora": True}})
    assert (result["cutoff_len"], result["freeze_vision_tower"]) == (7, False)
    assert list(result)[-1] == "use_dora"


def test_lora_is_written_under_llama_factorys_names():
    adapter = {"lora_rank": 16, "lora_target": "q_proj,v_proj"}
    result = config(algorithm_config={"finetuning_type": "lora", **adapter, "freeze_vision_tower": False})
    wanted = {"finetuning_type": "lora", **adapter, "lora_alpha": 32, "freeze_vision_tower": False}
    assert wanted.items() <= result.items()
    assert config(algorithm_config={"finetuning_type": "lora", "lora_alpha": 7})["lora_alpha"] == 7
    assert not [key for key in config() if key.startswith("lora_")]


def test_what_stays_frozen():
    result = config()
    assert (result["freeze_vision_tower"], result["freeze_multi_modal_projector"]) == (True, True)
    assert result["freeze_language_model"] is False
    with pytest.raises(SettingsError, match="nothing learns"):
        config(algorithm_config={"freeze_language_model": True})


@pytest.mark.parametrize("name", HOSTILE)
def test_wandb_env_survives_a_shell(name, tmp_path):
    log = {"run_name": name, "project_name": name, "entity_name": name}
    script = build_wandb_env(Settings.model_validate({"log_config": log}), run_id=name)
    file = tmp_path / "wandb_env.sh"
    file.write_text(script)
    names = " ".join(f'"$WANDB_{name}"' for name in ("PROJECT", "ENTITY", "RUN_NAME", "RUN_ID"))
    command = f'. {shlex.quote(str(file))}; printf "%s\\0" {names}'
    result = subprocess.run(["sh", "-c", command], capture_output=True, check=True, cwd=tmp_path)
    assert result.stdout.decode().split("\0")[:-1] == [name] * 4
    assert os.listdir(tmp_path) == ["wandb_env.sh"]


def test_wandb_env_leaves_out_what_is_not_known_never_holds_a_key_and_refuses_a_nul(monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "secret-key")
    script = build_wandb_env(Settings(), run_id=None)
    assert "WANDB_ENTITY" not in script and "WANDB_RUN_ID" not in script
    assert "export WANDB_RESUME=allow\n" in script
    assert "secret-key" not in build_wandb_env(Settings(), run_id="x")
    with pytest.raises(SettingsError):
        build_wandb_env(Settings.model_validate({"log_config": {"run_name": "a\0b"}}), run_id=None)
