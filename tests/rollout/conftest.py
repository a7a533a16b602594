import pytest

from tests.executable import needs_chromium
from tests.records.builders import new_run
from tests.rollout.scripted import Script, ScriptedAgent, ScriptedPool
from tests.store.test_blocklist import clock  # noqa: F401  a fixture
from webgym_cli.agent.client.gate import PolicyGate
from webgym_cli.config.load import load
from webgym_cli.loop import rollouts
from webgym_cli.loop.context import StageContext
from webgym_cli.records.task import Split
from webgym_cli.rollout.engine import RolloutEngine
from webgym_cli.rollout.plan import plan_rollout, write_plan
from webgym_cli.rollout.runner import LocalRunner
from webgym_cli.store.buffer import scan
from webgym_cli.store.metrics import Blocklist
from webgym_cli.store.run import RunDir, create_or_open
from webgym_cli.util.files import write_lines


def task_fields(number):
    return {"instruction": f"Do {number}.", "start_url": f"https://site{number}.com/", "environment": "webarena"}


async def roll_stage(folder, policy, episodes, *overrides, files=("arithmetic",), split=Split.TRAIN):
    """Roll out as the command does; return the run, its settings, the summary and what is stored."""
    run, settings = RunDir(folder / "run"), load(files, list(overrides))
    create_or_open(run, settings)
    async with StageContext(run, settings, run.logs, lambda event: None) as context:
        summary = await rollouts.rollout(context, split, policy, episodes)
    return run, settings, summary, list(scan(run, split, 0))


class World:
    """A run with a task file of four tasks (t0, t1, ...) and, where no other pool is given, scripted episodes."""

    files = ("webarena",)

    def __init__(self, folder):
        self.run = new_run(folder / "run")
        self.file = folder / "tasks.jsonl"
        self.write_tasks({"id": f"t{number}", **task_fields(number)} for number in range(4))
        self.events = []
        self.pool, self.gate = ScriptedPool(Script()), PolicyGate()
        self.settings = self.load()

    def write_tasks(self, tasks):
        write_lines(self.file, tasks)

    def load(self, *overrides):
        self.settings = load(self.files, [f"tasks.train={self.file}", "rollout.concurrency=2", *overrides])
        return self.settings

    def plan(self, episodes=None, split=Split.TRAIN, iteration=0, policy=None):
        blocked = Blocklist(self.run, self.settings.rollout.blocklist_hours).sites()
        plan = plan_rollout(self.run, self.settings, split, iteration, episodes, policy, blocked)
        write_plan(self.run, plan)
        return plan

    async def roll(
        self, episodes=4, *, agent=None, pool=None, plan=None, sink=None, watch=None, judge=None, unjudged=(), **script
    ):
        self.pool = pool or ScriptedPool(Script(**script))
        plan = plan or self.plan(episodes)
        runner = LocalRunner(self.run, self.settings, agent or ScriptedAgent(), self.pool, self.gate)
        rollout = RolloutEngine(plan, self.run, self.settings, runner, sink or self.events.append, judge)
        return await rollout.execute(watch, unjudged)

    @property
    def stored(self):
        return list(scan(self.run, Split.TRAIN, 0))

    def of(self, task):
        """Return the stored attempts at a task."""
        return [trajectory for trajectory in self.stored if trajectory.task.id == task]

    @property
    def outcomes(self):
        """The failure and the reward of what is stored, without repeats."""
        return {(one.outcome.failure, one.outcome.reward) for one in self.stored}

    @property
    def failures(self):
        return [trajectory.outcome.failure for trajectory in self.stored]

    def events_named(self, name):
        return [event for event in self.events if event["event"] == name]


@pytest.fixture(scope="session")
def chromium() -> str:
    return needs_chromium()


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)
