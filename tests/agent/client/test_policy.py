"""The policy client against a real HTTP server on loopback."""

import base64
import hashlib
import json
import socket
from dataclasses import replace

import pytest
from aiohttp import web

from tests.agent.policy_host import KEY, PROMPT
from tests.records.builders import png, shot
from webgym_cli.agent.client.chat_request import EncodedImages
from webgym_cli.agent.client.policy import ChatPolicy, ServerMisconfiguredError, digest_tokens
from webgym_cli.config.policy_config import PolicySettings
from webgym_cli.config.rollout import RolloutSettings
from webgym_cli.errors import BoundaryError, WebGymError
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.sampling import Sampling
from webgym_cli.records.trajectory import Generation
from webgym_cli.util.local_server import LocalServer

LIMITED = {"temperature": 0.7, "top_p": 0.9, "top_k": 7, "min_p": 0.1}
CHOICE = {"index": 0, "message": {"role": "assistant", "content": "Hi."}, "finish_reason": "stop"}
ANSWER = {
    "id": "1",
    "object": "chat.completion",
    "created": 1,
    "model": "policy",
    "choices": [CHOICE],
    "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9},
}
LOGPROBS = [
    {"token": "Hi", "logprob": -0.5, "bytes": None, "top_logprobs": []},
    {"token": ".", "logprob": -0.25, "bytes": None, "top_logprobs": []},
]
VLLM_ANSWER = {
    **ANSWER,
    "prompt_token_ids": [1, 22, 3],
    "choices": [{**CHOICE, "token_ids": [5, 6], "logprobs": {"content": LOGPROBS}}],
}
VLLM = (200, {"version": "0.32.0"})
SILENCE = object()
"""The body of an answer that never comes."""


def replied(**changes):
    """Return an answer whose choice or message has these fields."""
    fields = {name: changes.pop(name) for name in ("index", "finish_reason", "message") if name in changes}
    message = {"role": "assistant", "content": "Hi.", **changes}
    return [(200, {**ANSWER, "choices": [{**CHOICE, "message": message, **fields}]})]


class Server(LocalServer):
    """Answers chat requests from a list: (status, body); the last one again and again."""

    def __init__(self):
        app = web.Application()
        app.router.add_get("/{path:.*}", self._probe)
        app.router.add_post("/v1/chat/completions", self._complete)
        super().__init__(app, 0)
        self.answers = [(200, ANSWER)]
        self.version = (404, {})
        self.requests = []
        self.headers = {}
        self.probes = 0

    async def _probe(self, request):
        self.probes += 1
        return self._say(request, *(self.version if request.path == "/version" else (404, {})))

    async def _complete(self, request):
        self.requests.append(await request.json())
        status, body = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if body is SILENCE:
            await self.closing.wait()
        return self._say(request, status, body)

    def _say(self, request, status, body):
        self.headers = request.headers
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": "text/html" if body is ERRORS[0] else "application/json", "retry-after-ms": "1"}
        return web.Response(status=status, body=content, headers=headers)


@pytest.fixture
async def server():
    async with Server() as running:
        yield running


@pytest.fixture
async def connect(server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    policies = []

    def policy(sampling=None, url=None, logprobs=None, **requests):
        settings = RolloutSettings.model_validate({"endpoint": {"timeout": 10, **requests}})
        chat_policy = ChatPolicy(
            settings.build_endpoint(url or f"http://{server.address}/v1", "policy"),
            PolicySettings.model_validate(sampling or {}),
            EncodedImages({shot(0).sha256: png(0)}.__getitem__),
            logprobs=logprobs,
        )
        policies.append(chat_policy)
        return chat_policy

    yield policy
    for chat_policy in policies:
        await chat_policy.close()


@pytest.fixture
def ask(connect):
    async def reply(sampling=None, times=1, url=None, **limits):
        policy = connect(sampling, url, **limits)
        return [await policy.reply(PROMPT) for _ in range(times)][-1]

    return reply


async def failure(requested):
    with pytest.raises(BoundaryError) as caught:
        await requested
    return caught.value.kind


async def test_the_prompt_arrives_with_its_image(ask, server):
    assert (await ask()).text == "Hi."
    system, user = server.requests[0]["messages"]
    assert system == {"role": "system", "content": PROMPT.messages[0].content}
    image, text = user["content"]
    assert image["image_url"]["url"] == f"data:image/png;base64,{base64.b64encode(png(0)).decode()}"
    assert text == {"type": "text", "text": "Task: Do it.\nStart page: http://a/\n"}
    assert server.headers["Content-Type"] == "application/json"


async def test_other_servers_get_no_parameter_that_they_do_not_know(connect, server):
    policy = connect({**LIMITED, "max_new_tokens": 5})
    await policy.reply(PROMPT)
    request = server.requests[0]
    del request["messages"]
    assert request == {"model": "policy", "max_tokens": 5, "temperature": 0.7, "top_p": 0.9}
    assert policy.sampling(greedy=False) == Sampling(temperature=0.7, top_p=0.9)


async def test_vllm_is_asked_for_just_what_the_policy_says_that_it_samples_from(connect, server):
    server.version = VLLM
    policy = connect(LIMITED, logprobs="processed")
    before = policy.sampling(greedy=False)
    await policy.reply(PROMPT)
    result = policy.sampling(greedy=False)
    assert result == before == Sampling(**LIMITED, logprobs="processed")
    assert {name: server.requests[0][name] for name in LIMITED} == result.model_dump(exclude={"logprobs"}) == LIMITED


@pytest.mark.parametrize(("value", "sampled"), [(0.001, 0.01), (0.01, 0.01), (0.02, 0.02), (0.0, 0.0)])
async def test_vllm_is_asked_for_no_temperature_that_it_would_raise_in_silence(connect, server, value, sampled):
    server.version = VLLM
    policy = connect({"temperature": value})
    await policy.reply(PROMPT)
    assert server.requests[0]["temperature"] == policy.sampling(greedy=False).temperature == sampled


@pytest.mark.parametrize("version", [VLLM, (404, {})], ids=["vLLM", "another"])
async def test_a_greedy_prompt_is_asked_at_temperature_0_whatever_the_settings_limit(connect, server, version):
    server.version = version
    policy = connect(LIMITED, logprobs="raw")
    await policy.reply(replace(PROMPT, greedy=True))
    await policy.reply(PROMPT)
    greedy, sampled = server.requests
    assert (greedy["temperature"], greedy["top_p"]) == (0.0, 1.0)
    assert (greedy.get("top_k", -1), greedy.get("min_p", 0.0)) == (-1, 0.0)
    assert sampled["temperature"] == 0.7
    assert policy.sampling(greedy=True) == Sampling(temperature=0.0, logprobs="raw")


async def test_vllm_gets_the_seed_of_what_is_sampled_and_other_servers_none(connect, server):
    seeded = replace(PROMPT, seed=2**48 - 1)
    await connect().reply(seeded)
    server.version = VLLM
    policy = connect()
    for prompt in (seeded, replace(seeded, greedy=True), PROMPT):
        await policy.reply(prompt)
    await connect({"temperature": 0}).reply(seeded)
    assert [request.get("seed") for request in server.requests] == [None, 2**48 - 1, None, None, None]


@pytest.mark.parametrize(("top_k", "sent"), [(7, 7), (0, -1), (-1, -1)])
async def test_vllm_is_asked_for_token_ids_and_log_probabilities(ask, server, top_k, sent):
    server.version = VLLM
    await ask({"top_k": top_k, "min_p": 0.1})
    wanted = {"top_k": sent, "min_p": 0.1, "return_token_ids": True, "logprobs": True}
    assert wanted.items() <= server.requests[0].items()


async def test_the_server_is_asked_once_who_it_is_and_a_web_page_is_no_vllm(ask, server):
    server.version = (200, b'<?xml version="1.0"?><html></html>')
    await ask(times=3)
    assert (server.probes, len(server.requests)) == (1, 3)
    assert "return_token_ids" not in server.requests[0]


async def test_token_ids_and_log_probabilities_are_kept(ask, server):
    server.version, server.answers = VLLM, [(200, VLLM_ANSWER)]
    generation = (await ask()).generation
    assert generation == Generation(
        prompt_tokens=7,
        cached_tokens=0,
        completion_tokens=2,
        prompt_token_digest=hashlib.sha256(b"1,22,3").hexdigest(),
        token_ids=(5, 6),
        logprobs=(-0.5, -0.25),
        finish_reason="stop",
    )
    assert digest_tokens([1, 22, 3]) == generation.prompt_token_digest


async def test_what_the_server_did_not_give_stays_unknown(ask, server):
    server.answers = [(200, {**ANSWER, "usage": None, "choices": [{**CHOICE, "message": {"role": "assistant"}}]})]
    reply = await ask()
    assert reply.text == ""
    assert (reply.generation.prompt_tokens, reply.generation.token_ids, reply.generation.logprobs) == (None, None, None)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"content": "a\ud800b"}, "a?b"),
        ({"content": None, "refusal": "I can't help."}, "I can't help."),
        ({"content": '{"error": "x"}'}, '{"error": "x"}'),
        ({"content": '"error"'}, '"error"'),
        ({"content": [{"type": "thinking", "thinking": []}, {"type": "text", "text": "a"}, "b", None]}, "ab"),
    ],
    ids=ascii,
)
async def test_a_reply_may_be_half_a_character_a_refusal_or_speak_of_errors(ask, server, message, text):
    ((status, body),) = replied(**message)
    server.answers = [(status, {**body, "error": None})]
    assert (await ask()).text.encode().decode() == text


THOUGHTS = {
    "a template that opened the thought": ("So.\n", "\n\nDone.", "stop", "<think>\nSo.\n</think>\n\nDone."),
    "a model that opened it": ("\nSo.\n", "\n\nDone.", "stop", "<think>\nSo.\n</think>\n\nDone."),
    "a thought that was cut": ("So I", None, "length", "<think>\nSo I"),
    "nothing but a thought": ("So.", None, "stop", "<think>\nSo.</think>"),
    "an empty thought": ("", "Done.", "stop", "Done."),
    "no thought": (None, "Done.", "stop", "Done."),
    "a thought that the content has, too": ("So.\n", "<think>So.</think>Done.", "stop", "<think>So.</think>Done."),
    "a thought with its tags": ("<think>\nSo.\n</think>", "Done.", "stop", "<think>\nSo.\n</think>Done."),
    "another thought in the content": ("So.\n", "No.</think>Done.", "stop", "<think>\nSo.\n</think>No.</think>Done."),
    "a thought that is no text": ({"a": 1}, "Done.", "stop", "Done."),
}


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
@pytest.mark.parametrize(("thought", "content", "finish", "text"), THOUGHTS.values(), ids=THOUGHTS)
async def test_a_thought_that_the_server_told_apart_is_put_back(ask, server, name, thought, content, finish, text):
    server.answers = replied(content=content, finish_reason=finish, **{name: thought})
    assert (await ask({"thinking": True})).text == text


@pytest.mark.parametrize(
    ("finish", "kind"),
    [
        *((finish, "policy_unavailable") for finish in ("abort", "insufficient_system_resource", "network_error")),
        *((finish, "policy_refused") for finish in ("content_filter", "sensitive")),
    ],
)
@pytest.mark.parametrize("content", ["Hi", "", None])
async def test_a_reply_that_the_server_broke_off_or_withheld_is_no_reply(ask, server, finish, kind, content):
    server.answers = replied(content=content, finish_reason=finish)
    assert await failure(ask()) == kind


@pytest.mark.parametrize(
    ("statuses", "kind", "astray"),
    [
        ((500, 503, 429, 408, 425), FailureKind.POLICY_UNAVAILABLE, False),
        ((400, 413, 422), FailureKind.POLICY_REFUSED, False),
        ((301, 307, 401, 402, 403, 404, 407), FailureKind.POLICY_UNAVAILABLE, True),  # no attempt of the episode
    ],
)
async def test_a_status_says_whether_server_request_or_settings_are_at_fault(ask, server, statuses, kind, astray):
    for count, status in enumerate(statuses, 1):
        server.answers = [(status, {"error": {"message": "no"}})]
        with pytest.raises(BoundaryError) as caught:
            await ask()
        assert (caught.value.kind, isinstance(caught.value, ServerMisconfiguredError)) == (kind, astray)
        assert len(server.requests) == count  # the load balancer repeats it


async def test_a_silent_server_is_unavailable_at_the_deadline_and_so_is_nobody(ask, connect, server, monkeypatch):
    server.answers = [(200, SILENCE)]
    assert await failure(ask(timeout=0.2)) is FailureKind.POLICY_UNAVAILABLE
    monkeypatch.setattr("webgym_cli.agent.client.policy.PROBE_TIMEOUT", 0.2)
    assert await connect().answers() is False
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        assert await failure(ask(url=url)) is FailureKind.POLICY_UNAVAILABLE
        assert await connect(url=url).answers() is False


@pytest.mark.parametrize("url", ["http://", "http://[::1/v1", "http://a:b/v1"])
async def test_an_address_that_is_none_is_an_error_of_ours(ask, url):
    with pytest.raises(WebGymError):
        await ask(url=url)


NO_ANSWERS = [
    *({"choices": choices} for choices in ([], [{}], [{"message": None}], 5, [{"message": {"content": 5}}])),
    *({}, [], "text", None, b"{half", b""),
]


@pytest.mark.parametrize("body", NO_ANSWERS, ids=str)
async def test_an_answer_that_is_none_is_unavailable(ask, server, body):
    server.answers = [(200, body)]
    assert await failure(ask()) is FailureKind.POLICY_UNAVAILABLE


ERRORS = [
    b"<html>overloaded</html>",
    {"error": {"message": "overloaded", "code": 502}},
    {"error": "overloaded"},
    {"id": "1", "choices": None, "error": {"message": "overloaded"}},
    {"id": "1", "choices": [], "error": {"detail": "overloaded"}},
]


@pytest.mark.parametrize("body", ERRORS, ids=str)
async def test_an_error_with_the_status_of_a_success_is_told(ask, server, body):
    server.answers = [(200, body)]
    with pytest.raises(BoundaryError, match="overloaded") as caught:
        await ask()
    assert caught.value.kind is FailureKind.POLICY_UNAVAILABLE


@pytest.mark.parametrize(("status", "body"), [(400, ERRORS[1]), (503, ERRORS[1]), *((200, body) for body in ERRORS)])
async def test_a_server_s_words_about_an_encrypted_task_are_left_out(connect, server, status, body):
    server.answers = [(status, body)]
    with pytest.raises(BoundaryError, match="not stored, as the task is encrypted") as caught:
        await connect().reply(replace(PROMPT, private=True))
    assert server.address in str(caught.value) and "overloaded" not in str(caught.value)
    assert status == 200 or str(status) in str(caught.value)


def long_answer(tokens):
    """Return an answer of 100,000 characters with the ids of `tokens` tokens."""
    choice = {**VLLM_ANSWER["choices"][0], "message": {"role": "assistant", "content": "a" * 100_000}}
    return [(200, {**VLLM_ANSWER, "choices": [choice | {"token_ids": tokens and list(range(tokens))}]})]


@pytest.mark.parametrize("tokens", [None, 10, 11])
async def test_a_reply_that_ignores_its_limit_is_cut_and_one_of_long_tokens_whole(ask, server, tokens):
    server.answers = long_answer(tokens)
    reply = await ask({"max_new_tokens": 10})
    if tokens == 10:
        assert (len(reply.text), len(reply.generation.token_ids)) == (100_000, 10)
        return
    assert reply.text == "a" * 160
    cut = reply.generation
    assert (cut.finish_reason, cut.token_ids, cut.logprobs) == ("length", None, None)


NAMED = {"policy": None, "policy-2026-01-31": None, "": None, "base": "base", "b\ud800": "b?", "x" * 999: "x" * 200}


@pytest.mark.parametrize(("named", "other"), NAMED.items(), ids=range(len(NAMED)))
async def test_another_models_name_is_kept(ask, server, named, other):
    server.answers = [(200, {**VLLM_ANSWER, "model": named})]
    assert (await ask()).generation.other_model == other


async def test_no_secret_is_told(ask, server):
    server.answers = [(401, {"error": {"message": f"bad key {KEY}"}})]
    with pytest.raises(BoundaryError) as caught:
        await ask(url=f"http://me:hidden@{server.address}/v1?token=hidden")
    assert str(caught.value).startswith(f"http://{server.address}/v1: ")
    assert "[key]" in str(caught.value)
    assert KEY not in str(caught.value) and "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "body", "answers"),
    [
        (200, ANSWER, True),
        (400, {"error": {"message": "max_tokens is too small"}}, True),  # a probe that it refuses as such
        *((status, {}, False) for status in (500, 429, 401, 404)),
        (200, b"<html></html>", False),
    ],
)
async def test_a_server_answers_if_it_generates_a_token(connect, server, status, body, answers):
    server.answers = [(status, body)]
    assert await connect().answers() is answers
    assert (server.requests[0]["max_tokens"], server.requests[0]["model"]) == (1, "policy")
    assert server.headers["Authorization"] == f"Bearer {KEY}"
