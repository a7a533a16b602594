"""One loop with simulated waits and a simulated trainer; a job as JSON on stdin, what was measured on stdout.

Plans, engine, store, ledger, preparation and the order of the stages are the real ones. Pages and policy are waits that
are drawn for each step; the trainer is a process that sleeps and copies the model.
"""

from __future__ import annotations

import asyncio
import json
import random
import resource
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks.episodes import LENGTH, NETWORK, POLICY
from webgym_cli.agent.client.gate import PolicyGate
from webgym_cli.agent.client.policy import digest_tokens
from webgym_cli.agent.prompt import PolicyReply, Prompt, ServerCounters
from webgym_cli.agent.tokens.tokens import ModelTokens
from webgym_cli.config.load import load
from webgym_cli.environments.base import EnvironmentStep, RawObservation
from webgym_cli.environments.registry import ENVIRONMENTS, EnvironmentSpec
from webgym_cli.loop.context import StageContext
from webgym_cli.loop.loop import Loop
from webgym_cli.loop.loop_plan import plan_loop
from webgym_cli.loop.serving import Serving
from webgym_cli.records.action import Action
from webgym_cli.records.sampling import Sampling
from webgym_cli.records.task import Split, Task
from webgym_cli.records.trajectory import Generation, Score
from webgym_cli.rollout import runner
from webgym_cli.rollout.agents import ModelAgent
from webgym_cli.store.buffer import scan
from webgym_cli.store.metrics import read_batches
from webgym_cli.store.run import RunDir, create_or_open
from webgym_cli.testing.tiny_model_build import END
from webgym_cli.tools.toolbox import CallResult
from webgym_cli.train.registry import BACKENDS
from webgym_cli.train.script import script_backend

TRAINER = Path(__file__).with_name("async_trainer.py")
TOOL = {"type": "function", "function": {"name": "go", "description": "Goes on.", "parameters": {"type": "object"}}}
CALL = '<tool_call>\n{"name": "go", "arguments": {}}\n</tool_call>'
CHAINS = 4
"""Episodes of a group."""


class WaitingEnvironment:
    """An episode whose length and waits its seed decides; every second one succeeds."""

    tools = (TOOL,)

    async def reset(self, task: Task, seed: int) -> tuple[str, RawObservation]:
        """Draw the episode."""
        self._chance = random.Random(seed)
        self._left = max(1, round(LENGTH.draw(self._chance)))
        self._value = float(seed % 2)
        return task.instruction, self._show()

    def _show(self) -> RawObservation:
        return RawObservation(url="", title="", results=(CallResult("go", f"{self._left} left"),))

    def resolve_task(self, task: Task) -> Task:
        """Return the task as it is."""
        return task

    async def step(self, action: Action) -> EnvironmentStep:
        """Wait as a page would."""
        await asyncio.sleep(NETWORK.draw(self._chance) * JOB["factor"])
        self._left -= 1
        score = Score(source="environment", value=self._value)
        return EnvironmentStep(view=self._show(), done=not self._left, score=score)

    async def answer(self, text: str) -> Score:
        """Score an episode that ends itself; none does."""
        return Score(source="environment", value=0.0)

    async def out_of_steps(self) -> Score:
        """Score an episode that is too long."""
        return Score(source="environment", value=0.0)

    async def close(self) -> None:
        """Hold nothing."""


class WaitingPool:
    """Environments without browsers."""

    async def __aenter__(self) -> WaitingPool:
        """Start nothing."""
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop nothing."""

    def new(self) -> WaitingEnvironment:
        """Return an environment."""
        return WaitingEnvironment()


class WaitingPolicy:
    """Answers after a wait that the prompt's seed decides."""

    name = "waiting"

    def __init__(self) -> None:
        """Know the tokens as a server does."""
        self._tokens = ModelTokens(JOB["model"])
        self._answer = (*self._tokens.response_ids(CALL), self._tokens.tokenizer.token_to_id(END))

    async def reply(self, prompt: Prompt) -> PolicyReply:
        """Wait as for a server."""
        await asyncio.sleep(POLICY.draw(random.Random(prompt.seed)) * JOB["factor"])
        generation = Generation(
            prompt_token_digest=digest_tokens(self._tokens.prompt_ids(prompt.messages, [])),
            token_ids=self._answer,
            logprobs=(-1.0,) * len(self._answer),
            finish_reason="stop",
        )
        return PolicyReply(text=CALL, generation=generation)

    def sampling(self, *, greedy: bool) -> Sampling:
        """Return a plain distribution."""
        return Sampling(temperature=0.0 if greedy else 1.0, logprobs="processed")

    def servers(self) -> ServerCounters:
        """Return nothing: there is no server."""
        return {}


def list_tasks(argument: str) -> list[Task]:
    """Return so many tasks."""
    return [Task(id=f"t{number}", environment="waiting", instruction="Go on.") for number in range(int(argument))]


@asynccontextmanager
async def open_waiting_agent(*given: Any) -> AsyncIterator[ModelAgent]:
    """Stand in for `open_agent`."""
    gate = next((value for value in given if isinstance(value, PolicyGate)), None)
    yield ModelAgent(WaitingPolicy(), gate)


def measure(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Run the loop and return its makespan and what it did not use."""
    settings = load(
        overrides=[
            "tasks.train=waiting:64",
            f"policy_config.base_model={job['model']}",
            "rollout.policy=http://127.0.0.1:9/v1",
            f"rollout.episodes={job['batch']}",
            f"rollout.concurrency={job['slots']}",
            f"rollout.completion_threshold={job['threshold']}",
            "rollout.completion_grace=0",
            "agent.max_turns=60",
            "train.algorithm=waiting",
            f"train.extra={json.dumps({'seconds': job['training'] * job['factor']})}",
            "train.check_disk_space=false",
            "train.check_template=false",
            f"agent.num_chains={CHAINS}",
            "policy_config.top_k=-1",
            "policy_config.top_p=1",
            "rl.data.filter_groups.enable=false",
            "algorithm_config.bf16=false",
            f"loop.iterations={job['updates']}",
            "loop.eval_every=0",
            f"loop.mode={job['mode']}",
            f"loop.max_staleness={job['bound']}",
            f"loop.stale={job['stale']}",
            f"seed={job['seed']}",
            "log_config.tracking=disabled",
        ]
    )
    run = RunDir(folder / "run")
    create_or_open(run, settings)
    began = time.monotonic()
    asyncio.run(_loop(run, settings))
    makespan = time.monotonic() - began
    stored = [
        trajectory for number in run.list_iterations(Split.TRAIN) for trajectory in scan(run, Split.TRAIN, number)
    ]
    batches = read_batches(run).values()
    used = {name for batch in batches for group in (*batch.groups, *batch.dropped) for name in group.trajectories}
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {
        "makespan": makespan,
        "cpu": sum(one.ru_utime + one.ru_stime for one in usage),
        "trained": sum(batch.episodes for batch in batches),
        "unused": len({trajectory.id for trajectory in stored} - used),
        "max_staleness": max(age for batch in batches for age in batch.staleness or {0: 0}),
        "trainer_idle": 1 - job["training"] * job["factor"] * job["updates"] / makespan,
        "slots_idle": 1 - sum(trajectory.seconds for trajectory in stored) / (job["slots"] * makespan),
    }


async def _loop(run: RunDir, settings: Any) -> None:
    async with StageContext(run, settings, run.logs, lambda event: None) as context:
        await Loop(plan_loop(run, settings), context).execute()


def main() -> None:
    """Measure the job of stdin."""
    import tempfile

    spec = EnvironmentSpec(
        name="waiting",
        list_tasks=list_tasks,
        make_pool=lambda settings: WaitingPool(),
        max_steps=lambda settings, task, split: settings.agent.max_turns,
    )
    ENVIRONMENTS.register("waiting", spec)
    BACKENDS.register("waiting", script_backend(TRAINER, data="batch"))
    runner.open_agent = open_waiting_agent
    if JOB["sliced"]:
        Serving.yields_gpus = property(lambda serving: True)  # type: ignore[assignment, method-assign]
    with tempfile.TemporaryDirectory(prefix="webgym-async-") as folder:
        print(json.dumps(measure(JOB, Path(folder))))


JOB: dict[str, Any] = {}

if __name__ == "__main__":
    JOB.update(json.load(sys.stdin))
    main()
