"""The order of the stages: the only file that knows it.

An iteration k is: evaluate policy version k, collect its training episodes, prepare a dataset, train version k+1, give
it to the server. Each stage does only what is owed, so running the loop again takes it up where it stopped.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from webgym_cli.config.model import Settings
from webgym_cli.environments.registry import require_experts
from webgym_cli.errors import BelowThresholdError, WebGymError
from webgym_cli.prepare import execute as prepare_stage
from webgym_cli.prepare.plan import plan_dataset, refuse_empty
from webgym_cli.records.dataset import Prepared
from webgym_cli.records.events import Event, EventSink
from webgym_cli.records.task import Split
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.rewards.execute import Judging, judge_in_words
from webgym_cli.rewards.judge import Judge
from webgym_cli.rewards.plan import JudgeQuery, plan_judging
from webgym_cli.roles.locate import resolve_device, role_python
from webgym_cli.rollout.execute import Rollout
from webgym_cli.rollout.judging import TrajectoryJudge
from webgym_cli.rollout.parts import ORACLE, VLLM, Acting, Parts, open_actor, open_pool, policy_urls
from webgym_cli.rollout.plan import RolloutPlan, plan_rollout, write_plan
from webgym_cli.serve.execute import PolicyServer
from webgym_cli.serve.plan import plan_server
from webgym_cli.store.blocklist import Blocklist
from webgym_cli.store.buffer import stored
from webgym_cli.store.checkpoints import checkpoints, current, policy_path, repair_link, version
from webgym_cli.store.index.query import open_index, refresh_index
from webgym_cli.store.metrics import events, record
from webgym_cli.store.run import RunDir
from webgym_cli.store.screenshots import ScreenshotStore
from webgym_cli.testing.scripted_judge import judge_settings
from webgym_cli.train.execute import execute as execute_training
from webgym_cli.train.plan import plan_training

_COUNTS = {
    "unjudged": "wait for a judge (webgym judge)",
    "skipped": "skipped on blocked sites",
    "cut": "cut",
    "owed": "still owed",
}
"""What a summary counts beside the successes, in words."""


@dataclass(slots=True)
class Pipeline:
    """The stages of one run, in one process. An async context manager: leaving it stops the server."""

    run: RunDir
    settings: Settings
    logs: Path
    """The log folder of this attempt."""
    sink: EventSink
    _server: PolicyServer | None = field(default=None)

    async def __aenter__(self) -> Pipeline:
        """Mend what a crash left: between two renames, or between a training and the note of it."""
        repair_link(self.run, self.settings)
        self._note_trainings()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop the server."""
        await self._stop_serving()

    async def loop(self, iterations: int) -> list[Event]:
        """Bring the run to so many trainings, evaluate the last policy, and return all evaluations."""
        while (iteration := version(self.run)) < iterations:
            if self.settings.loop.evaluate:
                await self.evaluate()
            if iteration < self.settings.loop.demonstration_iterations:
                await self.collect(Split.TRAIN, ORACLE, self.settings.loop.demonstration_episodes)
            else:
                await self.collect(Split.TRAIN, self.settings.rollout.policy)
            self.prepare()
            await self.train()
        if self.settings.loop.evaluate:
            await self.evaluate()
        return list(events(self.run, "evaluation"))

    async def evaluate(self) -> None:
        """Run the held-out episodes with the current policy, once a policy version."""
        iteration = version(self.run)
        if any(event["iteration"] == iteration for event in events(self.run, "evaluation")):
            return
        summary = await self.collect(Split.TEST, self.settings.rollout.policy)
        self._record({**summary, "event": "evaluation"})

    async def collect(self, split: Split, policy: str, episodes: int | None = None) -> Event:
        """Collect what the current iteration owes and return the summary."""
        require_policy(policy)
        plan = plan_collection(self.run, self.settings, split, policy, episodes)
        if policy == ORACLE:
            require_experts(owed.episode.task for owed in plan.owed)
        write_plan(self.run, plan)
        self._announce(plan)
        # Nothing will act: neither server nor browser is needed to judge what waits, and to sum up.
        acting = policy if plan.owed else ORACLE
        scale_out = plan.owed and self.settings.rollout.executor == "ray"
        summary = await (self._roll_out_on_ray(plan, acting) if scale_out else self._roll_out(plan, acting))
        if split is Split.TRAIN:
            record(self.run, summary)
        self.sink({**summary, "message": _in_words(summary)})
        refresh_index(self.run, self.sink)
        return summary

    async def judge(self, query: JudgeQuery) -> Event:
        """Judge the stored trajectories that are asked for and return the summary."""
        async with judge_settings(self.settings.judge) as settings:
            plan = plan_judging(self.run, settings, query)
            self.sink({**plan.to_json(), "message": f"{len(plan.owed)} trajectories to judge, {plan.to_skip} skipped"})
            for line in plan.damaged:
                self.sink({"event": "damaged", "line": line, "message": f"skipped a damaged line: {line}"})
            summary = await Judging(plan, self.run, settings, self.sink).execute()
        record(self.run, summary)
        self.sink({**summary, "message": judge_in_words(summary)})
        refresh_index(self.run, self.sink)
        return summary

    def prepare(self) -> Prepared:
        """Write the dataset of the current iteration, unless just that one is there."""
        with open_index(self.run, progress=self.sink) as index:
            plan = plan_dataset(self.run, self.settings, index)
            ready = prepare_stage.read_prepared(self.run)
            if ready is not None and ready.plan_digest == plan.digest(self.settings):
                return ready
            refuse_empty(plan, self.run)
            prepared = prepare_stage.execute(plan, self.run, self.settings, self.sink)
        record(self.run, {"event": "prepare", **prepared.model_dump(mode="json")})
        return prepared

    async def train(self) -> None:
        """Train on the dataset; the new policy is served from the next rollout on."""
        prepare_stage.renew_training(self.run, self.settings, self.sink)
        plan = plan_training(self.run, self.settings)
        if resolve_device(self.settings.roles.device) == "cuda":
            await self._stop_serving()  # trainer and server don't fit into the same GPU memory
        await execute_training(plan, self.run, self.settings, self.logs, self.sink)
        self._note_trainings()

    async def _roll_out(self, plan: RolloutPlan, policy: str) -> Event:
        """Run what is owed in this process."""
        acting = await self._acting(policy)
        async with open_parts(self.run, self.settings, acting, _environment(plan) if plan.owed else "") as parts:
            rollout = Rollout(plan, self.run, self.settings, parts.actor, parts.pool, self.sink, parts.judge)
            return await rollout.execute(self._watch(policy), self._unjudged(plan) if parts.judge else ())

    async def _roll_out_on_ray(self, plan: RolloutPlan, policy: str) -> Event:
        """Run what is owed on the nodes of a Ray cluster."""
        from webgym_cli.rollout.ray_cluster import open_cluster, require_reachable, seen_from_afar
        from webgym_cli.rollout.scale_out import ScaleOut

        async with open_cluster(self.settings.rollout) as cluster:
            require_reachable(cluster, self.settings, policy)
            acting = await self._acting(policy)
            if policy == VLLM:
                url = seen_from_afar(acting.base_urls[0], self.settings.serve.host, cluster.here)
                acting = acting.model_copy(update={"base_urls": (url,)})
            environment = _environment(plan)
            rollout = ScaleOut(plan, self.run, self.settings, cluster, open_parts, acting, environment, self.sink)
            return await rollout.execute(self._watch(policy), self._unjudged(plan))

    async def _acting(self, policy: str) -> Acting:
        """Return who acts, and where; our own server is started, or given the new weights, if it is to serve."""
        if policy == ORACLE:
            return Acting()
        base_urls = (await self._serve_current(),) if policy == VLLM else policy_urls(policy)
        newest = current(self.run)
        return Acting(base_urls=base_urls, name=newest.name if newest else self.settings.policy_config.base_model)

    def _watch(self, policy: str) -> Awaitable[None] | None:
        return self._server.watch() if self._server and policy == VLLM else None

    def _unjudged(self, plan: RolloutPlan) -> Iterator[Trajectory]:
        """Yield the stored trajectories that wait for a judge."""
        waiting = frozenset(plan.unjudged)
        if waiting:
            yield from (found for found in stored(self.run, plan.split, plan.iteration) if found.id in waiting)

    async def _serve_current(self) -> str:
        """Serve the current policy: start the server, or give a running one the new weights. Return its base URL."""
        model = policy_path(self.run, self.settings)
        weights = str(model.resolve() if model.is_dir() else model)
        if self._server is None:
            python, device = role_python(self.settings, "serve"), resolve_device(self.settings.roles.device)
            self._server = PolicyServer(plan_server(self.settings, weights, python, device), self.logs, self.sink)
            await self._server.start()
        elif weights != self._server.model:
            await self._server.swap(weights)
        return self._server.base_url

    async def _stop_serving(self) -> None:
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop()

    def _announce(self, plan: RolloutPlan) -> None:
        facts = f"{plan.split} episodes of iteration {plan.iteration}"
        known = f", {plan.done} stored" if plan.done else ""
        lost = f", {plan.given_up} given up" if plan.given_up else ""
        shut = f", {plan.blocked} on blocked sites" if plan.blocked else ""
        self.sink({**plan.to_json(), "message": f"{facts}: {len(plan.owed)} to run{known}{lost}{shut}"})
        for note in plan.notes:
            self.sink({"event": "note", "message": note})
        for line in plan.damaged:
            self.sink({"event": "damaged", "line": line, "message": f"skipped a damaged line: {line}"})

    def _note_trainings(self) -> None:
        """Record each checkpoint whose training is not in the metrics yet."""
        noted = {event["name"] for event in events(self.run, "train")}
        for checkpoint in checkpoints(self.run):
            if checkpoint.name not in noted:
                self._record({**checkpoint.model_dump(mode="json"), "event": "train"})

    def _record(self, event: Event) -> None:
        record(self.run, event)
        self.sink(event)


@asynccontextmanager
async def open_parts(run: RunDir, settings: Settings, acting: Acting, environment: str) -> AsyncIterator[Parts]:
    """Open what one engine works with; in this process, or in a rank's on another node."""
    async with (
        open_actor(run, settings, acting) as actor,
        open_pool(settings, environment) as pool,
        _open_judge(run, settings) as judge,
    ):
        yield Parts(actor, pool, judge)


@asynccontextmanager
async def _open_judge(run: RunDir, settings: Settings) -> AsyncIterator[TrajectoryJudge | None]:
    if not settings.judge.base_url:
        yield None
        return
    async with judge_settings(settings.judge) as found:
        judge = Judge(found, ScreenshotStore(run.screenshots).get)
        try:
            yield judge.judge
        finally:
            await judge.close()


def plan_collection(
    run: RunDir, settings: Settings, split: Split, policy: str, episodes: int | None = None
) -> RolloutPlan:
    """Return the plan of the current iteration, the sites on the run's blocklist left out."""
    blocked = Blocklist(run, settings.rollout.blocklist_hours).sites()
    return plan_rollout(run, settings, split, version(run), episodes, policy, blocked)


def require_policy(policy: str) -> None:
    """Raise `UsageError` unless this can act: `vllm`, `oracle` or base URLs."""
    if policy not in (ORACLE, VLLM):
        policy_urls(policy)


def require_success(summary: dict[str, Any], wanted: float | None) -> None:
    """Raise `BelowThresholdError` when a summary's success rate is below the wanted one."""
    rate = summary["success_rate"]
    if wanted is not None and (rate is None or rate < wanted):
        raise BelowThresholdError(f"success rate {rate} is below --min-success {wanted}")


def _environment(plan: RolloutPlan) -> str:
    names = {episode.task.environment for episode in plan.episodes}
    if len(names) != 1:
        raise WebGymError(f"the tasks of one rollout need one environment, found: {', '.join(sorted(names))}")
    return names.pop()


def _in_words(summary: Event) -> str:
    rate = summary["success_rate"]
    low, high = summary["interval"]
    success = "no reward known" if rate is None else f"success {rate:.3f} ({low:.3f}-{high:.3f})"
    failed = ", ".join(f"{count} x {kind}" for kind, count in summary["failures"].items())
    facts = [f"{summary['episodes']} episodes", success, f"{summary['steps_per_second']} steps/s"]
    facts += [f"{summary[name]} {words}" for name, words in _COUNTS.items() if summary.get(name)]
    facts += [f"failures: {failed}"] if failed else []
    for url, found in summary.get("servers", {}).items():
        facts += [f"{url} failed {found['failures']} of {found['requests']} requests"] if found["opened"] else []
    bias = summary.get("cut_bias", {}).get("words")
    return f"{summary['split']} {summary['iteration']}: {', '.join(facts)}{f'. {bias}' if bias else ''}"
