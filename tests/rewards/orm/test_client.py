"""Asking an outcome reward model over real HTTP: probabilities, prompts cut by its own tokens, and what goes wrong."""

from contextlib import nullcontext

import httpx
import openai
import pytest

from tests.cli.runs import model
from tests.rewards.cases import answered
from tests.rewards.orm_server import FRAME, MODEL, OrmServer
from webgym_cli.agent.prompts.orm_prompt import KEPT_TOKENS, SYSTEM, OrmPrompt, build_orm_prompt
from webgym_cli.agent.tokens.orm_tokens import OrmError
from webgym_cli.config.judge import OrmSettings
from webgym_cli.errors import SettingsError, WebGymError
from webgym_cli.rewards.orm import client
from webgym_cli.rewards.orm.client import OrmClient, query_served_model

WORDS = " ".join(f"w{number}" for number in range(2000))


@pytest.fixture
async def ask():
    """Ask a server about a prompt."""
    clients = []

    async def answer(server, prompt=None, **changes):
        values = {"base_url": server.base_url, "model": MODEL, "retries": 0, "timeout": 30}
        clients.append(OrmClient(OrmSettings.model_validate({**values, **changes})))
        return await clients[-1].ask(prompt or build_orm_prompt(answered()))

    yield answer
    for orm_client in clients:
        await orm_client.close()


async def test_vllm_is_asked_for_the_tokens_of_all_spellings(server, ask):
    server.usual = {"YES": 0.3, "Yes": 0.1, "yes": 0.05, "No": 0.15, "The": 0.4}
    reply = await ask(server)
    assert (reply.probability.yes, reply.probability.mass) == (pytest.approx(0.75), pytest.approx(0.6))
    (result,) = server.requests
    assert set(result["logprob_token_ids"]) == set(map(server.id_of, ("YES", "Yes", "yes", "NO", "No", "no")))
    assert result.items() >= {"model": MODEL, "max_tokens": 1, "temperature": 1.0, "logprobs": True}.items()
    assert [message["role"] for message in result["messages"]] == ["system", "user"]
    assert (reply.cut, reply.prompt_tokens) == (0, _tokens(server, result))


async def test_a_long_page_loses_its_middle_by_tokens(server, ask):
    reply = await ask(server, OrmPrompt("Buy a kettle.", "click [1]\nanswer", WORDS), max_tokens=600)
    (text,) = server.prompts
    assert text.startswith("The User Intent:\nBuy a kettle.\n\nAction History:\nclick [1]\nanswer\n\nThe Current")
    assert "Screenshot:\nw0 w1 w2 " in text and text.endswith("w1998 w1999")
    assert "tokens left out]" in text
    assert 590 <= reply.prompt_tokens <= 600
    assert reply.prompt_tokens == _tokens(server, server.requests[0])
    assert reply.cut > 3000


async def test_long_actions_lose_theirs_once_the_page_has_no_more(server, ask):
    await ask(server, OrmPrompt("Buy.", WORDS, WORDS), max_tokens=600)
    (text,) = server.prompts
    actions, page = text.split("\nThe Current Screenshot:\n")
    assert len(server.ids_of(page)) <= KEPT_TOKENS + 12
    assert actions.split("History:\n")[1].startswith("w0 w1 ")
    assert actions.endswith("w1999\n")
    assert page.startswith("w0 w1 ")


async def test_the_models_own_limit_counts_where_it_is_lower(ask):
    async with OrmServer(max_model_len=500) as server:
        reply = await ask(server, OrmPrompt("Buy.", "click", WORDS))
    assert 490 <= reply.prompt_tokens <= 499


async def test_a_task_that_is_longer_than_the_model_takes_is_no_answer(server, ask):
    with pytest.raises(OrmError, match="can't be cut to 600 tokens"):
        await ask(server, OrmPrompt(WORDS, "click", "a page"), max_tokens=600)
    assert server.requests == []


async def test_another_server_lists_words_and_the_models_files_count(ask, tmp_path):
    folder = model(tmp_path / "orm")
    async with OrmServer(vllm=False, models=(str(folder),)) as server:
        server.usual = {"YES": 0.2, " yes": 0.1, "NO": 0.1, "The": 0.6}
        reply = await ask(server, OrmPrompt("Buy.", "click", WORDS), model=str(folder), max_tokens=500)
    assert reply.probability.yes == pytest.approx(0.75)
    assert 490 <= reply.prompt_tokens <= 500
    assert "logprob_token_ids" not in server.requests[0]
    assert server.requests[0]["top_logprobs"] == 20


async def test_without_any_tokenizer_it_says_what_to_do(ask):
    async with OrmServer(vllm=False) as server:
        with pytest.raises(SettingsError, match="does not count tokens, and 'an-orm' has no tokenizer") as error:
            await ask(server)
    assert "vLLM" in error.value.hint


@pytest.mark.parametrize(
    ("answer", "reply", "unavailable"),
    [
        ({"The": 0.9}, "neither YES nor NO", False),
        ({}, "no log-probabilities", False),
        (503, "503", True),
        (400, "400", True),
    ],
    ids=str,
)
async def test_what_can_not_be_read_is_an_error_and_no_probability(server, ask, answer, reply, unavailable):
    server.answers.append(answer)
    with pytest.raises(OrmError, match=reply) as error:
        await ask(server)
    assert error.value.unavailable is unavailable


async def test_a_request_that_is_not_answered_is_repeated_and_own_words_for_the_role_are_sent(server, ask):
    server.answers.extend([503, 503])
    assert (await ask(server, retries=2)).probability.yes == pytest.approx(0.75)
    await ask(server, system_prompt="Judge.")
    assert [request["messages"][0]["content"] for request in server.requests] == [*[SYSTEM] * 3, "Judge."]


async def test_a_model_that_the_server_does_not_have_is_named_and_the_key_not_told(server, ask, monkeypatch):
    with pytest.raises(OrmError, match="nosuch"):
        await ask(server, model="nosuch")
    monkeypatch.setenv("ORM_TEST_KEY", "s3cret")
    with pytest.raises(OrmError) as error:
        await ask(server, model="s3cret", api_key_env_var="ORM_TEST_KEY")
    assert "s3cret" not in str(error.value)


async def test_a_server_tells_its_only_model():
    import asyncio

    async with OrmServer() as server:
        settings = OrmSettings(base_url=server.base_url)
        assert await asyncio.to_thread(query_served_model, settings) == MODEL
    with pytest.raises(WebGymError, match="does not tell its models"):
        await asyncio.to_thread(query_served_model, settings)
    async with OrmServer(models=("a", "b")) as server:
        with pytest.raises(SettingsError, match="has 2 models: a, b"):
            await asyncio.to_thread(query_served_model, OrmSettings(base_url=server.base_url))


def test_what_is_no_address_is_named():
    for wrong in ("nosuch", "ftp://host/v1"):
        with pytest.raises(SettingsError, match=r"orm\.base_url"):
            OrmClient(OrmSettings(base_url=wrong))


def _tokens(server, requested):
    return FRAME + sum(len(server.ids_of(message["content"])) for message in requested["messages"])


@pytest.mark.parametrize(("restart_timeout", "refused"), [(10.0, 3), (0.0, 1)])
async def test_a_server_that_is_being_restarted_is_waited_for(server, monkeypatch, restart_timeout, refused):
    monkeypatch.setattr(client, "_PAUSE", 0.01)
    one = OrmClient(OrmSettings(base_url=server.base_url, model=MODEL, retries=0), restart_timeout)
    left, post = [None] * refused, one._client.post

    async def refuse(*given, **options):
        if left:
            left.pop()
            raise openai.APIConnectionError(request=httpx.Request("POST", server.base_url))
        return await post(*given, **options)

    monkeypatch.setattr(one._client, "post", refuse)
    with nullcontext() if restart_timeout else pytest.raises(OrmError):
        assert (await one.ask(build_orm_prompt(answered()))).probability
    await one.close()
