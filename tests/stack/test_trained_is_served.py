"""What is trained is what is served: token for token and pixel for pixel, against the real consumers."""

import json
from pathlib import Path

import pytest
import yaml

from tests.records.builders import new_run
from tests.stack.conftest import demo_settings
from webgym_cli.agent.client.policy import digest_tokens
from webgym_cli.agent.prompt import render_step
from webgym_cli.agent.tokens.tokens import ModelTokens
from webgym_cli.loop import rollouts
from webgym_cli.loop.context import StageContext
from webgym_cli.prepare.sft.convert import Converter
from webgym_cli.prepare.sft.sharegpt import build_dataset_info, to_sharegpt
from webgym_cli.prepare.sft.train_config import build_train_config
from webgym_cli.records.dataset import TRAIN
from webgym_cli.records.sample import Sample
from webgym_cli.records.task import Split
from webgym_cli.store.buffer import scan
from webgym_cli.store.checkpoints import policy_path
from webgym_cli.store.screenshots import ScreenshotStore

pytestmark = pytest.mark.stack
HERE = Path(__file__).parent
IGNORED = -100
MODES = ("set_of_marks", "coordinates")
GREEDY = ("policy_config.temperature=0", 'rollout.train_max_steps={"easy": 7}')


@pytest.fixture(scope="module")
async def rolled_out(sft_run, policy_server, tiny_model_dir, tmp_path_factory):
    """By mode, stored steps of the trained policy, with the samples that training would make of them."""
    trained, _ = sft_run
    weights = policy_path(trained, sft_run[1]).resolve()
    fields = {}
    await policy_server.swap(str(weights))
    try:
        for mode in MODES:
            settings = demo_settings(weights, f"context_config.interaction_mode={mode}", *GREEDY)
            run = new_run(tmp_path_factory.mktemp(mode) / "run", settings)
            async with StageContext(run, settings, run.logs, lambda event: None) as context:
                await rollouts.rollout(context, Split.TRAIN, policy_server.base_url, 6)
            converter = Converter(settings, ModelTokens(str(weights)), ScreenshotStore(run.screenshots))
            steps, samples = [], []
            for trajectory in scan(run, Split.TRAIN, 0):
                for step in trajectory.steps:
                    sample = converter.convert(trajectory, step.index)
                    if isinstance(sample, Sample):
                        steps.append((trajectory, step))
                        samples.append(sample)
            fields[mode] = (run, settings, weights, steps, samples, converter)
    finally:
        await policy_server.swap(str(tiny_model_dir))
    return fields


@pytest.fixture(params=MODES)
def mode(request):
    return request.param


@pytest.fixture
def served(mode, rolled_out):
    return rolled_out[mode]


def configured(run, settings, weights, samples, folder):
    """Write the files of a training on the samples into a folder and return it."""
    store = ScreenshotStore(run.screenshots.resolve())
    rows = [to_sharegpt(sample, lambda sha: str(store.path(sha))) for sample in samples]
    (folder / "finetune_train.json").write_text(json.dumps(rows))
    (folder / "dataset_info.json").write_text(json.dumps(build_dataset_info(validation=False)))
    config = build_train_config(
        settings,
        dataset_dir=folder,
        output_dir=folder / "out",
        model=str(weights),
        deepspeed=None,
        validation=False,
        device="cpu",
        samples=len(samples),
    )
    assert config["dataset"] == TRAIN
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return folder


@pytest.fixture(scope="module")
def all_trained(in_train_role, rolled_out, tmp_path_factory):
    """What LLaMA-Factory makes of the samples, by mode."""
    folders = [
        configured(run, settings, weights, samples, tmp_path_factory.mktemp("trained"))
        for run, settings, weights, _, samples, _ in rolled_out.values()
    ]
    in_train_role(HERE / "llamafactory_ids.py", *folders)
    lines = [(folder / "ids.jsonl").read_text().splitlines() for folder in folders]
    return {mode: [json.loads(line) for line in of_one] for mode, of_one in zip(rolled_out, lines, strict=True)}


@pytest.fixture
def trained(mode, all_trained):
    return all_trained[mode]


def test_trained_ids_equal_served_ids_and_the_mask_covers_the_response(served, trained):
    _, _, weights, steps, samples, converter = served
    assert len(samples) >= 6
    assert max(step.index for _, step in steps) >= 1, "several rounds"
    line_end = ModelTokens(str(weights)).response_ids("\n")
    assert len(trained) == len(samples)
    for (trajectory, step), result in zip(steps, trained, strict=True):
        start = next(position for position, label in enumerate(result["labels"]) if label != IGNORED)
        prompt, response = result["ids"][:start], result["ids"][start:]
        assert digest_tokens(prompt) == step.generation.prompt_token_digest, (trajectory.id, step.index)
        # LLaMA-Factory's template closes the turn with a line end, which the server sees as the next prompt's
        assert response == [*step.generation.token_ids, *line_end]
        assert (result["labels"][start:], set(result["labels"][:start])) == (response, {IGNORED})
    assert converter.shortened == 0


def test_both_sides_resize_images_alike(in_serve_role, rolled_out, all_trained):
    paths = []
    for run, _, _, _, samples, _ in rolled_out.values():
        store = ScreenshotStore(run.screenshots)
        paths += [str(store.path(sha)) for sample in samples for sha in sample.images]
    _, _, weights, *_ = rolled_out[MODES[0]]
    grid = ModelTokens(str(weights)).grid
    served_grids = json.loads(in_serve_role(HERE / "processor_grids.py", weights, *paths).splitlines()[-1])
    assert [shape for trained in all_trained.values() for item in trained for shape in item["grids"]] == served_grids
    assert all(height * width // 4 == grid.tokens(160, 210) for _, height, width in served_grids)


def test_our_token_counts_are_the_servers(served):
    _, _, weights, steps, samples, _ = served
    tokens = ModelTokens(str(weights))
    for (trajectory, step), sample in zip(steps, samples, strict=True):
        prompt = render_step(trajectory, step.index)
        assert prompt.digest == step.prompt_digest
        sizes = [(160, 210)] * len(prompt.images)
        ids = tokens.prompt_ids(prompt.messages, sizes)
        assert len(ids) == step.generation.prompt_tokens
        assert digest_tokens(ids) == step.generation.prompt_token_digest
        assert sample.tokens == len(ids) + len(step.generation.token_ids) + 1
