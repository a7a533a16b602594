"""A run of the real stack that several tests look at: demonstrations, a dataset, a short training."""

import pytest

from tests.records.builders import new_run
from tests.stack_fixtures import needs
from webgym_cli.config.load import load
from webgym_cli.loop import preparation, rollouts, training
from webgym_cli.loop.context import StageContext
from webgym_cli.records.task import Split
from webgym_cli.store.run import new_attempt

PAGES = "miniwob:click-test,focus-text,click-collapsible"


def demo_settings(model, *more: str):
    """The demo's settings on three easy pages, with another model."""
    common = ("rollout.concurrency=4", "algorithm_config.num_train_epochs=4", "algorithm_config.save_steps=10")
    return load(["demo"], [f"tasks.train={PAGES}", f"policy_config.base_model={model}", *common, *more])


@pytest.fixture(scope="session")
async def sft_run(tiny_model_dir, tmp_path_factory):
    """A run whose policy learned from 45 demonstrations: (run, settings)."""
    needs("train")
    settings = demo_settings(tiny_model_dir)
    run = new_run(tmp_path_factory.mktemp("sft") / "run", settings)
    async with StageContext(run, settings, new_attempt(run), lambda event: None) as context:
        await rollouts.rollout(context, Split.TRAIN, "oracle", 45)
        await preparation.prepare(context)
        await training.train(context)
    return run, settings
