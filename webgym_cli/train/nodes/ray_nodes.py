"""The other nodes of a training, placed by Ray: one actor a node, which joins node 0 as by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path

from webgym_cli.config.model import Settings
from webgym_cli.errors import JobError, UsageError, WebGymError
from webgym_cli.jobs.ray_cluster import ActorLostError, NodeActor, check_actor, open_cluster
from webgym_cli.jobs.workers import cancel_tasks
from webgym_cli.store.run import RunDir
from webgym_cli.train.nodes.coordinator import Coordinator
from webgym_cli.train.nodes.messages import POLL_SECONDS, CoordinatorAddress
from webgym_cli.train.nodes.topology import NodeTopology
from webgym_cli.train.nodes.worker import run_worker_node
from webgym_cli.train.training_plan import TrainPlan


class TrainingActor(NodeActor):
    """A node's part of the trainings. Its process, and the trainer with it, ends with node 0's training."""

    async def join(self, root: str, settings: Settings, topology: NodeTopology, address: CoordinatorAddress) -> None:
        """Take part until node 0 ends."""
        await run_worker_node(RunDir(Path(root)), settings, topology, lambda event: None, address)


@asynccontextmanager
async def place_nodes(plan: TrainPlan, run: RunDir, settings: Settings) -> AsyncIterator[Coordinator]:
    """Yield the coordinator to which as many nodes as are wanted have connected. Raises `UsageError`, `JobError`."""
    async with open_cluster(settings.rollout) as cluster:
        place = plan.place or NodeTopology(1, 0)
        topology = NodeTopology(place.count, 0, place.address or cluster.here, place.port, by_ray=True)
        gpus = float(plan.training.world_size // topology.count) if plan.device == "cuda" else 0.0
        offered = [node for node in cluster.nodes(0.0, gpus) if node.id != cluster.here_id]
        if len(offered) < topology.count - 1:
            raise UsageError(
                f"train.nodes is {topology.count}, but the Ray cluster has {len(offered)} nodes beside this one"
                + (f" with {gpus:g} GPUs" if gpus else ""),
                hint="ray status; start Ray on the missing nodes, or set train.nodes",
            )
        coordinator = Coordinator(topology, settings.train.node_timeout)
        nodes = offered[: topology.count - 1]
        # No CPUs: a node that rolls out offers none. The GPUs are reserved, so that Ray gives them to no one else.
        actors = [cluster.create_actor(TrainingActor, node, cpus=0.0, gpus=gpus) for node in nodes]
        joined: list[asyncio.Task[None]] = []
        try:
            pairs = [*zip(nodes, actors, strict=True)]
            await asyncio.gather(*(check_actor(cluster, *pair, run.root) for pair in pairs))
            for rank, (node, actor) in enumerate(pairs, 1):
                own = NodeTopology(topology.count, rank)
                call = cluster.call(actor.join, str(run.root), settings, own, coordinator.address)
                joined.append(asyncio.create_task(_name_errors(call, f"node {rank} ({node.name}, {node.address})")))
            while coordinator.missing():
                for task in joined:
                    if task.done():
                        await task
                await asyncio.sleep(POLL_SECONDS)
            yield coordinator
        finally:
            await asyncio.to_thread(coordinator.close, 0, "")
            await cancel_tasks(*joined)
            for actor in actors:
                await cluster.kill(actor)


async def _name_errors(call: Awaitable[None], name: str) -> None:
    """Await a node's part. Raises `WebGymError` with its name."""
    try:
        await call
    except ActorLostError as error:
        raise JobError(f"{name} has not joined the training: {error}", hint="ray status") from error
    except WebGymError as error:
        raise type(error)(f"{name}: {error}", hint=error.hint) from error
