"""Training backends and advantage estimators of a user, from files outside the package."""

import contextlib
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests import forked
from tests.prepare.buffer import fill
from tests.records.builders import trajectory
from tests.train.train_data import prepare, rows, settings_for
from webgym_cli.config.load import load
from webgym_cli.errors import SettingsError
from webgym_cli.store import checkpoints
from webgym_cli.store.metrics import read_batches
from webgym_cli.store.run import RunDir, create_or_open
from webgym_cli.train.registry import BACKENDS, check_algorithm, find_backend
from webgym_cli.util.files import write_json
from webgym_cli.util.registry import portable_plugins

NAME = "model_20260109_000000"
ROOT = Path(__file__).resolve().parents[2]
webgym = partial(forked.webgym, cwd=ROOT)
SCRIPT = """
import json, os, pathlib, shutil, sys
told = json.loads(pathlib.Path(sys.argv[1]).read_text())
samples = json.loads((pathlib.Path(told["data"]) / "finetune_train.json").read_text())
before = told["resume_from_checkpoint"]
(pathlib.Path(told["output_dir"]) / "begun").write_text(f"{len(samples)} {before and pathlib.Path(before).name}")
for step in (1, 2):
    out = pathlib.Path(told["output_dir"]) / f"checkpoint-{step}"
    if out.exists():
        continue
    out.mkdir()
    (out / "model.safetensors").write_bytes(pathlib.Path(os.environ["WEIGHTS"]).read_bytes())
    (out / "config.json").write_text(json.dumps({"extra": told["extra"], "begun": open("begun").read()}))
    (out / "trainer_state.json").write_text(json.dumps({"global_step": step, "max_steps": 2}))
    if "DIE" in os.environ:
        sys.exit("ValueError: bad luck")
"""
PLUGIN = """
from pathlib import Path
from webgym_cli.train.registry import BACKENDS
from webgym_cli.train.script import script_backend

BACKENDS.register("toy_trainer", script_backend(Path(__file__).with_name("toy_train.py"), data="dataset"))
"""


@pytest.fixture
def plugin(tmp_path) -> Path:
    (tmp_path / "toy_train.py").write_text(SCRIPT)
    file = tmp_path / "toy.py"
    file.write_text(PLUGIN)
    return file


def test_a_script_of_a_plugin_trains_is_interrupted_and_goes_on(tmp_path, plugin, run, role):
    from tests.train.fake_checkpoints import weights

    settings = settings_for(role=role)
    prepare(run, settings, rows(tmp_path / "images", 3), NAME)
    weights(tmp_path / "model.safetensors")
    given = ("-s", f'plugins=["{plugin}"]', "-s", "train.algorithm=toy_trainer", "-s", 'train.extra={"speed": 3}')
    env = {"WEIGHTS": str(tmp_path / "model.safetensors")}
    planned = webgym("train", run.root, *given, "--dry-run", "--json")
    plan = json.loads(planned.stdout)
    assert plan["argv"] == [sys.executable, str(tmp_path / "toy_train.py"), "launch.json"]
    webgym("train", run.root, *given, code=4, **env, DIE="1")
    assert "train" in webgym("status", run.root, "--json").stdout
    run = RunDir(run.root.rename(tmp_path / "moved"))
    webgym("resume", run.root, "--dry-run", "--trust", **env)
    # The interrupted run names its plugin itself, which a new interpreter has to find again.
    resume = [sys.executable, "-m", "webgym_cli", "resume", str(run.root)]
    resumed = subprocess.run(resume, capture_output=True, text=True, timeout=120, env={**os.environ, **env}, cwd=ROOT)
    assert resumed.returncode == 0, resumed.stderr
    checkpoint = checkpoints.current(run)
    assert (checkpoint.name, checkpoint.algorithm, checkpoint.version, checkpoint.steps) == (NAME, "toy_trainer", 1, 2)
    record = json.loads((checkpoints.folder(run, checkpoint) / "config.json").read_text())
    assert record == {"extra": {"speed": 3}, "begun": "3 checkpoint-1"}
    assert NAME in webgym("status", run.root, "--json").stdout


@pytest.mark.parametrize("name", ["grpo", "webrl"])
def test_an_algorithm_that_is_unknown_or_does_not_fit_the_settings_is_refused(name):
    with pytest.raises(SettingsError, match="no training backend or advantage estimator 'gropo'") as caught:
        find_backend("gropo")
    assert "did you mean grpo?" in caught.value.hint
    with pytest.raises(SettingsError, match=r"needs agent\.greedy_chain=true"):
        check_algorithm(settings_for(train={"algorithm": "remax"}))
    given = [f"train.algorithm={name}", 'filters.difficulties=["easy"]']
    with pytest.raises(SettingsError, match=r"filters\.difficulties") as caught:
        check_algorithm(load(overrides=given))
    assert "-s filters.difficulties=[]" in caught.value.hint
    check_algorithm(load(overrides=[*given, "loop.demonstration_iterations=1"]))


@pytest.mark.parametrize("algorithm", ["train.algorithm=sft", "loop.demonstration_iterations=1"])
@pytest.mark.parametrize(
    ("extra", "hint"),
    [
        ({"cutoff_len": 60}, "leave it out, and -s algorithm_config.cutoff_len=60"),
        ({"use_dora": True, "warmup_ratio": 0.1}, "leave it out, and -s algorithm_config.warmup_steps=0.1"),
        ({"model_name_or_path": "m"}, "leave it out, and -s policy_config.base_model=m"),
        ({"image_max_pixels": 4096}, "leave it out, and -s image.image_max_pixels=4096"),
        ({"save_strategy": "epoch", "freeze_extra_modules": ["a"]}, ""),
    ],
)
def test_extra_keys_that_have_a_setting_of_their_own_are_refused_before_anything_is_rolled_out(extra, hint, algorithm):
    given = load(overrides=["train.algorithm=grpo", f"train.extra={json.dumps(extra)}"])
    check_algorithm(given)
    with pytest.raises(SettingsError) if hint else contextlib.nullcontext() as caught:
        check_algorithm(load(overrides=["train.algorithm=grpo", algorithm, f"train.extra={json.dumps(extra)}"]))
    assert not hint or caught.value.hint == hint


@pytest.mark.parametrize("name", ["grpo", "webrl"])
def test_a_model_that_mixes_packed_sequences_is_refused_before_anything_is_rolled_out(name, tmp_path):
    layers = ["linear_attention", "full_attention"]
    write_json(tmp_path / "config.json", {"model_type": "qwen3_5", "text_config": {"layer_types": layers}})
    given = [f"train.algorithm={name}", f"policy_config.base_model={tmp_path}"]
    with pytest.raises(SettingsError, match="linear_attention layers") as caught:
        check_algorithm(load(overrides=given))
    assert caught.value.hint == "-s rl.model.use_remove_padding=false trains it"
    check_algorithm(load(overrides=[*given, "rl.model.use_remove_padding=false"]))
    write_json(tmp_path / "config.json", {"text_config": {"layer_types": ["sliding_attention", *layers[1:]]}})
    check_algorithm(load(overrides=given))


@pytest.mark.parametrize("name", ["grpo", "webrl"])
@pytest.mark.parametrize(
    ("config", "change"),
    [
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping=30.0"),
        ({"text_config": {"logits_scaling": 8.0}}, "logits_scaling=8.0"),
        ({"text_config": {"logit_scale": 1.0, "final_logit_softcapping": None}}, ""),
        (None, ""),
    ],
)
def test_a_model_that_changes_its_logits_is_refused_before_anything_is_rolled_out(name, config, change, tmp_path):
    if config is not None:
        write_json(tmp_path / "config.json", config)
    given = [f"train.algorithm={name}", f"policy_config.base_model={tmp_path}"]
    with pytest.raises(SettingsError, match=f"{name}: .*{change}") if change else contextlib.nullcontext() as caught:
        check_algorithm(load(overrides=given))
    assert not change or "train.algorithm=sft" in caught.value.hint
    check_algorithm(load(overrides=given[1:]))


OWN_DATA = """
import hashlib, json
from dataclasses import dataclass
from pathlib import Path
from webgym_cli.prepare.data import PREPARED_DATA, PreparedData
from webgym_cli.records.dataset import TrainingData
from webgym_cli.store import checkpoints
from webgym_cli.train.registry import BACKENDS
from webgym_cli.train.script import script_backend

SCRIPT = Path(__file__).with_name("toy_train.py")


@dataclass
class Plan:
    iteration: int
    read: tuple
    answers: list

    def digest(self):
        return hashlib.sha256(json.dumps(self.answers).encode()).hexdigest()

    def to_json(self):
        return {"event": "plan", "stage": "prepare", "answers": len(self.answers)}


@dataclass
class Record:
    model_name: str
    plan_digest: str
    iteration: int

    def facts(self):
        return vars(self)

    def summarize(self):
        return "the answers"


class Answers(PreparedData):
    def folder(self, run):
        return run.root / "answers"

    def plan(self, run, settings, index, selection=None):
        rows = index.rows("SELECT id FROM trajectories WHERE split = 'train' ORDER BY id")
        return Plan(checkpoints.version(run), (0,), [row["id"] for row in rows])

    def list_members(self, plan, run, settings, index, selection):
        names = {"group_id", "id", "episode"}
        return [{**dict.fromkeys(names, name), "reward": 1.0, "reason": None} for name in plan.answers]

    def write(self, plan, run, settings, sink, scores):  # always given
        record = Record(checkpoints.new_name(run), plan.digest(), plan.iteration)
        self.folder(run).mkdir(exist_ok=True)
        (self.folder(run) / "finetune_train.json").write_text(json.dumps(plan.answers))
        (self.folder(run) / "record.json").write_text(json.dumps(vars(record)))
        return record

    def find_written(self, run):
        file = self.folder(run) / "record.json"
        return Record(**json.loads(file.read_text())) if file.exists() else None

    def read(self, run, settings):
        record = self.find_written(run)
        parent = checkpoints.policy_name(run, settings)
        model = str(checkpoints.policy_path(run, settings))
        return TrainingData(record.model_name, record.iteration, parent, model, record.plan_digest)

    def group_by(self, settings):
        return "chain"


PREPARED_DATA.register("answers", Answers())
BACKENDS.register("toy_trainer", script_backend(SCRIPT, data="answers"))
"""


def test_a_backend_brings_a_kind_of_data_of_its_own(tmp_path, plugin, run, role):
    from tests.train.fake_checkpoints import weights

    plugin.write_text(OWN_DATA)
    weights(tmp_path / "model.safetensors")
    create_or_open(run, settings_for(role=role))
    fill(run, trajectory(0), trajectory(1))
    given = ("-s", f'plugins=["{plugin}"]', "-s", "train.algorithm=toy_trainer", "-s", f"venvs.train={role}")
    planned = webgym("prepare", run.root, *given, "--dry-run", "--json")
    assert json.loads(planned.stdout)["answers"] == 2, planned.stderr
    env = {"WEIGHTS": str(tmp_path / "model.safetensors")}
    for command in ("prepare", "train"):
        webgym(command, run.root, *given, **env)
    assert checkpoints.current(run).algorithm == "toy_trainer"
    assert len(read_batches(run)[0].groups) == 2


def test_what_each_algorithm_is_prepared_as():
    names = ("sft", "grpo", "gae", "webrl")
    assert [find_backend(name).data for name in names] == ["dataset", "batch", "batch", "transitions"]
    assert BACKENDS.names() == ["sft", "webrl"]


def test_plugins_are_found_from_another_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").touch()
    assert portable_plugins(["mine.py", "json"]) == [str(tmp_path / "mine.py"), "json"]
