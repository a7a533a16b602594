"""Worker role of `train`, `loop` and `curriculum` on nodes other than node 0."""

from __future__ import annotations

import os

import typer

from webgym_cli.cli.output import Output
from webgym_cli.config.model import Settings
from webgym_cli.store.run import RunDir


def join_as_worker(run: RunDir, settings: Settings, output: Output) -> bool:
    """Take part in node 0's trainings until its command ends, if `NODE_RANK` is not 0.

    Returns False on node 0 or a single node. Raises `typer.Exit` with node 0's exit code unless that is 0.
    """
    from webgym_cli.jobs.signals import run_async
    from webgym_cli.train.nodes.topology import from_env
    from webgym_cli.train.nodes.worker import run_worker_node

    topology = from_env(os.environ)
    if topology is None or topology.rank == 0:
        return False
    with output.progress() as board:
        code, message = run_async(run_worker_node(run, settings, topology, board))
    output.note(f"node 0 has ended: {message or 'done'}")
    if code:
        # The same exit code on each node, because schedulers such as SLURM check all of them.
        raise typer.Exit(code)
    return True
