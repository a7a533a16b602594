"""One node's part of a training over several nodes: its trainer process, started and observed on behalf of node 0."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from pydantic import Field

from webgym_cli.config.model import Settings
from webgym_cli.errors import UsageError
from webgym_cli.jobs.process import Job
from webgym_cli.jobs.ray_cluster import wait_for_file
from webgym_cli.records.base import Record
from webgym_cli.train.command import trainer_command
from webgym_cli.train.failure import is_peer_loss, trainer_error
from webgym_cli.train.process_env import child_environment
from webgym_cli.venvs.locate import role_python

# Deadline for a file to become visible: network file systems show new files late.
MARKER_SECONDS = 5.0


class NodeLaunch(Record):
    """A training, as the other nodes join it."""

    folder: str
    """Working folder of the training on node 0."""
    algorithm: str
    """Names the training backend."""
    launch_file: str
    """The configuration's name in `folder`."""
    env: dict[str, str]
    """The trainer's variables, without those that differ between nodes; no secret."""
    processes: int
    """Trainer processes on each node."""
    nodes: int
    address: str
    """Address of torchrun's rendezvous, on node 0."""
    port: int
    logs: str
    """The folder for the nodes' logs."""

    def rendezvous(self, rank: int) -> dict[str, str]:
        """Return the variables of torchrun's rendezvous for a node."""
        variables = {
            "NNODES": str(self.nodes),
            "NODE_RANK": str(rank),
            "MASTER_ADDR": self.address,
            "MASTER_PORT": str(self.port),
            "NPROC_PER_NODE": str(self.processes),
        }
        # torchrun itself reads those with PET_; LLaMA-Factory calls torchrun with the others.
        return variables | {f"PET_{name}": value for name, value in variables.items()}


class NodeStatus(Record):
    """State of a node's trainer."""

    code: int | None = None
    """Its exit status; None while it runs."""
    message: str = ""
    """Why it failed."""
    secondary: bool = False
    """Whether its error only reports that another node was lost."""
    files: dict[str, int] = Field(default_factory=dict)
    """Checkpoint files that node 0 must fetch, with their sizes in bytes; none where the run's folder is shared."""


class TrainerNode:
    """Keeps one trainer. Its methods are called by node 0, over a socket or as Ray actor calls, with JSON values."""

    def __init__(self, rank: int, settings: Settings, say: Callable[[str], None] = lambda message: None) -> None:
        self.rank = rank
        self._settings = settings
        self._say = say
        self._job: Job | None = None
        self._ended = False
        self.folder: Path | None = None
        """The training's folder on this node, where that differs from node 0's."""

    async def start(self, launch: str) -> None:
        """Start the trainer. Raises `UsageError` where the training's folder is not visible."""
        given = NodeLaunch.model_validate_json(launch)
        folder = self.folder or Path(given.folder)
        if not await wait_for_file(folder / given.launch_file, MARKER_SECONDS):
            raise UsageError(f"{folder} is not there: mount the run at the same path on every node")
        python = role_python(self._settings, "train")
        # Several nodes must not build one datasets cache in a shared folder at once.
        own = given.rendezvous(self.rank) | {"HF_DATASETS_CACHE": str(folder / f"datasets_cache.{self.rank}")}
        self._ended = False
        self._job = Job.spawn(
            trainer_command(python, given.algorithm, given.launch_file, processes=given.processes, nodes=given.nodes),
            env=child_environment(given.env | own, self._settings, python) | {"WANDB_DIR": self._logs(given)},
            log=Path(self._logs(given)) / f"train.node-{self.rank}.log",
            cwd=folder,
            grace=self._settings.train.stop_grace,
        )
        self._say(f"takes part in a training of {given.nodes} nodes; log: {self._job.log}")

    async def status(self) -> str:
        """Return the `NodeStatus` of the trainer."""
        if self._job is None or (code := self._job.poll()) is None:
            return NodeStatus(files=await asyncio.to_thread(self.list_files)).model_dump_json()
        message = str(trainer_error(code, self._job.log)) if code else ""
        if not self._ended:
            self._ended = True
            self._say(message or "its part of the training is done")
        secondary = bool(code) and is_peer_loss(code, self._job.log)
        files = await asyncio.to_thread(self.list_files)
        return NodeStatus(code=code, message=message, secondary=secondary, files=files).model_dump_json()

    async def stop(self) -> None:
        """End the trainer. Safe to repeat."""
        job, self._job = self._job, None
        if job is not None:
            await job.stop()

    def list_files(self) -> dict[str, int]:
        """Return the files that node 0 must fetch."""
        return {}

    def _logs(self, launch: NodeLaunch) -> str:
        return str(self.folder or launch.logs)
