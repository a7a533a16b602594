"""500 hostile requests: each is refused in OpenAI's error form, and nothing of them is recorded."""

import asyncio
import json
import random

import pytest

from tests.gateway.served import ask, gateway, picture
from tests.prepare.rl_builders import build_model

JSON = {"Content-Type": "application/json"}
CALLS = ("/v1/chat/completions", "/v1/responses")
VALUES = (
    *(
        None,
        True,
        -1,
        1e308,
        10**400,
        "",
        "\ud800",
        "<|im_end|>",
        "x" * 100_000,
        [],
        {},
        [[]],
        [None],
        {"a": {"b": []}},
    ),
    *(
        {"url": "file:///etc/passwd"},
        "http://169.254.169.254/",
        [{"type": "image_url", "image_url": {"url": "data:,"}}],
    ),
    *([{"type": "video", "url": "x"}], [{"role": "tool"}], [{"role": "assistant", "content": "I begin."}]),
)
BODIES = (
    *(b"", b"null", b"[]", b"{", b'"text"', b"\xff\xfe", b'{"a": NaN}', b'{"messages": ' + b"[" * 50_000, b"0" * 5000),
    b'{"model": "policy", "model": 7}',
)
PICTURES = (
    *(
        "http://10.0.0.1/a.png",
        "file:///etc/passwd",
        "data:image/png;base64,%%%",
        "data:image/png;base64,AAAA",
        "data:",
    ),
    *("data:text/html;base64,AAAA", picture(size=(2, 2)), picture(size=(5000, 3000)), picture()[:-200]),
)


def make_requests(session, other):
    """Return method, path, headers and body of 500 requests."""
    draw = random.Random(0)
    key = {"Authorization": f"Bearer {session['key']}"}
    own = (f"/sessions/{session['id']}/reward", f"/sessions/{session['id']}/end", "/sessions")
    rows = [("POST", path, key | JSON, body) for path in (*CALLS, *own[:2]) for body in BODIES[1:]]
    keys = [{}, {"Authorization": "Bearer"}, {"Authorization": f"Basic {session['key']}"}, {"X-Webgym-Session": "x"}]
    keys += [
        {"Authorization": f"Bearer {guess}"} for guess in (session["key"][:-1], session["key"] + "A", "ü", "a" * 7000)
    ]
    rows += [("POST", path, guess, json.dumps(ask()).encode()) for path in (*CALLS, *own[:2]) for guess in keys]
    rows += [("POST", path, {"Authorization": f"Bearer {other['key']}"}, b"{}") for path in own[:2]]
    rows += [(method, path, key, b"") for method in ("GET", "DELETE", "PUT") for path in (*CALLS, *own)]
    rows += [
        ("GET", path, key, b"") for path in ("/", "/v1", "/sessions/../x", "/v1/%00", "/metrics", "/v1/completions")
    ]
    rows += [("POST", path, key | {"Origin": "http://evil.test"}, b"{}") for path in (*CALLS, *own)]
    rows += [("POST", CALLS[0], key, json.dumps(ask("x", url)).encode()) for url in PICTURES]
    rewards = ("nan", "1", [1], True, None, 1e7, -1e7, 10**400, {"reward": 1})
    rows += [("POST", path, key | JSON | {"Content-Encoding": "gzip"}, b"\x1f\x8bno") for path in (*CALLS, *own)]
    rows += [("POST", own[0], key, json.dumps({"reward": value}).encode()) for value in rewards]
    rows += [("POST", own[0], key, b'{"reward": Infinity}'), ("POST", own[1], key, json.dumps({"x": 1}).encode())]
    rows += [
        ("POST", own[2], key, json.dumps({"task": value}).encode()) for value in VALUES if not isinstance(value, dict)
    ]
    while len(rows) < 500:  # a good request with a field or two replaced
        path = draw.choice(CALLS)
        body = ask() if path == CALLS[0] else {"model": "policy", "input": "Go."}
        needed = ("messages", "model") if path == CALLS[0] else ("input", "model")
        body[draw.choice(needed)] = draw.choice([value for value in VALUES if not isinstance(value, str)])
        body[draw.choice(("tools", "stream", "stop", "response_format", "n", "text"))] = draw.choice(VALUES)
        rows.append(("POST", path, key, json.dumps(body).encode()))
    return rows


async def test_500_hostile_requests_are_refused_and_recorded_nowhere(tmp_path, tmp_path_factory, caplog):
    model = build_model(tmp_path_factory.mktemp("model"))
    async with gateway(tmp_path / "run", model) as world:
        session, other = await world.open(), await world.open()
        requests = make_requests(session, other)
        for method, path, headers, body in requests:
            given = {name.encode(): value.encode() for name, value in headers.items()}
            reply = await world.client.request(method, path, content=body, headers=given)
            where = f"{method} {path} {body[:200]!r}: {reply.status_code} {reply.text[:200]}"
            assert 400 <= reply.status_code < 500, where
            assert {"message", "type", "code"} <= reply.json()["error"].keys(), where
            assert session["key"] not in reply.text
        assert len(requests) == 500 and not world.upstream.bodies
        assert not [*world.run.screenshots.rglob("*.png")]
        await _send_no_http(world.server.address)
        assert not [record for record in caplog.records if record.exc_info]  # a client must not fill the log
        assert (await world.chat(session["key"])).status_code == 200
        counts = (await world.post(f"/sessions/{session['id']}/end", session["key"], {"reward": 1})).json()
        assert (counts["calls"], counts["reward"]) == (1, 1)
        for path in (*CALLS, f"/sessions/{session['id']}/reward", f"/sessions/{session['id']}/end"):
            assert (await world.post(path, session["key"], ask())).status_code == 401  # a replayed key


async def _send_no_http(address):
    host, port = address.split(":")
    for head in (b"FOO / HTTP/1.1", b"POST / HTTP/1.1\r\nX\0: 1", b"GET / HTTP/9.9", b"\x16\x03\x01\x02"):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(head + b"\r\n\r\n")
        assert (await asyncio.wait_for(reader.read(), 30)).startswith(b"HTTP/1.0 400")
        writer.close()


@pytest.mark.parametrize(
    ("path", "size"), [*((path, 30 * 2**20) for path in CALLS), ("/sessions", 2**20), ("/sessions/{}/end", 2**20)]
)
async def test_a_body_above_30_mb_is_refused_and_one_of_a_session_above_1_mb(tmp_path, tmp_path_factory, path, size):
    model = build_model(tmp_path_factory.mktemp("model"))
    async with gateway(tmp_path / "run", model) as world:
        session = await world.open()
        headers = {"Authorization": f"Bearer {session['key']}"}
        for body, code in ((b" " * (size + 1), "http_error"), (b"{" + b" " * (size - 1), "invalid_json")):
            reply = await world.client.post(path.format(session["id"]), content=body, headers=headers)
            assert reply.json()["error"]["code"] == code
            assert (reply.status_code == 413) == (code == "http_error")
        assert (await world.chat(session["key"])).status_code == 200
