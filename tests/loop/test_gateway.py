"""The gateway of a run, when its last policy server is lost."""

from types import SimpleNamespace

import pytest

from webgym_cli.config.load import load
from webgym_cli.errors import JobError
from webgym_cli.loop import rollouts
from webgym_cli.loop.context import StageContext
from webgym_cli.records.series import VLLM
from webgym_cli.records.task import Split
from webgym_cli.rollout.resources import PolicyEndpoint
from webgym_cli.store.run import RunDir


async def test_the_end_of_the_last_policy_server_is_one_error(tmp_path, monkeypatch):
    async def start(context, policy):
        return PolicyEndpoint(base_urls=("http://127.0.0.1:9/v1",))

    async def die():
        raise JobError("vLLM ended while it was serving")

    async def stop():
        """Nothing runs."""

    monkeypatch.setattr(rollouts, "start_policy", start)
    run = RunDir(tmp_path / "run")
    async with StageContext(run, load(), run.logs, lambda event: None) as context:
        context.running = SimpleNamespace(watch=die, stop=stop)
        with pytest.raises(JobError, match="vLLM ended"):
            await rollouts.serve_gateway(context, Split.TRAIN, VLLM, "127.0.0.1", 0)
