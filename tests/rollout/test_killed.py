"""`webgym rollout` as its users run it: however it ends, no process is left, and it goes on where it stopped."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from pathlib import Path

import psutil
import pytest
from aiohttp import web

from tests.executable import Command, failures, finished, forked_webgym, needs_chromium, trajectories, webgym
from tests.rewards.scripted_judge import ScriptedJudgeServer

pytestmark = pytest.mark.browser

QUICK = ("-s", "browser.max_idle_wait=0.5", "-s", "rollout.concurrency=3")
SITES = ("-s", "tasks.train=sites:all", *QUICK)


@pytest.fixture(autouse=True)
def chromium():
    needs_chromium()


def browsers(command: Command) -> list[int]:
    """Return the pids of the browser's processes below a command."""
    found = []
    for process in command.tree():
        try:
            found += [process.pid] if "--user-data-dir=" in " ".join(process.cmdline()) else []
        except psutil.Error:
            continue
    return found


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_however_a_rollout_ends_nothing_is_left_and_the_next_one_goes_on(tmp_path: Path):
    run, episodes = tmp_path / "run", 10
    arguments = ("rollout", run, *SITES, "--policy", "oracle", "--episodes", episodes)
    endings = ((signal.SIGINT, False, 130), (signal.SIGKILL, True, -9))  # test_killed_and_resumed.py has the others
    for number, (how, group, code) in enumerate(endings, 1):
        command = Command(tmp_path, *arguments)
        enough = 2 * number
        command.until(lambda enough=enough, command=command: len(finished(run)) >= enough and browsers(command))
        assert command.send(how, group=group) == code, command.err.read_text()[-2000:]
        assert "Traceback" not in command.err.read_text()
    last = forked_webgym(tmp_path, *arguments, "--json")
    summary = json.loads(last.out.read_text().splitlines()[-1])
    assert (summary["episodes"], summary["successes"], summary["owed"]) == (episodes, episodes, 0)
    assert Counter(finished(run)).most_common(1)[0][1] == 1, "no episode twice"
    assert len(finished(run)) == episodes and set(failures(run)) <= {"cancelled"}
    ids = [found["id"] for found in trajectories(run)]
    assert len(ids) == len(set(ids))
    again = forked_webgym(tmp_path, *arguments)
    assert len(finished(run)) == episodes, again.err.read_text()


def test_a_rollout_that_fails_leaves_nothing(tmp_path: Path):
    nobody = ("--policy", "http://127.0.0.1:9/v1", "-s", "rollout.policy_wait=0", "--episodes", 12)
    command = webgym(tmp_path, "rollout", tmp_path / "run", *SITES, *nobody, code=1)
    assert "in a row failed: policy_unavailable" in command.err.read_text()
    assert "Traceback" not in command.err.read_text()
    assert len(failures(tmp_path / "run")) >= 8


async def test_no_key_is_written_anywhere(tmp_path: Path, monkeypatch):
    """Not even where a server repeats the key that it was sent."""
    key = "secret-xyz-4711"
    monkeypatch.setenv("OPENAI_API_KEY", key)
    heard = []

    async def refuse(request: web.Request) -> web.Response:
        heard.append(request.headers.get("Authorization", ""))
        return web.json_response({"error": {"message": f"bad key {heard[-1]}"}}, status=401)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", refuse)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    address = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    run = tmp_path / "run"
    async with ScriptedJudgeServer() as server:
        judged = (*SITES, "-s", f"judge.base_url={server.base_url}", "--policy", "oracle", "--episodes", 2)
        done = await asyncio.to_thread(forked_webgym, tmp_path, "rollout", run, *judged)
        assert {asked.authorization for asked in server.asked} == {f"Bearer {key}"}
    refused = ("rollout", tmp_path / "refused", *SITES, "--policy", address, "--episodes", 3)
    policy = await asyncio.to_thread(forked_webgym, tmp_path, *refused, code=1)
    bad = ("judge", run, "--all", "-s", "judge.votes=3", "-s", f"judge.base_url={address}")
    judge = await asyncio.to_thread(forked_webgym, tmp_path, *bad, code=1)
    await runner.cleanup()
    assert f"Bearer {key}" in heard, "the key was used"
    written = files(tmp_path)
    assert {done.out, policy.err, judge.err, run / "config.json"} <= set(written)
    assert [path for path in written if key.encode() in path.read_bytes()] == []
    assert "[key]" in "".join(found["outcome"]["failure_detail"] for found in trajectories(tmp_path / "refused"))


def test_no_key_reaches_the_browser(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret-xyz-4711")
    monkeypatch.setenv("HF_TOKEN", "secret-xyz-4712")
    run = tmp_path / "run"
    command = Command(tmp_path, "rollout", run, *SITES, "--policy", "oracle", "--episodes", 20)
    command.until(lambda: browsers(command) and len(finished(run)) >= 1)
    environments = [psutil.Process(pid).environ() for pid in browsers(command)]
    assert command.send(signal.SIGTERM) == 143
    assert environments and all("PATH" in environment for environment in environments)
    assert not [name for environment in environments for name, value in environment.items() if "secret-xyz" in value]
