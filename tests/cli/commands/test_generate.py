"""`webgym tasks generate` as people meet it, with the scripted model and over real HTTP."""

import asyncio
import json

import pytest

from tests.curriculum.generating import FAILED, failed_run
from tests.forked import webgym
from tests.rewards.scripted_judge import ScriptedReply
from webgym_cli.store.metrics import read_events
from webgym_cli.store.status import read_running_command
from webgym_cli.tasks.source import open_tasks

SCRIPTED = ("generate.base_url=scripted", "generate.tasks_per_request=4")


@pytest.fixture
def run(tmp_path):
    return failed_run(tmp_path)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def generate(tmp_path, *settings, more=(), code=0):
    """Run `webgym tasks generate` into new.jsonl."""
    words = [word for one in settings for word in ("-s", one)]
    return webgym("tasks", "generate", "run", "-o", "new.jsonl", *words, *more, cwd=tmp_path, code=code)


def test_the_scripted_model_makes_a_task_file(run, tmp_path):
    result = generate(tmp_path, *SCRIPTED)
    assert "next: webgym tasks check new.jsonl" in result.stderr
    webgym("tasks", "check", "new.jsonl", "tasks.jsonl", cwd=tmp_path)
    tasks = open_tasks(str(tmp_path / "new.jsonl"))
    by_instruction = {task.instruction: task for task in tasks.read(range(len(tasks)))}
    assert any("Find 4 reviews of" in instruction for instruction in by_instruction)
    assert {task.start_url for task in by_instruction.values()} == {"http://shop.test:7770/", "http://museum.test/"}
    assert all(task.extra["generated"] for task in by_instruction.values())
    rejected = lines(tmp_path / "new.jsonl.rejected.jsonl")
    assert {one["reason"] for one in rejected} <= {"known_task", "repeated"}
    (summary,) = read_events(run, "generate")
    assert (summary["kept"], sum(summary["rejected"].values())) == (len(by_instruction), len(rejected))
    assert read_running_command(run) is None


@pytest.mark.parametrize("words", [("tasks", "generate", "run", "-o", "new.jsonl"), ("score", "run", "--check")])
def test_a_limit_of_the_cost_without_prices_is_refused(run, tmp_path, words):
    result = webgym(*words, "-s", SCRIPTED[0], "-s", "cost.max_cost=1", cwd=tmp_path, code=2)
    assert "no model has a price" in result.stderr and not (tmp_path / "new.jsonl").exists()


def test_a_dry_run_tells_seeds_and_requests_and_needs_no_server(run, tmp_path):
    plan = json.loads(generate(tmp_path, more=("-n", "--json")).stdout)
    assert (plan["stage"], plan["seeds"], plan["requests"]) == ("generate", 4, 4)
    assert plan["seeds_by_site"] == {"museum.test": 1, "shop.test:7770": 3}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "tasks.jsonl"]


async def test_what_was_interrupted_is_resumed(run, tmp_path, server):
    server.script(*[ScriptedReply(status=500)] * 9, job="feasible")
    settings = (f"generate.base_url={server.base_url}", "generate.retries=0", "generate.concurrency=1")
    result = await asyncio.to_thread(generate, tmp_path, *settings, code=1)
    assert not (tmp_path / "new.jsonl").exists()
    assert "in a row can't be used" in result.stderr and "what was answered stays" in result.stderr
    first = sum(request.job == "generate" for request in server.requests)
    result = await asyncio.to_thread(webgym, "resume", "run", cwd=tmp_path)
    assert "resuming `webgym generate`" in result.stderr
    assert len(lines(tmp_path / "new.jsonl")) > 0
    assert (first, sum(request.job == "generate" for request in server.requests)) == (2, 4)


async def test_where_no_task_is_left_the_reasons_are_there(run, tmp_path, server):
    server.script(*[json.dumps({"tasks": [FAILED[0], "Name the oldest picture"]})] * 4, job="generate")
    server.script(*[json.dumps({"reason": "It has none.", "verdict": "no"})] * 20, job="feasible")
    result = await asyncio.to_thread(generate, tmp_path, f"generate.base_url={server.base_url}", code=1)
    assert not (tmp_path / "new.jsonl").exists()
    assert "no new task is left of 8; why: new.jsonl.rejected.jsonl" in result.stderr
    assert len(lines(tmp_path / "new.jsonl.rejected.jsonl")) == 8
