"""An outcome reward model from verdicts to scores: prepared, trained by LLaMA-Factory, served by vLLM."""

import asyncio

import httpx
import pytest

from tests.records.builders import new_run
from tests.records.test_judgement import judgement
from tests.rewards.cases import answered
from tests.stack.conftest import demo_settings
from tests.stack_fixtures import needs
from webgym_cli.loop import training
from webgym_cli.loop.context import StageContext
from webgym_cli.loop.orm_preparation import orm_settings, prepare_orm
from webgym_cli.loop.scoring import score
from webgym_cli.records.task import Split
from webgym_cli.rewards.orm.scorer import OrmScorer
from webgym_cli.rewards.selection import ScoringQuery, plan_scoring
from webgym_cli.store.buffer import append, append_judgement, read_judgements
from webgym_cli.store.checkpoints import checkpoints

pytestmark = pytest.mark.stack

COUNT, DONE = 8, 4
RATE = ("learning_rate=2e-3", "lr_scheduler_type=constant", "warmup_steps=2", "num_train_epochs=8")
BATCH = ("per_device_train_batch_size=4", "gradient_accumulation_steps=1", "cutoff_len=1024")
TRAINING = [f"algorithm_config.{one}" for one in (*RATE, *BATCH, "val_split_ratio=0", "save_steps=999999")]


@pytest.fixture
def judged(tiny_model_dir, tmp_path):
    """A run whose judge found some episodes solved."""
    needs("train")
    needs("serve")
    run = new_run(tmp_path / "run", demo_settings(tiny_model_dir, "serve.max_model_len=1025", "orm.max_tokens=1024"))
    for number in range(COUNT):
        append(run, trajectory := answered(number, answer="the date"))
        append_judgement(run, Split.TRAIN, 0, judgement(trajectory=trajectory.id, success=number < DONE))
    return run


async def test_it_learns_how_often_the_judge_says_yes_and_the_run_keeps_its_policy(judged):
    settings = orm_settings(judged, [], TRAINING)
    prepared = await prepare_orm(judged, settings, lambda event: None)
    assert (prepared.train_samples, prepared.val_samples) == (COUNT, 0)
    logs = judged.orm.logs / "attempt_0001"
    logs.mkdir(parents=True)
    async with StageContext(judged.orm, settings, logs, lambda event: None) as context:
        await training.train(context)
    assert ([one.version for one in checkpoints(judged.orm)], checkpoints(judged)) == ([1], [])

    trained, events = str(judged.orm.model(settings).resolve()), []
    loaded_settings = settings.model_copy(update={"orm": settings.orm.model_copy(update={"model": trained})})
    async with StageContext(judged, loaded_settings, logs, events.append) as context:
        summary = await score(context, plan_scoring(judged, OrmScorer(loaded_settings.orm), ScoringQuery()))
    assert (summary["scored"], summary["model"], summary["cut"]) == (COUNT, trained, 0)
    result = [event for event in events if event["event"] == "scored"]
    assert min(event["mass"] for event in result) > 0.3  # before, it hardly ever said YES or NO
    assert 0.2 < summary["mean_probability"] < 0.8  # as many of the verdicts were yes as no
    scores = [one for of_one in read_judgements(judged, Split.TRAIN, 0).values() for one in of_one]
    assert [one.source for one in scores].count("orm") == COUNT
    (started,) = [event for event in events if event["event"] == "serve" and "url" in event]
    with pytest.raises(httpx.ConnectError):  # its server was stopped
        await asyncio.to_thread(httpx.get, started["url"], trust_env=False)
