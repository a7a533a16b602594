"""What `train`, `loop` and `curriculum` do on a node that does not lead."""

from __future__ import annotations

import os

import typer

from webgym_cli.cli.output import Output
from webgym_cli.config.model import Settings
from webgym_cli.store.run import RunDir


def join_as_worker(run: RunDir, settings: Settings, output: Output) -> bool:
    """Where `NODE_RANK` names another node than 0: take part in node 0's trainings until its command ends.

    Returns False where this node leads or is alone. Raises `typer.Exit` with node 0's exit code unless that is 0.
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
        # The same code on each node: a scheduler such as SLURM looks at all of them.
        raise typer.Exit(code)
    return True
