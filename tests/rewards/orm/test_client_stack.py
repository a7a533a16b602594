"""The outcome reward model on a running vLLM server; tests/stack/test_orm_training.py has one that webgym starts."""

import pytest

from tests.rewards.cases import answered
from webgym_cli.agent.prompts.orm_prompt import OrmPrompt, build_orm_prompt
from webgym_cli.config.judge import OrmSettings
from webgym_cli.rewards.orm.client import OrmClient, query_served_model

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
