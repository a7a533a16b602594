"""`webgym prepare` with train.algorithm=webrl, as a person runs it: planned, killed, said again."""

import asyncio
import json
import signal

import pytest

from tests.cli.runs import tree
from tests.executable import Command
from tests.forked import refused, webgym
from tests.prepare.actor_server import ActorServer
from tests.prepare.rl_builders import build_model, line_of
from tests.prepare.webrl_builders import POLICY, demonstrations, experience, second_phase
from webgym_cli.store.run import RunDir


@pytest.fixture
def run(tmp_path, tmp_path_factory):
    model = build_model(tmp_path_factory.mktemp("model"))
    shown = demonstrations(RunDir(tmp_path / "shown"), model)
    run = RunDir(tmp_path / "run")
    second_phase(run, model, experience(shown))
    return run


async def test_a_dry_run_tells_what_can_be_known_and_writes_nothing(run):
    before = tree(run.root.parent)
    done = await asyncio.to_thread(webgym, "prepare", run.root, "--json", "--dry-run", cwd=run.root.parent)
    (plan,) = map(json.loads, done.stdout.splitlines())
    assert plan["replay"]["actions_to_score"] == 7
    assert plan["replay"]["dropped_trajectories"] == {"failure": 1, "repeated_task": 1, "unsuccessful": 1}
    assert tree(run.root.parent) == before


async def test_what_was_scored_before_a_kill_is_not_asked_again(run):
    async with ActorServer() as server:
        server.usual, server.answers = -0.3, 3
        settings = (f"rl.replay.base_url={server.base_url}", "rl.replay.concurrency=1")
        prepare = ("prepare", run.root, "--json", "-s", settings[0], "-s", settings[1])
        command = await asyncio.to_thread(Command, run.root.parent, *prepare)
        await server.waiting.wait()
        await asyncio.to_thread(command.send, signal.SIGKILL)
        assert len(line_of(run.action_logprobs)) == 3
        assert not run.rl_data.exists()
        server.answers = None
        done = await asyncio.to_thread(webgym, *prepare, cwd=run.root.parent)
    assert len({str(tokens) for tokens in server.requests}) == len(server.requests) == 7
    (data,) = (one for one in map(json.loads, done.stdout.splitlines()) if one["event"] == "rl_data")
    assert (data["policy"], data["current_rows"], data["replayed_rows"]) == (POLICY, 4, 7)


def test_a_server_that_is_gone_ends_it_with_the_next_command(run):
    nowhere = ("-s", "rl.replay.base_url=http://127.0.0.1:9/v1", "-s", "rl.replay.retries=0")
    message, hint = refused("prepare", run.root, *nowhere, cwd=run.root.parent, code=1)
    assert "what was scored stays" in hint
    assert message.startswith("http://127.0.0.1:9/v1: no log-probabilities of a prompt: Connection error.")
