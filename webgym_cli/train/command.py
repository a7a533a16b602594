"""The commands that train on one node."""

from __future__ import annotations

from pathlib import Path

from webgym_cli.train.registry import find_backend


def trainer_command(python: Path, algorithm: str, launch_file: str, *, processes: int, nodes: int) -> tuple[str, ...]:
    """Return what a node runs in the training's folder; `processes`: those on each node."""
    return find_backend(algorithm).command(python, launch_file, processes=processes, nodes=nodes)
