"""No key of `webgym rollout` is written anywhere, nor reaches the browser."""

import asyncio
import signal
from pathlib import Path

import pytest

from tests.executable import Command, finished, trajectories
from tests.forked import webgym
from tests.json_server import serve_json
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

    def refuse(request, body):
        responses.append(request.headers.get("Authorization", ""))
        return 401, {"error": {"message": f"bad key {responses[-1]}"}}

    run = tmp_path / "run"
    async with ScriptedJudgeServer() as server:
        judged = (*SITES, "-s", f"judge.base_url={server.base_url}", "--policy", "oracle", "--episodes", 2)
        done = await asyncio.to_thread(webgym, "rollout", run, *judged, cwd=tmp_path)
        assert {received_question.authorization for received_question in server.requests} == {f"Bearer {key}"}
    with serve_json(refuse) as address:
        refused = ("rollout", tmp_path / "refused", *SITES, "--policy", f"{address}/v1", "--episodes", 3)
        policy = await asyncio.to_thread(webgym, *refused, cwd=tmp_path, code=1)
        bad = ("judge", run, "--all", "-s", "judge.votes=3", "-s", f"judge.base_url={address}/v1")
        judge = await asyncio.to_thread(webgym, *bad, cwd=tmp_path, code=1)
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
