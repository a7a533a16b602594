"""The other nodes of a training as Ray actors: one per node, which joins node 0 like a manually started node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from webgym_cli.config.model import Settings
from webgym_cli.errors import JobError, UsageError, WebGymError
from webgym_cli.jobs.ray_cluster import NodeActor, NodeLostError, check_actor, open_cluster
from webgym_cli.jobs.workers import cancel_tasks, first_error
from webgym_cli.store.run import RunDir
from webgym_cli.train.nodes.coordinator import Coordinator, coordinate
from webgym_cli.train.nodes.topology import NodeTopology
from webgym_cli.train.nodes.worker import run_worker_node
from webgym_cli.train.training_plan import TrainPlan


class TrainingActor(NodeActor):
    """A node's part of the trainings. Its process, and the trainer with it, ends with node 0's training."""

    async def join(self, root: str, settings: Settings, topology: NodeTopology) -> None:
        """Take part until node 0 ends."""
        await run_worker_node(RunDir(Path(root)), settings, topology, lambda event: None)


@asynccontextmanager
async def place_nodes(
    plan: TrainPlan, place: NodeTopology, run: RunDir, settings: Settings, hint: str
) -> AsyncIterator[Coordinator]:
    """Have as many nodes as are wanted join this one, for the time of the block; one that fails ends it.

    Raises `UsageError`, `JobError` with the hint.
    """
    async with open_cluster(settings.rollout) as cluster:
        gpus = float(plan.training.world_size // place.count) if plan.device == "cuda" else 0.0
        offered = [node for node in cluster.nodes(0.0, gpus) if node.id != cluster.here_id]
        if len(offered) < place.count - 1:
            raise UsageError(
                f"train.nodes is {place.count}, but the Ray cluster has {len(offered)} nodes beside this one"
                + (f" with {gpus:g} GPUs" if gpus else ""),
                hint="ray status; start Ray on the missing nodes, or set train.nodes",
            )
        nodes = offered[: place.count - 1]
        # No CPUs: a node that rolls out offers none. The GPUs are reserved, so that Ray gives them to no one else.
        actors = [cluster.create_actor(TrainingActor, node, cpus=0.0, gpus=gpus) for node in nodes]
        joined: list[asyncio.Task[None]] = []

        async def join(rank: int) -> None:
            node, actor = nodes[rank - 1], actors[rank - 1]
            name = f"node {rank} ({node.name}, {node.address})"
            try:
                await check_actor(cluster, node, actor, run.root)
                await cluster.call(actor.join, str(run.root), settings, NodeTopology(place.count, rank))
            except NodeLostError as error:
                raise JobError(f"{name} left the training: its process has ended: {error}", hint=hint) from error
            except WebGymError as error:
                raise type(error)(f"{name}: {error}", hint=error.hint) from error

        try:
            async with asyncio.TaskGroup() as group:
                with coordinate(run, settings, replace(place, address=place.address or cluster.here)) as coordinator:
                    try:
                        joined += [group.create_task(join(rank)) for rank in range(1, place.count)]
                        yield coordinator
                    finally:
                        await cancel_tasks(*joined)
                        for actor in actors:
                            await cluster.kill(actor)
        except BaseExceptionGroup as errors:
            raise first_error(errors) from None
