"""OpenEnv's own client against the server, in front of a real Chromium on the fixture sites."""

import asyncio
import base64
import io
import json
import os
import random
import subprocess
from pathlib import Path

import httpx
import pytest
import websockets
from PIL import Image

from benchmarks.peers import OPENENV, TRL
from tests.peers import require
from webgym_cli.config.load import load
from webgym_cli.env_server.host import SessionHost
from webgym_cli.errors import SettingsError, UsageError

pytest.importorskip("openenv", reason="pip install 'webgym[openenv]'")
pytestmark = pytest.mark.browser

from fastmcp import Client as McpClient  # noqa: E402
from openenv.core.generic_client import GenericEnvClient  # noqa: E402
from openenv.core.mcp_client import MCPToolClient  # noqa: E402

from webgym_cli.env_server.server import MAX_BODY, TOKEN_VARIABLE, make_app, serve_host  # noqa: E402

SESSIONS = 2
HOOK = Path(__file__).with_name("trl_hook.py")
PAGE = Path(__file__).parents[2] / "docs" / "environment-server.md"
TASK = {"task_id": "shop-cheapest", "seed": 3}


@pytest.fixture(scope="module")
async def host():
    shown = ("context_config.interaction_mode=set_of_marks", "context_config.observation=tree")
    async with SessionHost(load(overrides=["tasks.train=sites:all", "browser.max_idle_wait=2", *shown])) as opened:
        yield opened


@pytest.fixture(scope="module")
async def address(host):
    async with serve_host(host, "127.0.0.1", 0, SESSIONS, 600) as url:
        yield url


def socket_of(address):
    return websockets.connect(f"{address.replace('http', 'ws')}/ws", proxy=None)


async def ask(socket, kind, **data):
    await socket.send(json.dumps({"type": kind, "data": data}))
    return json.loads(await socket.recv())["data"]


async def test_an_episode_with_pictures_and_the_reward_of_the_site(address, host):
    async with GenericEnvClient(base_url=address) as client:
        first = await client.reset(**TASK)
        picture = Image.open(io.BytesIO(base64.b64decode(first.observation["screenshot"])))
        assert picture.format == "PNG"
        assert (first.done, first.reward) == (False, None)
        assert first.observation["elements"] and "link" in first.observation["tree"]
        late = await client.step({"action": "click", "element_id": 999})
        assert "999" in late.observation["action_error"]
        assert (await client.state())["step_count"] == 1
        (pool,) = host._pools.values()
        (episode,) = pool.server.episodes.values()
        last = await client.step({"action": "answer", "text": episode.reference})
        assert (last.done, last.reward, last.observation["success"]) == (True, 1.0, True)
        with pytest.raises(RuntimeError, match="EXECUTION_ERROR"):
            await client.step({"action": "wait", "time": 0})


async def test_tasks_are_listed_without_their_answers(address):
    async with httpx.AsyncClient(base_url=address, trust_env=False) as client:
        assert (await client.get("/webgym/splits")).json() == [{"name": "train", "type": "train"}]
        task = (await client.post("/webgym/task", json={"split": "train", "index": 0})).json()["task"]
        assert not {"reference_answer", "rubric", "check", "extra"} & task.keys()
        for split, index in (("train", -1), ("train", 10**6), ("test", 0)):
            answer = await client.post("/webgym/task", json={"split": split, "index": index})
            assert answer.status_code == 400
        assert "element_id" in (await client.get("/schema")).json()["action"]["properties"]
        assert (await client.post("/reset", json={})).status_code == 404  # outside of all sessions


async def test_no_more_sessions_than_allowed_and_a_closed_connection_frees_its_own_at_once(address, host):
    async with socket_of(address) as one, socket_of(address) as two:
        assert "observation" in await ask(one, "reset", **TASK)
        assert "observation" in await ask(two, "reset", **TASK)
        async with socket_of(address) as three:
            assert json.loads(await three.recv())["data"]["code"] == "CAPACITY_REACHED"
        (pool,) = host._pools.values()
        assert len(pool.server.episodes) == SESSIONS
        await one.send(json.dumps({"type": "step", "data": {"action": "wait", "time": 60}}))
        one.transport.abort()
        two.transport.abort()
        async with asyncio.timeout(30):  # less than the action of 60 seconds
            while pool.server.episodes:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    async with socket_of(address) as four:
        assert "observation" in await ask(four, "reset", **TASK)


async def test_openenv_s_validation_passes(address):
    require(OPENENV)
    command = [OPENENV.python.with_name("openenv"), "validate", "--json", "--url", address]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=300)
    report = json.loads(done.stdout)
    assert (done.returncode, report["passed"]) == (0, True), done.stdout


async def test_trl_s_environment_hook_plays_rollouts_with_pictures(address, host):
    require(TRL)
    require(OPENENV)
    async with GenericEnvClient(base_url=address) as client:
        await client.reset(**TASK)
        (pool,) = host._pools.values()
        (right,) = [episode.reference for episode in pool.server.episodes.values()]
    code = PAGE.read_text().partition("## TRL")[2].partition("```python\n")[2].partition("```")[0]
    row = {"prompt": [{"role": "user", "content": "Shop:"}], **TASK}
    job = {"code": code, "address": address, "rows": [row, row], "answers": [right, "nothing"]}
    command, packages = [TRL.python, HOOK], os.environ | {"PYTHONPATH": str(OPENENV.packages_folder)}
    done = await asyncio.to_thread(
        subprocess.run, command, env=packages, input=json.dumps(job), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["rewards"] == [1.0, 0.0]
    for first, *_, clicked, _, answered in result["rollouts"]:
        assert first.startswith("Shop:")
        assert clicked[0] == "PNG"
        assert "999" in clicked[1]
        assert len(answered) == 1  # an episode that is over has no picture


async def test_a_session_without_a_message_ends_and_frees_its_place(host):
    async with serve_host(host, "127.0.0.1", 0, 1, 0.1) as url, socket_of(url) as socket:
        assert "observation" in await ask(socket, "reset", **TASK)
        (pool,) = host._pools.values()
        async with asyncio.timeout(60):
            while pool.server.episodes:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        late = await ask(socket, "step", action="wait", time=0)
        assert "its time limit" in late["message"]
        async with GenericEnvClient(base_url=url) as client:
            assert (await client.state())["step_count"] == 0


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("{", "INVALID_JSON"),
        ("[]", "SESSION_ERROR"),
        ("[" * 10**5, "SESSION_ERROR"),
        ('{"type": "dance"}', "UNKNOWN_TYPE"),
        ('{"type": "step", "data": []}', "VALIDATION_ERROR"),
        ('{"type": "step", "data": {"action": 5}}', "VALIDATION_ERROR"),
        ('{"type": "step", "data": {"action": "wait"}}', "EXECUTION_ERROR"),
        ('{"type": "reset", "data": {"seed": NaN}}', "EXECUTION_ERROR"),
        ('{"type": "reset", "data": {"task": {"check": "x.py:f"}}}', "EXECUTION_ERROR"),
    ],
)
async def test_a_bad_frame_gets_the_protocols_error(address, frame, code):
    async with socket_of(address) as socket:
        await socket.send(frame)
        assert json.loads(await socket.recv())["data"]["code"] == code


VALUES = (
    None,
    True,
    -1,
    1e400,
    10**400,
    "",
    "\ud800",
    "x" * 100_000,
    [],
    {},
    [[]],
    {"a": {"b": []}},
    "../x",
    float("nan"),
)
PATHS = (
    "/ws",
    "/mcp",
    "/harness",
    "/reset",
    "/step",
    "/state",
    "/webgym/task",
    "/webgym/task_range",
    "/a/tasks",
    "/%00",
)


def make_frames(draw):
    """Yield frames of which none starts an episode or acts in one."""
    step = '{"type": "step", "data": {"action": "wait", "time": 0}}'
    for _ in range(60):  # a step with a few characters replaced
        text = list(step)
        for at in draw.sample(range(len(text)), 3):
            text[at] = draw.choice('{}[]":,0\\\x00é\udfff')
        yield "".join(text).encode(errors="replace").decode()
    for _ in range(60):
        name = draw.choice(("seed", "index", "task_id", "split", "task", "check", "self", "episode"))
        value = draw.choice([one for one in VALUES if name not in ("seed", "task_id") or one is not None])
        kind, data = draw.choice(
            (("reset", {name: value, "split": -1}), ("mcp", {name: value}), (value, {}), ("step", value))
        )
        yield json.dumps({"type": kind, "data": data})


async def test_200_hostile_frames_and_requests_are_refused_and_leave_nothing(address, host, caplog):
    draw, count = random.Random(0), 0
    async with socket_of(address) as socket:
        for frame in make_frames(draw):
            await socket.send(frame)
            reply, count = json.loads(await asyncio.wait_for(socket.recv(), 30)), count + 1
            assert reply["type"] == "error" or "error" in reply["data"], frame[:200]
        await socket.send('{"type": "state"}')  # the same connection goes on
        assert json.loads(await socket.recv())["data"]["step_count"] == 0
    async with httpx.AsyncClient(base_url=address, trust_env=False) as client:
        while (count := count + 1) <= 200:
            path, method = draw.choice(PATHS), draw.choice(("POST", "POST", "PUT", "GET"))
            body = json.dumps({draw.choice(("split", "index", "start", "method", "params", "id")): draw.choice(VALUES)})
            given = draw.choice(({}, {"Content-Type": "application/json"}, {"Authorization": "Bearer x"}))
            answer = await client.request(method, path, content=body, headers=given)
            refused = 400 <= answer.status_code < 500 or answer.json()["error"]
            assert refused, f"{method} {path} {body[:100]}: {answer.status_code} {answer.text[:200]}"
    (pool,) = host._pools.values()
    async with asyncio.timeout(30):
        while host._sessions:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert not pool.server.episodes and not [record for record in caplog.records if record.exc_info]


async def test_a_client_that_leaves_before_its_answer_is_no_error(host):
    async def send(message):
        sent.append(message["type"])
        if message["type"] == "websocket.send":
            messages.put_nowait({"type": "websocket.disconnect", "code": 1006})
            raise OSError

    sent, messages = [], asyncio.Queue()
    for message in ({"type": "websocket.connect"}, {"type": "websocket.receive", "text": '{"type": "state"}'}):
        messages.put_nowait(message)
    scope = {"type": "websocket", "path": "/ws", "headers": [], "query_string": b"", "subprotocols": []}
    await make_app(host, "", SESSIONS, 600)(scope, messages.get, send)
    assert sent[:2] == ["websocket.accept", "websocket.send"]


@pytest.mark.parametrize("body", [b'{"split": "train", "index": 1e400}', b'{"split": "train", "index": "\\ud800"}'])
async def test_values_that_json_can_not_hold_are_refused(address, body):
    async with httpx.AsyncClient(trust_env=False) as client:
        refused = await client.post(
            f"{address}/webgym/task", content=body, headers={"Content-Type": "application/json"}
        )
        assert (refused.status_code, refused.json()["detail"][0]["loc"]) == (422, ["body", "index"])


async def test_bad_arguments_in_an_episode_are_the_policys_errors(address):
    async with socket_of(address) as socket:
        await ask(socket, "reset", **TASK)
        for bad in ({"action": "dance"}, {"action": "\ud800"}, {"action": "click"}, {"action": "wait", "time": 1e400}):
            assert (await ask(socket, "step", **bad))["observation"]["action_error"]


async def test_requests_of_web_pages_and_large_bodies_are_refused(address):
    async with httpx.AsyncClient(base_url=address, trust_env=False) as client:
        assert (await client.get("/health", headers={"Origin": "http://evil.test"})).status_code == 403
        assert (await client.post("/mcp", content=b"x" * (MAX_BODY + 1))).status_code == 413
    with pytest.raises(websockets.InvalidStatus):
        await websockets.connect(f"{address.replace('http', 'ws')}/ws", proxy=None, origin="http://evil.test")


async def test_mcp_tools_start_a_task_and_act(address):
    async with MCPToolClient(base_url=address) as client:
        assert [tool.name for tool in await client.list_tools()] == ["start_task", "web_interaction"]
        seen = await client.call_tool("start_task", **TASK)
        assert [part["type"] for part in seen["content"]] == ["text", "image"]
        end = await client.call_tool("web_interaction", action="answer", text="nothing")
        assert json.loads(end["content"][0]["text"])["reward"] == 0.0
        with pytest.raises(RuntimeError, match="reset"):
            await client.call_tool("web_interaction", action="answer", text="nothing")


async def test_clients_of_mcp_have_sessions_of_their_own(address):
    for _ in range(SESSIONS + 1):  # each ends with its client
        async with McpClient(f"{address}/mcp") as client:
            assert await client.ping()
            assert [tool.name for tool in await client.list_tools()] == ["start_task", "web_interaction"]
            seen = await client.call_tool("start_task", TASK)
            assert [part.type for part in seen.content] == ["text", "image"]
            end = await client.call_tool("web_interaction", {"action": "answer", "text": "nothing"})
            assert json.loads(end.content[0].text)["reward"] == 0.0
            with pytest.raises(Exception, match="start_task"):
                await client.call_tool("web_interaction", {"action": "answer", "text": "nothing"})


async def test_the_handshake_of_mcp(address):
    async with httpx.AsyncClient(base_url=address, trust_env=False) as client:

        async def post(verb, session=None, identity=1, **params):
            headers = {"Mcp-Session-Id": session} if session else {}
            message = {"jsonrpc": "2.0", "id": identity, "method": verb, "params": params}
            return await client.post("/mcp", content=json.dumps(message), headers=headers)

        begun = [await post("initialize", protocolVersion=version) for version in ("2025-03-26", "1999-01-01")]
        assert [one.json()["result"]["protocolVersion"] for one in begun] == ["2025-03-26", "2025-11-25"]
        sessions = [one.headers["Mcp-Session-Id"] for one in begun]
        refused = (await post("initialize", identity="\ud800")).json()
        assert (refused["id"], refused["error"]["data"]["max_sessions"]) == ("\ud800", 2)
        notified = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert (await client.post("/mcp", json=notified, headers={"Mcp-Session-Id": sessions[0]})).status_code == 202
        assert (await post("resources/list", sessions[0], method=1, number=2)).json()["error"]["code"] == -32601
        assert (await post("ping", sessions[0], identity="a")).json() == {"jsonrpc": "2.0", "id": "a", "result": {}}
        for session in sessions:
            ended = [await client.delete("/mcp", headers={"Mcp-Session-Id": session}) for _ in range(2)]
            assert [one.status_code for one in ended] == [204, 404]
            assert (await post("tools/list", session, identity="a")).status_code == 404
        assert (await client.delete("/mcp")).status_code == 404
        for body in (
            b"[1]",
            b'{"method": "initialize", "params": 3}',
            b"\xff",
            b'{"method": 1}',
            b'{"method": "a", "id": []}',
        ):
            assert "error" in (await client.post("/mcp", content=body)).json(), body


async def test_a_token_is_needed_where_others_reach_the_server(host, monkeypatch):
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    with pytest.raises(SettingsError, match=TOKEN_VARIABLE):
        async with serve_host(host, "0.0.0.0", 0, 1, 600):
            pass
    monkeypatch.setenv(TOKEN_VARIABLE, "a-secret-token-of-mine")
    async with serve_host(host, "0.0.0.0", 0, 1, 600) as url:
        url = url.replace("0.0.0.0", "127.0.0.1")
        with pytest.raises(ConnectionError):
            await GenericEnvClient(base_url=url).connect()
        for scheme in ("Bearer", "bearer"):
            headers = {"Authorization": f"{scheme} a-secret-token-of-mine"}
            async with GenericEnvClient(base_url=url, headers=headers) as client:
                assert (await client.state())["step_count"] == 0
        for given in (
            "Basic a-secret-token-of-mine",
            "Bearer a-secret-token-of-min",
            "a-secret-token-of-mine",
            "Bearer ü",
        ):
            assert await fetch_health(url, given.encode()) == 401


@pytest.mark.parametrize("token", ["geheim-für-über-alles", "secret-\udcff\udcfe"])
async def test_a_token_of_any_bytes_is_taken(host, monkeypatch, token):
    monkeypatch.setenv(TOKEN_VARIABLE, token)
    async with serve_host(host, "0.0.0.0", 0, 1, 600) as url:
        given = b"Bearer " + token.encode(errors="surrogateescape")
        url = url.replace("0.0.0.0", "127.0.0.1")
        assert [await fetch_health(url, one) for one in (given, given[:-1])] == [200, 401]


async def fetch_health(url, authorization):
    """Return the status of an answer."""
    async with httpx.AsyncClient(trust_env=False) as client:
        return (await client.get(f"{url}/health", headers={b"Authorization": authorization})).status_code


async def test_a_port_that_is_taken_is_named(host, address):
    port = int(address.rpartition(":")[2])
    with pytest.raises(UsageError, match=str(port)):
        async with serve_host(host, "127.0.0.1", port, 1, 600):
            pass
