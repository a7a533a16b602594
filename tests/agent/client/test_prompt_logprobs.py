"""Asking how probable given tokens are, over real HTTP."""

import pytest

from tests.prepare.actor_server import UNLIKELY, ActorServer
from webgym_cli.agent.client.prompt_logprobs import PromptLogprobs
from webgym_cli.config.endpoint import EndpointSettings
from webgym_cli.errors import WebGymError


@pytest.fixture
async def server():
    async with ActorServer({7: -0.25, 8: -0.5}, max_model_len=8) as running:
        yield running


@pytest.fixture
async def asking():
    clients = []

    def make(*urls, **options):
        given = {"model": "policy", "retries": 0, "timeout": 30, **options}
        clients.append(PromptLogprobs(EndpointSettings.model_validate(given), urls))
        return clients[-1]

    yield make
    for client in clients:
        await client.close()


async def test_the_response_s_tokens_are_told_by_their_ids(server, asking):
    assert await asking(server.base_url).of([1, 7], (8, 7, 9)) == [-0.5, -0.25, UNLIKELY]
    assert server.requests == [[1, 7, 8, 7, 9]]


async def test_several_servers_take_turns(server, asking):
    async with ActorServer() as other:
        client = asking(server.base_url, other.base_url)
        for _ in range(4):
            await client.of([1], (7,))
    assert (len(server.requests), len(other.requests)) == (2, 2)


async def test_what_is_too_long_is_refused_and_nothing_else_fails_for_it(server, asking):
    client = asking(server.base_url)
    assert await client.of([1] * 7, (7,)) is None
    assert await client.of([1] * 6, (7,)) == [-0.25]


@pytest.mark.parametrize("status", [401, 404, 500])
async def test_a_server_that_fails_or_is_none_is_named_without_the_key(server, asking, status, monkeypatch):
    monkeypatch.setenv("SCORER_KEY", "secret-key")
    server.statuses += [503, 200, status]
    assert await asking(server.base_url, retries=1).of([1], (7,)) == [-0.25], "it is asked again"
    with pytest.raises(WebGymError, match=r"127\.0\.0\.1:\d+/v1") as caught:
        await asking(server.base_url, api_key_env_var="SCORER_KEY").of([1], (7,))
    assert "secret-key" not in str(caught.value) and "what was scored stays" in caught.value.hint
    with pytest.raises(WebGymError, match=":9/v1"):
        await asking("http://127.0.0.1:9/v1").of([1], (7,))


async def test_a_server_that_is_no_vllm_is_told_apart(server, asking, monkeypatch):
    monkeypatch.setattr(server, "_prompt_logprobs", lambda body: None)
    with pytest.raises(WebGymError, match="it is no vLLM"):
        await asking(server.base_url).of([1], (7,))
    monkeypatch.setattr(server, "_prompt_logprobs", lambda body: [None, {"8": {"logprob": -1.0}}])
    with pytest.raises(WebGymError, match="tokens that were sent"):
        await asking(server.base_url).of([1], (7,))
