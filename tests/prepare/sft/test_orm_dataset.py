"""The training set of an outcome reward model as it is written: what `webgym score` would ask, with its answer."""

import json

import pytest
import yaml

from tests.cli.runs import model
from tests.prepare.sft.test_orm_plan import run  # noqa: F401  a fixture
from tests.records.builders import SOLVED, UNSOLVED, new_run, shot, step, trajectory
from webgym_cli.agent.prompts.orm_prompt import SYSTEM, build_orm_prompt
from webgym_cli.config.load import load
from webgym_cli.config.shipped import shipped_root
from webgym_cli.errors import WebGymError
from webgym_cli.loop.orm_preparation import orm_settings, prepare_orm
from webgym_cli.prepare.sft.convert import TEMPLATE_TAIL
from webgym_cli.records.task import Split
from webgym_cli.records.trajectory import Element, Observation
from webgym_cli.store.buffer import append, scan
from webgym_cli.store.metrics import read_events
from webgym_cli.store.prepared import read_prepared
from webgym_cli.store.run import create_or_open, saved_settings
from webgym_cli.train.llamafactory.dataset import read_train_config


@pytest.fixture
def judged(run, tmp_path):  # noqa: F811
    given = [f"policy_config.base_model={model(tmp_path / 'model')}", "policy_config.template=qwen3_vl_nothink"]
    algorithm = ("bf16=false", "deepspeed_config_filename=null", "learning_rate=0.5")
    given += [f"algorithm_config.{text}" for text in algorithm]
    create_or_open(run, load(overrides=[*given, "loop.demonstration_iterations=1", "venvs.device=cpu"]))
    return run


def records(judged, name="train"):
    return json.loads((judged.orm.dataset / f"finetune_{name}.json").read_text())


async def test_the_model_of_a_run_of_raw_prompts_reads_chats(tmp_path):
    """`webrl_released` has Llama 3's control tokens in its texts; what the reward model reads has none."""
    texts = ["context_config.prompt_version=webrl_released", f"policy_config.base_model={model(tmp_path / 'model')}"]
    texts.append("policy_config.template=qwen3_vl_nothink")
    raw = new_run(tmp_path / "raw", load(overrides=[*texts, "algorithm_config.bf16=false", "venvs.device=cpu"]))
    for number, outcome in enumerate((SOLVED, UNSOLVED)):
        append(raw, trajectory(number, outcome=outcome))
    for _ in range(2):  # the second time its settings are those that it has stored
        settings = orm_settings(raw, [], ["algorithm_config.deepspeed_config_filename=null"])
        await prepare_orm(raw, settings, lambda event: None)
    assert saved_settings(raw).context_config.prompt_version == "webrl_released"
    assert saved_settings(raw.orm).context_config.prompt_version == "webrl"
    assert read_train_config(raw.orm)["template"] not in ("", "empty")
    assert "<|eot_id|>" not in json.dumps(records(raw))


async def test_a_sample_is_the_question_that_scoring_asks(judged):
    settings = orm_settings(judged, [], ["algorithm_config.val_split_ratio=0"])
    prepared = await prepare_orm(judged, settings, lambda event: None)
    assert (prepared.train_samples, prepared.val_samples, prepared.iteration) == (4, 0, 0)
    stored = [one for iteration in (0, 1) for one in scan(judged, Split.TRAIN, iteration)]
    contents = {build_orm_prompt(one).messages("")[1].content for one in stored}
    written = records(judged)
    assert {record["system"] for record in written} == {SYSTEM}
    assert {record["conversations"][0]["value"] for record in written} <= contents
    assert sorted(record["conversations"][1]["value"] for record in written) == ["NO", "NO", "YES", "YES"]
    assert all(record["images"] == [] for record in written)
    dropped = json.loads((judged.orm.dataset / "dropped.json").read_text())
    assert (dropped["samples"], dropped["yes"], dropped["no"], dropped["cut"]) == (4, 2, 2, 0)


async def test_the_same_seed_gives_the_same_bytes_and_some_are_held_out(judged):
    settings = orm_settings(judged, [], ["algorithm_config.val_split_ratio=0.25"])
    first = await prepare_orm(judged, settings, lambda event: None)
    before = records(judged), records(judged, "val")
    again = await prepare_orm(judged, settings, lambda event: None)
    assert (first.data_digest, before) == (again.data_digest, (records(judged), records(judged, "val")))
    assert (first.train_samples, first.val_samples) == (3, 1)


async def test_its_run_has_the_recipe_and_the_policy_s_stays(judged):
    settings = orm_settings(judged, [], [])
    await prepare_orm(judged, settings, lambda event: None)
    recipe = yaml.safe_load((shipped_root() / "orm.yaml").read_text())["algorithm_config"]
    config = yaml.safe_load((judged.orm.dataset / "train_config.yaml").read_text())
    wanted = {"learning_rate": 5e-6, "num_train_epochs": 4, "cutoff_len": 16384}
    assert wanted.items() <= config.items()
    assert config["learning_rate"] == recipe["learning_rate"]
    assert saved_settings(judged).algorithm_config.learning_rate == 0.5
    assert read_prepared(judged.orm).parent == settings.policy_config.base_model
    assert (judged.orm.orm_of, judged.orm_of) == (judged, None)
    assert settings.loop.demonstration_iterations == 0, "it would train by loop.demonstration_algorithm"
    assert [event["train_samples"] for event in read_events(judged.orm, "prepare")] == [3]
    assert list(read_events(judged, "prepare")) == []
    assert settings.policy_config.template == "qwen3_vl_nothink"
    later = orm_settings(judged, [], ["algorithm_config.num_train_epochs=1"])
    assert (later.algorithm_config.num_train_epochs, later.algorithm_config.learning_rate) == (1, 5e-6)


async def test_what_is_too_long_is_cut_as_scoring_cuts_it_or_left_out(judged):
    elements = tuple(Element(id=number, role="link", name=f"word {number}", box=(0, 0, 9, 9)) for number in range(300))
    long = Observation(url="http://a/", title="Long", elements=elements, screenshot=shot(0))
    append(judged, trajectory(20, outcome=UNSOLVED, steps=(step(0, observation=long),)))
    options = ["algorithm_config.val_split_ratio=0"]
    settings, seen = orm_settings(judged, [], [*options, "algorithm_config.cutoff_len=500"]), []
    prepared = await prepare_orm(judged, settings, seen.append)
    assert (prepared.train_samples, seen[-1]["cut"], seen[-1]["dropped_trajectories"]["too_long"]) == (6, 1, 0)
    (cut,) = [text for record in records(judged) if "tokens left out]" in (text := record["conversations"][0]["value"])]
    frame = TEMPLATE_TAIL + 1  # YES or NO is one token
    assert 480 < len(f"{SYSTEM} {cut}".split()) <= 500 - frame
    settings = orm_settings(judged, [], ["algorithm_config.cutoff_len=60"])
    with pytest.raises(WebGymError, match="no prompt fits into 57 tokens"):
        await prepare_orm(judged, settings, seen.append)


def test_another_model_has_its_own_template_and_no_file_of_the_shell_s_folder_is_the_recipe(
    judged, tmp_path, monkeypatch
):
    other = orm_settings(judged, [], ["policy_config.base_model=Qwen/Qwen2.5-VL-3B-Instruct"])
    assert other.policy_config.template == "qwen2_vl"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orm").write_text("seed: nonsense")
    assert orm_settings(judged, [], []).algorithm_config.num_train_epochs == 4
