"""The command that trains on one node: LLaMA-Factory's, or that of our own trainer (`train/rl/`)."""

from __future__ import annotations

from pathlib import Path

from webgym_cli.records.checkpoint import Algorithm

START = Path(__file__).resolve().parent / "rl" / "launch.py"
MODULE = "webgym_cli.train.rl.main"
TORCHRUN = ("-m", "torch.distributed.run")


def llamafactory(python: Path) -> Path:
    """Return the command beside the train role's interpreter."""
    return python.parent / "llamafactory-cli"


def trainer_command(
    python: Path, algorithm: Algorithm, launch_file: str, *, processes: int, nodes: int
) -> tuple[str, ...]:
    """Return what a node runs in the training's folder; `processes`: those on each node.

    With several nodes, or where LLaMA-Factory needs it, torchrun takes all else from variables (`Launch.rendezvous`).
    """
    if algorithm == "sft":
        return (str(llamafactory(python)), "train", launch_file)
    alone = ("--standalone", "--nproc_per_node", str(processes)) if nodes == 1 else ()
    several = (*TORCHRUN, *alone) if processes * nodes > 1 else ()
    return (str(python), *several, str(START), MODULE, launch_file)
