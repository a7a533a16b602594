"""Demonstrations by people: a task is done on a live page, then replayed, and kept if the replay is a success."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from webgym_cli.config.model import Settings
from webgym_cli.environments.base import EnvironmentPool
from webgym_cli.environments.registry import check_tasks, count_unscored, log_in_to_sites
from webgym_cli.errors import UsageError
from webgym_cli.jobs.budget import Work
from webgym_cli.loop.context import StageContext
from webgym_cli.loop.rollout_setup import open_judge
from webgym_cli.record.live import LiveTask
from webgym_cli.record.replay import ActionWriter, Replay, require_web
from webgym_cli.record.server import RecordServer
from webgym_cli.records.action import Action, ActionName
from webgym_cli.records.events import make_event
from webgym_cli.records.judgement import Judgement, with_verdict
from webgym_cli.records.recording import RecordedAction
from webgym_cli.records.task import Episode, Split, Task
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.rollout.judging import TrajectoryJudge
from webgym_cli.rollout.plan import PendingEpisode
from webgym_cli.rollout.resources import PolicyEndpoint
from webgym_cli.rollout.runner import LocalRunner, open_runner
from webgym_cli.store.buffer import append, append_judgement, read_plan
from webgym_cli.store.checkpoints import version
from webgym_cli.store.index.query import refresh_index
from webgym_cli.store.run import RunDir, append_to_run
from webgym_cli.tasks.source import open_tasks
from webgym_cli.util.files import write_lines

# Steps of a replay beyond its actions, which look for their targets.
_MORE_STEPS = 30


@dataclass(slots=True)
class DemonstrationRecorder:
    """Records and replays demonstrations of the current iteration."""

    context: StageContext
    pool: EnvironmentPool
    runner: LocalRunner
    judge: TrajectoryJudge | None
    kept: int = 0

    async def record(self, task: Task, server: RecordServer) -> None:
        """Let a person do a task until its replay succeeds, or the person skips it."""
        server.message = ""
        while True:
            episode, environment = self._plan(task), require_web(self.pool.new())
            environment.episode = f"{episode.id}.live"
            live = LiveTask(environment, task, episode.seed, self.context.settings)
            try:
                await live.open()
                answer = await server.record(live)
            finally:
                await environment.close()
            if answer is None:
                return
            ending = RecordedAction(action=Action(name=ActionName.ANSWER, text=answer or "Done."))
            server.message = await self.replay(task, [*live.actions, ending])
            if not server.message:
                return

    async def replay(self, task: Task, actions: Sequence[RecordedAction]) -> str:
        """Replay actions and store the episode if it is a success. Returns why it is not kept; empty if it is."""
        run, episode = self.context.run, self._plan(task, len(actions))
        path = run.recordings / f"{episode.id}.jsonl"
        write_lines(path, (recorded.model_dump(mode="json", exclude_none=True) for recorded in actions))
        self.runner.agent = Replay(actions, self.context.settings)
        trajectory = await self.runner.run(PendingEpisode(episode, 0))
        if trajectory is None:
            raise RuntimeError("a replay was stopped before its start")
        judgement = await self._judge(trajectory)
        outcome = with_verdict(trajectory, judgement).outcome
        problem = ""
        if outcome.success:
            append_to_run(run, run.plan(Split.TRAIN, episode.iteration, of_sessions=True), episode.model_dump_json())
            append(run, trajectory)
            if judgement is not None:
                append_judgement(run, Split.TRAIN, episode.iteration, judgement)
            refresh_index(run, self.context.sink)
            self.kept += 1
        else:
            reason = f"{outcome.failure}: {outcome.failure_detail}" if outcome.failure else f"reward {outcome.reward}"
            errors = "".join(f" ({step.action_error})" for step in trajectory.steps if step.action_error)
            problem = f"not kept: the replay ended with {reason}{errors}; its actions: {path}"
        message = problem or f"{episode.id}: a demonstration of {task.id} in {len(trajectory.steps)} steps"
        facts = {"reward": outcome.reward, "steps": len(trajectory.steps), "kept": not problem, "message": message}
        self.context.sink(make_event("recorded", id=episode.id, task=task.id, **facts))
        return problem

    async def _judge(self, trajectory: Trajectory) -> Judgement | None:
        if self.judge is None or not trajectory.awaits_judgement:
            return None
        budget = self.context.budget
        async with budget.admit(Work.JUDGEMENT):
            budget.require()
            judgement = await self.judge(trajectory)
            budget.charge(Work.JUDGEMENT, judgement.requests, judgement.calls)
        return judgement

    def _plan(self, task: Task, actions: int = 0) -> Episode:
        """Return an episode of a task; each demonstration of it has another seed."""
        run, iteration = self.context.run, version(self.context.run)
        before = read_plan(run, Split.TRAIN, iteration, of_sessions=True)
        position = sum(episode.task.key == task.key for episode in before)
        return Episode(
            id=f"{Split.TRAIN}-{iteration:04d}-r{secrets.token_hex(8)}",
            split=Split.TRAIN,
            iteration=iteration,
            task=task,
            seed=self.context.settings.seed + position,
            max_steps=actions + _MORE_STEPS,
            position=position,
        )


async def record_demonstrations(
    context: StageContext,
    tasks: Sequence[Task],
    actions: Sequence[RecordedAction],
    port: int,
    opened: Callable[[str], None],
) -> int:
    """Record a demonstration of each task, or replay `actions` on them; return the number of those kept.

    `opened` is called with the address of the page on which a person acts.
    """
    run, settings = context.run, context.settings
    await log_in_to_sites(settings, tasks)
    async with (
        open_runner(run, settings, PolicyEndpoint(), tasks[0].environment) as runner,
        open_judge(run, settings) as judge,
    ):
        if runner.pool is None:
            raise RuntimeError("a recording without environments")
        recorder = DemonstrationRecorder(context, runner.pool, runner, judge)
        if actions:
            for task in tasks:
                await recorder.replay(task, actions)
            return recorder.kept
        async with RecordServer(port) as server:
            opened(server.url)
            for task in tasks:
                await recorder.record(task, server)
    return recorder.kept


def select_tasks(run: RunDir, settings: Settings, wanted: str) -> list[Task]:
    """Return the task of `tasks.train` with an id, or the tasks of a file or set without a demonstration.

    Raises `WebGymError` for tasks that a person can't do.
    """
    ActionWriter(settings)
    if ":" in wanted or Path(wanted).is_file():
        source, problem = open_tasks(wanted), "each of its tasks has a demonstration"
        done = {one.task.key for one in read_plan(run, Split.TRAIN, version(run), of_sessions=True)}
        tasks = [task for task in source.read(range(len(source))) if task.key not in done]
        settings = settings.with_changes(tasks={"train": wanted})  # their files may be beside it
    else:
        source, problem = open_tasks(settings.tasks.train), f"there is no task {wanted}"
        tasks = [task for task in source.read(range(len(source))) if task.id == wanted]
    if not tasks:
        raise UsageError(f"{source.source}: {problem}", hint=f"webgym tasks sample {source.source}")
    if len(names := sorted({task.environment for task in tasks})) > 1:
        raise UsageError(f"the tasks need one environment, found: {', '.join(names)}", hint="--task FILE, with one")
    check_tasks(settings, tasks)
    if count_unscored(settings, tasks):
        raise UsageError("nothing scores the tasks: no demonstration could be kept", hint="a check, or judge.base_url")
    return tasks
