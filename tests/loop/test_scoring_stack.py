"""The outcome reward model on the real vLLM: a server that runs, and one of our own."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tests.rewards.cases import answered
from tests.stack_fixtures import needs
from webgym_cli.agent.orm_prompt import OrmPrompt, build_orm_prompt
from webgym_cli.config.load import load
from webgym_cli.config.orm import OrmSettings
from webgym_cli.loop.pipeline import Pipeline
from webgym_cli.loop.scoring import score
from webgym_cli.records.task import Split
from webgym_cli.rewards.orm.client import OrmClient, query_served_model
from webgym_cli.rewards.selection import ScoringQuery
from webgym_cli.store.buffer import append, read_judgements
from webgym_cli.store.run import RunDir, create_or_open

pytestmark = pytest.mark.stack


async def test_vllm_gives_the_same_probability_again_and_counts_its_own_tokens(policy_server):
    settings = OrmSettings(base_url=policy_server.base_url, retries=0)
    name = query_served_model(settings)
    client = OrmClient(settings.model_copy(update={"model": name, "max_tokens": 1024}))
    first, again = [await client.ask(build_orm_prompt(answered())) for _ in range(2)]
    words = " ".join(f"word {number}" for number in range(3000))
    cut = await client.ask(OrmPrompt("Find it.", "click [1]", words))
    await client.close()
    assert name == "policy"
    assert 0 < first.probability.yes < 1
    assert 0 < first.probability.mass < 0.5  # its weights are random: it means neither
    assert again.probability.yes == pytest.approx(first.probability.yes, abs=1e-4)
    assert (first.cut, cut.cut > 0) == (0, True)
    assert 1000 <= cut.prompt_tokens <= 1024


async def test_a_folder_is_served_scored_and_stopped(tiny_model_dir, tmp_path):
    needs("serve")
    run = RunDir(tmp_path / "run")
    overrides = [f"orm.model={tiny_model_dir}", "orm.max_tokens=2048", f"policy_config.base_model={tiny_model_dir}"]
    settings = load(overrides=overrides)
    create_or_open(run, settings)
    append(run, answered(0))
    append(run, answered(1))
    events = []
    async with Pipeline(run, settings, tmp_path, events.append) as pipeline:
        summary = await score(pipeline, ScoringQuery())
    assert (summary["scored"], summary["model"]) == (2, str(tiny_model_dir))
    found = read_judgements(run, Split.TRAIN, 0)
    assert {one.source for of_one in found.values() for one in of_one} == {"orm"}
    (started,) = [event for event in events if event["event"] == "serve" and "url" in event]
    with pytest.raises(httpx.ConnectError):
        await asyncio.to_thread(httpx.get, started["url"], trust_env=False)
