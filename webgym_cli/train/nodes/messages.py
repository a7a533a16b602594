"""Messages between node 0 and the other nodes of a training: JSON Lines over one connection per node."""

from __future__ import annotations

from typing import Literal, cast

from webgym_cli import errors
from webgym_cli.errors import WebGymError
from webgym_cli.records.base import Record

# Seconds between two status messages of a node.
POLL_SECONDS = 0.2
# Maximum message size in bytes.
LINE_LIMIT = 2**24


class CoordinatorAddress(Record):
    """Where node 0 listens."""

    address: str
    port: int
    token: str
    """Processes that can read the run's folder may join; those that can only reach the port may not."""
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
    logs: str
    """The folder for the nodes' logs."""


class NodeError(Record):
    """An error on its way to another node."""

    kind: str
    message: str
    hint: str

    @classmethod
    def of(cls, error: WebGymError) -> NodeError:
        """Return the message for an error."""
        return cls(kind=type(error).__name__, message=str(error), hint=error.hint)

    def to_error(self, where: str, hint: str = "") -> WebGymError:
        """Return the error with the place where it was raised before its message. `hint`: where it has none."""
        return cast(WebGymError, getattr(errors, self.kind)(f"{where}: {self.message}", hint=self.hint or hint))


class NodeStatus(Record):
    """State of a node's trainer."""

    state: Literal["idle", "busy", "done", "failed"] = "idle"
    """`busy`: it runs, or is being started or stopped."""
    error: NodeError | None = None
    """Why it failed."""


class Order(Record):
    """Node 0's answer to each message: the node's current task."""

    launch: NodeLaunch | None = None
    """The training to take part in."""
    end: tuple[int, str] | None = None
    """Exit code of node 0's command, which has ended, and why it failed."""
    refusal: NodeError | None = None
    """Why the node may not join."""
