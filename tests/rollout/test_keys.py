"""No key of `webgym rollout` is written anywhere, nor reaches the browser."""

import asyncio
import signal
from pathlib import Path

import pytest
from aiohttp import web

from tests.executable import Command, finished, trajectories
from tests.forked import webgym
from tests.rewards.scripted_judge import ScriptedJudgeServer

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("chromium")]

QUICK = ("-s", "browser.max_idle_wait=0.5", "-s", "rollout.concurrency=3")
SITES = ("-s", "tasks.train=sites:all", *QUICK)


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


async def test_no_key_is_written_anywhere(tmp_path: Path, monkeypatch):
    """Not even where a server repeats the key that it was sent."""
    key = "secret-xyz-4711"
    monkeypatch.setenv("OPENAI_API_KEY", key)
    responses = []

    async def refuse(request: web.Request) -> web.Response:
        responses.append(request.headers.get("Authorization", ""))
        return web.json_response({"error": {"message": f"bad key {responses[-1]}"}}, status=401)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", refuse)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    address = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    run = tmp_path / "run"
    async with ScriptedJudgeServer() as server:
        judged = (*SITES, "-s", f"judge.base_url={server.base_url}", "--policy", "oracle", "--episodes", 2)
        done = await asyncio.to_thread(webgym, "rollout", run, *judged, cwd=tmp_path)
        assert {received_question.authorization for received_question in server.requests} == {f"Bearer {key}"}
    refused = ("rollout", tmp_path / "refused", *SITES, "--policy", address, "--episodes", 3)
    policy = await asyncio.to_thread(webgym, *refused, cwd=tmp_path, code=1)
    bad = ("judge", run, "--all", "-s", "judge.votes=3", "-s", f"judge.base_url={address}")
    judge = await asyncio.to_thread(webgym, *bad, cwd=tmp_path, code=1)
    await runner.cleanup()
    assert f"Bearer {key}" in responses, "the key was used"
    written = files(tmp_path)
    assert run / "config.json" in written
    assert [path for path in written if key.encode() in path.read_bytes()] == []
    assert key not in "".join(text for one in (done, policy, judge) for text in (one.stdout, one.stderr))
    refused_rows = trajectories(tmp_path / "refused")
    assert any("[key]" in trajectory["outcome"]["failure_detail"] for trajectory in refused_rows)


def test_no_key_reaches_the_browser(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret-xyz-4711")
    monkeypatch.setenv("HF_TOKEN", "secret-xyz-4712")
    run = tmp_path / "run"
    command = Command(tmp_path, "rollout", run, *SITES, "--policy", "oracle", "--episodes", 20)
    command.until(lambda: command.browsers() and len(finished(run)) >= 1)
    environments = [browser.environ() for browser in command.browsers()]
    assert command.send(signal.SIGTERM) == 143
    assert environments and all("PATH" in environment for environment in environments)
    assert not [name for environment in environments for name, value in environment.items() if "secret-xyz" in value]
