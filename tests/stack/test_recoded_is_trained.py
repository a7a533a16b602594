"""LLaMA-Factory makes of a re-encoded screenshot what it made of the PNG, to the last value of the last pixel."""

from __future__ import annotations

import shutil

import pytest

from tests.inspect.test_recode import picture
from tests.records.made import digested, trajectory
from tests.stack.conftest import demo_settings
from tests.stack.test_trained_is_served import configured, trained_on
from webgym_cli.agent.tokens.tokens import ModelTokens
from webgym_cli.inspect.recode import execute, plan_recoding
from webgym_cli.prepare.sft.convert import Converter
from webgym_cli.records.sample import Sample
from webgym_cli.store.run import RunDir
from webgym_cli.store.screenshots import ScreenshotStore

pytestmark = pytest.mark.stack


def shown(run, steps):
    """Return a trajectory with a picture of its own in each step, stored."""
    store, made = ScreenshotStore(run.screenshots), trajectory(steps=steps)
    pictures = [store.put(picture(number, (320, 240))) for number in range(steps)]
    seen = [
        step.observation.model_copy(update={"screenshot": kept})
        for step, kept in zip(made.steps, pictures, strict=True)
    ]
    own = [step.model_copy(update={"observation": each}) for step, each in zip(made.steps, seen, strict=True)]
    return digested(made.model_copy(update={"steps": tuple(own)}))


def test_a_webp_is_trained_as_its_png_was(tiny_model_dir, tmp_path):
    run, settings = RunDir(tmp_path / "run"), demo_settings(tiny_model_dir)
    made = shown(run, 3)
    store = ScreenshotStore(run.screenshots)
    converter = Converter(settings, ModelTokens(str(tiny_model_dir)), store)
    samples = [sample for index in range(3) if isinstance(sample := converter.convert(made, index), Sample)]
    assert len(samples) == 3
    recoded, folders = RunDir(tmp_path / "recoded"), []
    shutil.copytree(run.root, recoded.root)
    execute(recoded, list(plan_recoding(recoded)))
    for of, suffix in ((run, ".png"), (recoded, ".webp")):
        folder = tmp_path / f"of{suffix}"
        folder.mkdir()
        folders.append(configured(of, settings, tiny_model_dir, samples, folder))
        store = ScreenshotStore(of.screenshots)
        assert {store.path(sha256).suffix for sample in samples for sha256 in sample.images} == {suffix}
    before, after = trained_on(*folders)
    assert before == after
    assert len({line["pixels"] for line in before}) == 3
