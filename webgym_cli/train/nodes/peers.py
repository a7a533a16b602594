"""A training on this node and others: all trainers run at once, and the error of the node that failed first ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Any

from webgym_cli.config.model import Settings
from webgym_cli.errors import PeerLostError
from webgym_cli.jobs.workers import cancel_tasks
from webgym_cli.records.events import EventSink, make_event
from webgym_cli.store.run import RunDir
from webgym_cli.train.nodes.coordinator import COORDINATOR, Coordinator
from webgym_cli.train.nodes.messages import NodeLaunch
from webgym_cli.train.nodes.ray_nodes import place_nodes
from webgym_cli.train.nodes.topology import build_rendezvous, free_port
from webgym_cli.train.training_plan import TrainPlan

# Runs this node's trainer to its end, with these variables. Raises `JobError`.
TrainHere = Callable[[dict[str, str]], Coroutine[Any, Any, None]]


async def train_on_nodes(
    plan: TrainPlan, run: RunDir, settings: Settings, logs: Path, sink: EventSink, train_here: TrainHere
) -> None:
    """Run the trainers of all nodes to their ends, this one's alone where it has no others.

    Raises `WebGymError` with the name of the node that failed first or was lost; no trainer runs then.
    """
    place = plan.place
    if place is None:
        await train_here({})
        return
    where = "" if place.by_ray else ", on every node"
    hint = f"webgym resume {run.root}{where}: the training goes on from its last checkpoint"
    opened: AbstractAsyncContextManager[Coordinator] = (
        place_nodes(plan, place, run, settings, hint) if place.by_ray else nullcontext(COORDINATOR.get())
    )
    async with opened as coordinator:
        nodes = await coordinator.wait_for_nodes(hint)
        processes = plan.training.world_size // place.count
        # A new port for each training: the last one may still be in TIME_WAIT.
        address, port = coordinator.address.address, place.port or free_port()
        shared = build_rendezvous(NNODES=place.count, MASTER_ADDR=address, MASTER_PORT=port, NPROC_PER_NODE=processes)
        launch = NodeLaunch(
            folder=str(plan.folder),
            algorithm=plan.algorithm,
            launch_file=plan.launch_file,
            env=plan.env | shared,
            processes=processes,
            logs=str(logs),
        )
        names = ", ".join(node.name for node in nodes)
        sink(make_event("node", rank=0, message=f"node 0 trains with {names}"))
        trainings = [node.train(launch, hint) for node in nodes]
        await _end_together(
            (*trainings, train_here(shared | build_rendezvous(NODE_RANK=0))), silence=settings.train.node_timeout
        )


async def _end_together(works: Sequence[Coroutine[Any, Any, None]], *, silence: float) -> None:
    """Run everything to its end. Raises the first error, and ends the others before.

    Trainers that only report a lost connection wait for the node that failed, as long as it may be silent.
    """
    tasks = [asyncio.ensure_future(work) for work in works]
    running, errors = set(tasks), list[BaseException]()
    try:
        while running and all(isinstance(error, PeerLostError) for error in errors):
            ended, running = await asyncio.wait(
                running, timeout=silence if errors else None, return_when=asyncio.FIRST_EXCEPTION
            )
            if not ended:
                break
            errors += [error for task in tasks if task in ended and (error := task.exception())]
    finally:
        await cancel_tasks(*tasks)
    if errors:
        raise min(errors, key=lambda error: isinstance(error, PeerLostError))
