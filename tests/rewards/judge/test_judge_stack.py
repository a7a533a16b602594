"""The judge against the real vLLM: the form that we ask for is what it gives, and we can read it."""

import asyncio

import pytest

from tests.rewards.cases import PICTURES, answered
from webgym_cli.agent.client.chat import ChatError, JudgeReply
from webgym_cli.config.judge import JudgeSettings
from webgym_cli.records.failure import FailureKind
from webgym_cli.rewards.judge import prompts
from webgym_cli.rewards.judge.client import JudgeClient, JudgeContext
from webgym_cli.rewards.judge.judge import Judge

pytestmark = pytest.mark.stack
QUESTIONS = 8
"""A model of random weights closes its reason within the limit about two times out of three."""


def settings(server, **changes):
    values = {"base_url": server.base_url, "model": "policy", "retries": 0, "temperature": 1.0, "max_new_tokens": 400}
    return JudgeSettings.model_validate({**values, **changes})


async def test_structured_output_can_be_read_or_was_cut(policy_server):
    client, case = JudgeClient(settings(policy_server)), JudgeContext(images=PICTURES.__getitem__)
    question = prompts.fact(answered(), ("The painter is Vermeer",), 0, [0, 2])

    async def ask():
        try:
            return await client.ask(question, case)
        except ChatError as error:
            return error

    replies = await asyncio.gather(*(ask() for _ in range(QUESTIONS)))
    await client.close()
    assert any(isinstance(reply, JudgeReply) for reply in replies)
    for reply in replies:
        if isinstance(reply, ChatError):
            assert str(reply) == "fact: the answer was not finished (finish_reason 'length')"


async def judged(server, run, **changes):
    judge = Judge(settings(server, **changes), run)
    judgement = await judge.judge(answered())
    await judge.close()
    return judgement


async def test_a_model_that_is_cut_never_judges(policy_server, pictured):
    judgement = await judged(policy_server, pictured, max_new_tokens=16, votes=9)
    assert (judgement.success, judgement.failure, judgement.unavailable) == (None, FailureKind.JUDGE_FAILED, False)
    assert judgement.calls == 9


async def test_a_model_that_the_server_does_not_have_is_unavailable(policy_server, pictured):
    judgement = await judged(policy_server, pictured, model="nosuch")
    assert (judgement.success, judgement.unavailable) == (None, True)
    assert "nosuch" in judgement.failure_detail
