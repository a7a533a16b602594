"""What node 0 and the other nodes of a training tell each other: lines of JSON over one connection a node."""

from __future__ import annotations

from pathlib import Path

from webgym_cli.records.base import Record
from webgym_cli.store.run import RunDir

# Seconds between two statuses of a node.
POLL_SECONDS = 0.2
# Bytes of the longest message.
LINE_LIMIT = 2**24


class CoordinatorAddress(Record):
    """Where node 0 listens."""

    address: str
    port: int
    token: str
    """Who can read the run's folder may join; who only reaches the port may not."""
    host: str
    """Node 0's host name."""


class NodeHello(Record):
    """The first message of a node."""

    token: str
    rank: int
    nodes: int
    """How many nodes there are, as it was told."""
    host: str
    pid: int


class NodeLaunch(Record):
    """A training, as the other nodes join it."""

    folder: str
    """Working folder of the training."""
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

    busy: bool = False
    """Whether a trainer is there, or is being started or stopped."""
    done: bool = False
    """Whether it has ended well."""
    error: str = ""
    """Class of the error with which it ended."""
    message: str = ""
    hint: str = ""
    secondary: bool = False
    """Whether its error only reports that another node was lost."""


class Order(Record):
    """Node 0's answer to each message: what the node is to do now."""

    launch: NodeLaunch | None = None
    """The training to take part in."""
    end: tuple[int, str] | None = None
    """Exit code of node 0's command, which has ended, and why it failed."""
    error: str = ""
    """Class of the error with which the node is refused."""
    message: str = ""


def coordinator_file(run: RunDir) -> Path:
    """Return the file that holds node 0's address; it is removed when node 0's command ends."""
    return run.nodes / "coordinator.json"
