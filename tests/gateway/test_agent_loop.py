"""Loops of an agent's command, in turns and asynchronously: what they train on."""

import json
import sys
from pathlib import Path

import pytest

from tests.extending.dial_policy import serve_policy
from tests.loop.async_runs import AsyncRun, check_ledger, members

pytestmark = pytest.mark.browser

AGENT = Path(__file__).with_name("agent.py")
CHECK = """
from webgym_cli.scoring import check

@check("calls")
def calls(context):
    return float("tool_call" in (context.answer or ""))
"""


@pytest.fixture(scope="module")
def policy(tiny_model_dir):
    with serve_policy(tiny_model_dir) as url:
        yield url


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_loop_trains_on_the_episodes_of_an_agent_s_command(tmp_path, policy, tiny_model_dir, mode):
    run = AsyncRun(tmp_path / mode, policy, tiny_model_dir)
    (run.folder / "calls.py").write_text(CHECK)
    task = {"id": "shop-cheapest", "environment": "sites", "start_url": "http://shop.test/", "check": "calls"}
    (run.folder / "tasks.jsonl").write_text(json.dumps(task))
    settings = (
        "train.algorithm=copying_batch",
        f"loop.mode={mode}",
        'plugins=["copying_plugin.py", "calls.py"]',
        "tasks.train=tasks.jsonl",
        f"rollout.agent={sys.executable} {AGENT} answer 'Turn it to 1.'",
        "rollout.episodes=4",
        "loop.iterations=2",
    )
    code, _, error = run.finish(*settings)
    assert code == 0, error
    stored, batches = run.read_stored(), [members(batch) for batch in run.read_ledger().values()]
    assert {one["outcome"]["reward"] for one in stored} == {0.0, 1.0}
    assert {len(one["steps"]) for one in stored} == {2}
    assert sorted(map(len, batches)) == [4, 4]
    assert {name for batch in batches for name in batch} <= {one["id"] for one in stored}
    assert run.read_trained() == {number: set(batch) for number, batch in enumerate(batches)}
    if mode == "async":
        check_ledger(run, bound=1)
