"""A training on several nodes of a Ray cluster: torchrun on each of them, here in this process, elsewhere in an actor.

The nodes share the run's folder. The error of the node that failed first ends the trainers of all nodes.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webgym_cli.config.load import import_code
from webgym_cli.config.model import Settings
from webgym_cli.errors import PeerLostError, UsageError
from webgym_cli.jobs import ray_cluster
from webgym_cli.jobs.devices import VARIABLE
from webgym_cli.jobs.process import KILL_MARGIN, Job
from webgym_cli.jobs.ray_cluster import Node, NodeActor, RayCluster, check_actor, end_actor, name_errors, open_cluster
from webgym_cli.jobs.workers import gather_or_cancel
from webgym_cli.records.events import EventSink, make_event
from webgym_cli.store.run import RunDir
from webgym_cli.train.backend import TrainPlan
from webgym_cli.train.deepspeed_ops import remove_stale_locks
from webgym_cli.train.plan import child_environment
from webgym_cli.train.process_limits import STOP_GRACE, StallDetector
from webgym_cli.train.trainer_log import LOG, trainer_error, with_report_folders
from webgym_cli.util.optional import when
from webgym_cli.venvs.locate import role_python

# Seconds between two checks of a node's trainer.
POLL_SECONDS = 1.0
_LOST = "left the training"
# Runs this node's trainer to its end, with these variables. Raises `JobError`.
TrainHere = Callable[[dict[str, str]], Coroutine[Any, Any, None]]


class TrainingActor(NodeActor):
    """A node's trainer, which never outlives the actor's process."""

    _stall: StallDetector  # set by `start`

    def __init__(self) -> None:
        self._job: Job | None = None

    async def start(
        self, rank: int, plan: TrainPlan, settings: Settings, rendezvous: dict[str, str], logs: Path
    ) -> None:
        """Start the trainer. Idempotent, because `RayCluster.call` may repeat a call."""
        if self._job is not None:
            return
        import_code(settings)
        python = role_python(settings, "train")
        # Several nodes must not build one datasets cache in a shared folder at once.
        own = build_rendezvous(NODE_RANK=rank) | {"HF_DATASETS_CACHE": str(plan.folder / f"datasets_cache.{rank}")}
        # The GPUs that Ray has reserved here: `train.gpus` names those of the first node.
        launch = {name: value for name, value in plan.launch.env.items() if name != VARIABLE}
        env = child_environment(launch | rendezvous | own, settings, python)
        env = with_report_folders(env, logs, plan.data.name)
        remove_stale_locks(env)
        argv = (str(python), *plan.launch.argv[1:])  # the interpreter may be elsewhere on this node
        log = logs / f"train.node-{rank}.log"
        # While the first node's trainer prepares the data, this one has nothing to write.
        self._stall = StallDetector(plan.folder, log, settings.train.stall_minutes * 60, others=(logs / LOG,))
        self._job = Job.spawn(argv, env=env, log=log, cwd=plan.folder, grace=STOP_GRACE)

    async def poll(self) -> bool:
        """Return whether the trainer is done. Raises `JobError` if it failed, or hangs after the other nodes' ended."""
        if self._job is None:
            return False
        code = self._job.poll()
        if code is None and self._stall.is_due:
            self._stall.observe()
        if code:
            raise trainer_error(code, self._job.log)
        return code == 0

    async def close(self) -> None:
        """End the trainer."""
        if self._job is not None:
            await self._job.stop()


@dataclass(frozen=True, slots=True)
class _NodeTrainer:
    """The trainer of another node, as this node sees it."""

    cluster: RayCluster
    node: Node
    handle: Any
    rank: int
    hint: str

    @property
    def name(self) -> str:
        """The node in messages."""
        return f"node {self.rank} on {self.node.name}"

    async def check(self, root: Path) -> None:
        """Raise `UsageError` if the node can't work on the run."""
        with name_errors(self.name, self.hint, lost=_LOST):
            await check_actor(self.cluster, self.node, self.handle, root)

    async def run(self, *opening: object) -> None:
        """Run the trainer to its end. `opening`: plan, settings, rendezvous, log folder."""
        with name_errors(self.name, self.hint, lost=_LOST):
            await self.cluster.call(self.handle.start, self.rank, *opening, seconds=ray_cluster.START_SECONDS)
            while not await self.cluster.call(self.handle.poll, seconds=ray_cluster.SILENCE):  # noqa: ASYNC110 - a process
                await asyncio.sleep(POLL_SECONDS)


async def train_on_nodes(
    plan: TrainPlan, run: RunDir, settings: Settings, logs: Path, sink: EventSink, train_here: TrainHere
) -> None:
    """Run the trainers of all nodes to their ends, this one's alone where it has no others.

    Raises `WebGymError` with the name of the node that failed first or was lost; no trainer runs then.
    """
    place = plan.launch.placement
    if place.nodes == 1:
        await train_here({})
        return
    hint = f"webgym resume {run.root}: the training goes on from its last checkpoint"
    with open_cluster(settings.rollout) as cluster:
        gpus = when(place.device == "cuda", float(place.local))
        nodes = cluster.nodes(gpus=gpus, others=True)
        if len(nodes) < place.nodes - 1:
            suffix = when(gpus, f" with {gpus:g} GPUs")
            raise UsageError(
                f"train.nodes is {place.nodes}, but the Ray cluster has {len(nodes)} nodes beside this one{suffix}",
                hint="ray status; start Ray on the missing nodes, or set train.nodes",
            )
        # No CPUs: a node that rolls out offers none. The GPUs are reserved, so that Ray gives them to no one else.
        trainers = [
            _NodeTrainer(cluster, node, cluster.create_actor(TrainingActor, node, gpus=gpus), rank, hint)
            for rank, node in enumerate(nodes[: place.nodes - 1], 1)
        ]
        try:
            await gather_or_cancel(*(one.check(run.root) for one in trainers))
            sink(make_event("node", rank=0, message=f"trains with {', '.join(one.name for one in trainers)}"))
            with socket.create_server(("", 0)) as listener:
                port = listener.getsockname()[1]  # a new one each time: the last one may still be in TIME_WAIT
            shared = build_rendezvous(
                NNODES=place.nodes, MASTER_ADDR=cluster.here, MASTER_PORT=port, NPROC_PER_NODE=place.local
            )
            works = [one.run(plan, settings, shared, logs) for one in trainers]
            works.append(train_here(shared | build_rendezvous(NODE_RANK=0)))
            await gather_or_cancel(*map(_wait_for_cause, works))
        finally:
            grace = STOP_GRACE + 2 * KILL_MARGIN
            await asyncio.gather(*(end_actor(cluster, one.handle, grace) for one in trainers))


async def _wait_for_cause(work: Coroutine[Any, Any, None]) -> None:
    """Await a trainer. One that only reports a lost connection fails after the node that failed, if Ray misses it."""
    try:
        await work
    except PeerLostError:
        await asyncio.sleep(ray_cluster.SILENCE)
        raise


def build_rendezvous(**variables: object) -> dict[str, str]:
    """Return variables of torchrun's rendezvous, under the names that it reads."""
    return {f"PET_{name}": str(value) for name, value in variables.items()}
