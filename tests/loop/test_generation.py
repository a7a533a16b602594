"""New tasks by the whole command: the scripted model, and the policy's own critic."""

import json

import pytest

from tests.cli.runs import model
from tests.curriculum.generating import episode
from webgym_cli.config.load import load
from webgym_cli.loop import generation
from webgym_cli.loop.context import StageContext
from webgym_cli.records.trajectory import Observation, PromptSpec, PromptVersion
from webgym_cli.store.buffer import append
from webgym_cli.store.run import RunDir, create_or_open

WEBRL = PromptSpec(version=PromptVersion.WEBRL)


@pytest.fixture
def run(tmp_path):
    run_dir = RunDir(tmp_path / "run")
    overrides = [
        *(f"policy_config.base_model={model(tmp_path / 'model')}", "policy_config.template=qwen3_vl_nothink"),
        *("generate.base_url=scripted", "generate.tasks_per_request=3", "generate.requests_per_site=1"),
    ]
    create_or_open(run_dir, load(overrides=overrides))
    return run_dir


@pytest.fixture
def critic(monkeypatch, tmp_path):
    """A critic of the policy that finds the first task too hard; the prompts that it was asked about."""
    calls = []

    async def values(folder, policy, prompts, settings, log):
        calls.append((folder, prompts, log.name))
        return [[0.01], *[[0.5]] * (len(prompts) - 1)]

    monkeypatch.setattr(generation, "outcome_critic", lambda run: tmp_path / "critic")
    monkeypatch.setattr(generation, "success_probabilities", values)
    return calls


async def run_generation(run, out):
    async with StageContext(run, load(run_config=run.config), run.logs, lambda event: None) as context:
        return await generation.generate_next(context, out)


async def test_the_critic_values_the_prompt_of_the_first_step(run, critic, tmp_path):
    failed = episode(0, "Find 3 hats", prompt=WEBRL)
    page = failed.steps[0].model_copy(update={"observation": Observation(url="http://shop.test/", html="<a>Hats</a>")})
    append(run, failed.model_copy(update={"steps": (page,)}))
    summary = await run_generation(run, tmp_path / "new.jsonl")
    ((folder, prompts, log),) = critic
    assert (folder, log, summary["critic"]) == (tmp_path / "critic", "critic.log", "critic")
    assert (len(prompts), summary["rejected"]["too_hard"], summary["kept"]) == (2, 1, 1)
    assert all(len(one.ids) > 10 and not one.images for one in prompts)
    rejected = [json.loads(line) for line in (tmp_path / "new.jsonl.rejected.jsonl").read_text().splitlines()]
    assert [one["reason"] for one in rejected] == ["known_task", "too_hard"]


async def test_a_policy_that_is_shown_pictures_has_its_first_screenshot_valued(run, critic, tmp_path):
    append(run, episode(0, "Find 3 hats"))
    await run_generation(run, tmp_path / "new.jsonl")
    ((_, prompts, _),) = critic
    (picture,) = episode(0, "Find 3 hats").steps[0].observation.pictures
    wanted = (picture.sha256, [(picture.width, picture.height)])
    assert [(one.images[0].stem, one.sizes) for one in prompts] == [wanted] * 2
