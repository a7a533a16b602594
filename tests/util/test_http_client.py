"""Hostile servers: what they answer costs neither memory nor time beyond the limits, and nothing goes elsewhere."""

import asyncio
import contextlib
import gzip
import logging
import zlib

import httpx
import openai
import pytest

from webgym_cli.agent.client.chat import ChatClient, ChatError, ReplyFormat, RequestCounter, describe_error
from webgym_cli.agent.client.chat_request import EncodedImages
from webgym_cli.agent.client.policy import ChatPolicy
from webgym_cli.agent.prompt import Prompt
from webgym_cli.config.judge import JudgeSettings
from webgym_cli.config.policy_config import PolicySettings
from webgym_cli.config.rollout import RolloutSettings
from webgym_cli.errors import BoundaryError
from webgym_cli.records.base import Record
from webgym_cli.records.sample import Message
from webgym_cli.util.http_client import MAX_ANSWER, BoundedClient

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
MOVED = b"HTTP/1.1 %d Moved\r\nLocation: %s/v1?key=1\r\nContent-Length: 0\r\n\r\n"


@contextlib.asynccontextmanager
async def serve(answer):
    """Serve raw bytes: what `answer(writer)` writes after each request's head."""
    heads = []

    async def handle(reader, writer):
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            heads.append(await reader.readuntil(b"\r\n\r\n"))
            await answer(writer)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", heads
    finally:
        server.close()


def write(*parts):
    async def answer(writer):
        for part in parts:
            writer.write(part)

    return answer


def with_length(body, *headers):
    lines = b"".join(header + b"\r\n" for header in (*headers, b"Content-Length: %d" % len(body)))
    return write(HEAD + lines + b"\r\n", body)


def repeat(first, part, pause=0.0):
    """Write a part for ever, at intervals."""

    async def answer(writer):
        writer.write(first)
        while not writer.is_closing():
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(pause)

    return answer


def pack(size):
    """Return zeros, packed so that 1000 bytes are about one. The checksum at their end is missing."""
    packer = zlib.compressobj(9, wbits=31)
    first, second = (packer.compress(bytes(2**20)) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    return first + second * (size // 2**20 - 1)


HOSTILE = {
    "a bomb in gzip": (with_length(pack(3 * 2**30), b"Content-Encoding: gzip"), "larger than"),
    "brotli": (with_length(b"x", b"Content-Encoding: br"), "encoding 'br'"),
    "half a gzip": (with_length(gzip.compress(b"text" * 99)[:-9], b"Content-Encoding: gzip"), "its end is missing"),
    "no gzip": (with_length(b"text", b"Content-Encoding: gzip"), "can't be unpacked"),
    "gzip in gzip": (with_length(b"", b"Content-Encoding: gzip, gzip"), "encoding 'gzip, gzip'"),
    "endless chunks": (repeat(CHUNKED, b"100000\r\n" + b"x" * 2**20 + b"\r\n"), "larger than"),
    "an endless body": (repeat(HEAD + b"\r\n", b"x" * 2**16), "larger than"),
    "1 byte a second": (repeat(CHUNKED, b"1\r\nx\r\n", 0.3), "no whole answer within 1 s"),
    "1 byte of a header a second": (repeat(HEAD + b"X: ", b"x", 0.3), "no whole answer within 1 s"),
    "endless headers": (repeat(HEAD, b"X-Header: " + b"x" * 999 + b"\r\n"), ""),
    "endless 100 Continue": (repeat(b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.05), "no whole answer within 1 s"),
    "nothing": (repeat(b"", b"", 0.3), "no whole answer within 1 s"),
    "noise": (write(b"\0\1\2\3" * 99), ""),
}


@pytest.mark.parametrize("kind", HOSTILE)
async def test_answers_are_bounded(kind):
    answer, reason = HOSTILE[kind]
    limit = 1 if "1 s" in reason else 60
    async with serve(answer) as (url, _), BoundedClient(timeout=limit, trust_env=False) as client:
        with pytest.raises(httpx.HTTPError, match=reason or None):
            await client.get(url)


async def test_little_is_unpacked_of_a_bomb():
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    await test_answers_are_bounded("a bomb in gzip")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8 * MAX_ANSWER // 1024


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b'{"a": 1}', ()),
        (gzip.compress(b'{"a": 1}'), (b"Content-Encoding: gzip",)),
        (zlib.compress(b'{"a": 1}'), (b"Content-Encoding: deflate",)),
    ],
    ids=["plain", "gzip", "deflate"],
)
async def test_ordinary_answers_are_read(body, headers):
    async with serve(with_length(body, *headers)) as (url, heads), BoundedClient(trust_env=False) as client:
        answer = await client.post(url, json={})
    assert answer.json() == {"a": 1}
    assert answer.elapsed.total_seconds() >= 0
    assert b"accept-encoding: gzip\r\n" in heads[0].lower()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_not_followed(status):
    async with serve(with_length(b"{}")) as (elsewhere, stolen):
        first = write(MOVED % (status, elsewhere.encode()))
        async with serve(first) as (url, _), BoundedClient(trust_env=False, follow_redirects=True) as client:
            answer = await client.post(url, json={"prompt": "private"}, headers={"Authorization": "Bearer k"})
    assert answer.status_code == status
    assert f"it redirects to {elsewhere}/v1, which is not followed" in answer.text
    assert stolen == []


async def test_a_password_is_sent_and_not_logged(caplog):
    caplog.set_level(logging.DEBUG)
    async with serve(with_length(b"{}")) as (url, heads), BoundedClient(trust_env=False) as client:
        await client.get(url.replace("http://", "http://user:PASS-word@"))
    assert b"Authorization: Basic dXNlcjpQQVNTLXdvcmQ=" in heads[0]
    assert "PASS-word" not in caplog.text


class Verdict(Record):
    success: bool


async def ask_policy(url):
    limits = RolloutSettings.model_validate({"endpoint": {"timeout": 1.0, "retries": 0}})
    policy = ChatPolicy(limits.build_endpoint(f"{url}/v1", "m"), PolicySettings(), EncodedImages(lambda _: b""))
    policy._is_vllm = False
    try:
        await policy.reply(Prompt(messages=(Message(role="user", content="private"),), images=()))
    finally:
        await policy.close()


async def ask_judge(url):
    chat = ChatClient(JudgeSettings(base_url=f"{url}/v1", timeout=1.0, retries=0))
    try:
        form = ReplyFormat("verdict", Verdict, {"type": "object"})
        await chat.ask([{"role": "user", "content": "private"}], form, RequestCounter(), model="m")
    finally:
        await chat.close()


@pytest.mark.parametrize("ask", [ask_policy, ask_judge])
@pytest.mark.parametrize("kind", ["a bomb in gzip", "1 byte a second", "endless chunks"])
async def test_policy_and_judge_are_asked_so(ask, kind):
    async with serve(HOSTILE[kind][0]) as (url, _), asyncio.timeout(40):
        with pytest.raises(BoundaryError):
            await ask(url)


@pytest.mark.parametrize("ask", [ask_policy, ask_judge])
async def test_a_redirect_of_policy_and_judge_takes_nothing_elsewhere(ask):
    async with serve(with_length(b"{}")) as (elsewhere, stolen):
        moved = write(MOVED % (307, elsewhere.encode()))
        async with serve(moved) as (url, _):
            with pytest.raises(BoundaryError, match="it redirects to"):
                await ask(url)
    assert stolen == []


@pytest.mark.parametrize("ask", [ask_policy, ask_judge])
async def test_json_that_is_too_deep_is_no_answer(ask):
    async with serve(with_length(b"[" * 2**20)) as (url, _):
        with pytest.raises(BoundaryError):
            await ask(url)


def test_the_cause_of_a_failed_connection_is_told():
    error = openai.APIConnectionError(request=httpx.Request("GET", "http://host"))
    error.__cause__ = httpx.DecodingError("the answer is larger than 5 bytes")
    assert describe_error(error) == "Connection error. the answer is larger than 5 bytes"
    assert issubclass(ChatError, BoundaryError)
