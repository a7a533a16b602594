"""The nodes of a training and this one's rank, from torchrun's variables in the environment."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from webgym_cli.config.train import TrainSettings
from webgym_cli.errors import UsageError

ASK = "export NNODES, NODE_RANK (0 on the first node) and MASTER_ADDR on every node, then start the same command there"


@dataclass(frozen=True, slots=True)
class NodeTopology:
    """One node among several, each of which runs the same command."""

    count: int
    """Nodes that train together, at least 2."""
    rank: int
    """The number of this one; node 0 leads."""
    address: str = ""
    """Host name or IP address of node 0, as the others reach it; empty: node 0 gives its host's name."""
    port: int = 0
    """Port of the rendezvous on node 0; 0: node 0 takes a free one for each training."""
    by_ray: bool = False
    """Whether Ray places the other nodes; else each of them runs the same command."""

    def to_json(self, processes: int) -> dict[str, Any]:
        """Return the topology as plain data; `processes`: trainer processes on all nodes together."""
        each = processes // self.count
        return {
            "count": self.count,
            "this": self.rank,
            "placed_by": "ray" if self.by_ray else "NODE_RANK",
            "rendezvous": f"{self.master}:{self.port or 'a free port'}",
            "shares": [{"node": rank, "ranks": [*range(rank * each, (rank + 1) * each)]} for rank in range(self.count)],
        }

    @property
    def master(self) -> str:
        """The address of node 0 for the other nodes."""
        return self.address or socket.gethostname()


def from_env(environ: Mapping[str, str]) -> NodeTopology | None:
    """Return this process's place by `NNODES`, `NODE_RANK`, `MASTER_ADDR` and `MASTER_PORT`; None for a node alone.

    Raises `UsageError` where they are incomplete or contradict each other.
    """
    count = _number(environ, "NNODES", 1, "1")
    if count == 1:
        return None
    if not environ.get("NODE_RANK"):
        raise UsageError(f"NNODES is {count}, but NODE_RANK is not set: which of them is this node?", hint=ASK)
    rank = _number(environ, "NODE_RANK", 0)
    if rank >= count:
        raise UsageError(f"NODE_RANK is {rank}, but NNODES is {count}: ranks go from 0 to {count - 1}", hint=ASK)
    port = _number(environ, "MASTER_PORT", 1, "0")
    if port > 65535:
        raise UsageError(f"MASTER_PORT: {port} is no port", hint="leave it out: node 0 then takes a free one")
    return NodeTopology(count, rank, environ.get("MASTER_ADDR", "").strip(), port)


def from_settings(settings: TrainSettings, environ: Mapping[str, str]) -> NodeTopology | None:
    """Return the topology of a training: from the environment, or as node 0 of Ray's nodes."""
    place = from_env(environ)
    if settings.executor != "ray":
        return place
    if place is not None:
        raise UsageError(
            f"train.executor is ray, but NNODES is {place.count}: either Ray places the nodes or you do",
            hint="unset NNODES, or -s train.executor=local",
        )
    placed = from_env({**environ, "NNODES": str(settings.nodes), "NODE_RANK": "0"})
    return placed and replace(placed, by_ray=True)


def _number(environ: Mapping[str, str], name: str, least: int, missing: str = "") -> int:
    """Return a variable's integer; `missing` replaces an unset one."""
    text = environ.get(name, "").strip()
    if not text:
        return int(missing)
    if not (text.isascii() and text.isdigit()) or int(text) < least:
        raise UsageError(f"{name}: {text!r} is no whole number from {least}", hint=ASK)
    return int(text)


def build_rendezvous(**variables: object) -> dict[str, str]:
    """Return variables of torchrun's rendezvous under both of their names.

    torchrun itself reads those with PET_; LLaMA-Factory calls torchrun with the others.
    """
    return {prefix + name: str(value) for name, value in variables.items() for prefix in ("", "PET_")}


def free_port() -> int:
    """Return a port that is free on this machine now."""
    with socket.socket() as listener:
        listener.bind(("", 0))
        return int(listener.getsockname()[1])
