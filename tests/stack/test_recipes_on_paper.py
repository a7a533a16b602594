"""The recipes for GPU hosts without GPUs: the real parsers take each argument, the real shapes are counted."""

import json
from pathlib import Path

import pytest

from benchmarks.model_shapes import PUBLISHED, published_tensors
from webgym_cli.config.load import load
from webgym_cli.config.shipped import find_deepspeed_file
from webgym_cli.prepare.sft.train_config import build_train_config
from webgym_cli.serve.plan import plan_servers

pytestmark = pytest.mark.stack
RECIPES = ("webgym", "webrl", "gsm8k", "gpu-host")
GPUS = tuple(map(str, range(8)))


def read_result(run, script, job, folder):
    """Run a script of this folder by a role's libraries; return its result."""
    file = folder / f"{script}.json"
    file.write_text(json.dumps(job))
    lines = run(Path(__file__).with_name(f"{script}.py"), file).splitlines()
    return json.loads(next(line for line in lines if line.startswith("RESULT "))[7:])


@pytest.fixture(scope="module")
def settings():
    return {recipe: load([recipe]) for recipe in RECIPES}


@pytest.fixture(scope="module")
def trained(in_train_role, settings, tmp_path_factory):
    folder = tmp_path_factory.mktemp("train")
    configs = {
        recipe: build_train_config(
            given,
            dataset_dir=folder,
            output_dir=folder / recipe,
            model=given.policy_config.base_model,
            deepspeed=find_deepspeed_file(given.algorithm_config.deepspeed_config_filename),
            validation=False,
            device="cuda",
        )
        for recipe, given in settings.items()
    }
    return read_result(in_train_role, "on_paper_train", {"configs": configs, "models": PUBLISHED}, folder)


@pytest.fixture(scope="module")
def served(in_serve_role, settings, tmp_path_factory):
    folder = tmp_path_factory.mktemp("serve")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", ",".join(GPUS))
        plans = {
            recipe: plan_servers(given, given.policy_config.base_model, Path("python"), "cuda", phases=True)
            for recipe, given in settings.items()
        }
    job = {recipe: plan[0].argv()[3:] for recipe, plan in plans.items()}
    return read_result(in_serve_role, "on_paper_serve", job, folder)


@pytest.mark.parametrize("recipe", RECIPES)
def test_llamafactory_takes_every_argument(trained, settings, recipe):
    given, result = settings[recipe].algorithm_config, trained["configs"][recipe]
    for name in ("per_device_train_batch_size", "gradient_accumulation_steps", "learning_rate", "cutoff_len"):
        assert result[name] == getattr(given, name), name
    assert result["deepspeed"] == str(find_deepspeed_file(given.deepspeed_config_filename))
    assert result["bf16"] is True


@pytest.mark.parametrize("recipe", RECIPES)
def test_vllm_takes_every_argument(served, settings, recipe):
    given, result = settings[recipe], served[recipe]
    assert result["model"] == given.policy_config.base_model
    assert result["max_model_len"] == given.serve.max_model_len
    assert result["gpu_memory_utilization"] == given.serve.gpu_memory_utilization
    assert result["enable_sleep_mode"] is True


@pytest.mark.parametrize("model", PUBLISHED)
def test_the_published_shapes_are_those_that_transformers_builds(trained, model):
    assert {name: list(shape) for name, _, shape in published_tensors(model)} == trained["models"][model]
