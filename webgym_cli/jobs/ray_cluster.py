"""Ray cluster: connection or local start, nodes, and actors pinned to nodes."""

from __future__ import annotations

import asyncio
import importlib
import math
import os
import signal
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import webgym_cli
from webgym_cli.config.rollout import RolloutSettings
from webgym_cli.errors import UsageError, VenvError, WebGymError
from webgym_cli.jobs.ray_connection import OWN, RayConnection, one_line, require_answer, restore_sigterm

# Seconds between two calls while an actor is temporarily unavailable.
_ASK_AGAIN = 0.5
# Timeout of each call that starts an actor: Ray may have to start a process or wait for a free CPU.
START_SECONDS = 120.0
# Timeout for a marker file to become visible: network file systems show new files late.
MARKER_SECONDS = 15.0
# Seconds between two checks for a file.
_LOOK_SECONDS = 0.25
# Ray would kill a dead actor's children, including the browsers' reaper, but not their children, the browsers.
_WORKER_ENV = {"RAY_kill_child_processes_on_worker_exit": "0"}


class NodeLostError(Exception):
    """An actor is dead or does not respond in time; the message contains the reason."""


@dataclass(frozen=True, slots=True)
class Node:
    """Node of the cluster."""

    id: str
    address: str
    """Its IP address."""
    name: str
    """Host name."""
    gpus: int = 0
    """Number of its GPUs."""


class RayCluster:
    """Connection to Ray. Use `open_cluster`."""

    def __init__(self) -> None:
        self._ray = importlib.import_module("ray")
        self.here = str(self._ray.util.get_node_ip_address())
        """IP address of this machine in the cluster."""

    @property
    def here_id(self) -> str:
        """Id of the node that this process runs on."""
        return str(self._ray.get_runtime_context().get_node_id())

    def nodes(self, cpus: float, gpus: float = 0.0) -> list[Node]:
        """Return the alive nodes with at least `cpus` CPUs and `gpus` GPUs in total."""
        return [
            Node(
                str(node["NodeID"]),
                str(node["NodeManagerAddress"]),
                str(node["NodeManagerHostname"]),
                int(node["Resources"].get("GPU", 0)),
            )
            for node in self._ray.nodes()
            if node["Alive"] and node["Resources"].get("CPU", 0) >= cpus and node["Resources"].get("GPU", 0) >= gpus
        ]

    def create_actor(self, kind: type, node: Node, *, cpus: float, gpus: float = 0.0) -> Any:
        """Create an actor of class `kind` pinned to `node`; return its handle."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        return (
            self._ray.remote(kind)
            .options(
                num_cpus=cpus,
                num_gpus=gpus,
                max_restarts=0,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
                runtime_env={"env_vars": _WORKER_ENV},
            )
            .remote()
        )

    async def call(self, method: Any, *arguments: Any, seconds: float | None = None) -> Any:
        """Await an actor's method. Raises `NodeLostError`, and exceptions of the method as `WebGymError`.

        `seconds`: timeout. The call is repeated while Ray can't reach the actor, so it may run more than once.
        """
        errors = self._ray.exceptions
        end = time.monotonic() + (math.inf if seconds is None else seconds)
        while True:
            try:
                async with asyncio.timeout(None if seconds is None else max(0.0, end - time.monotonic())):
                    return await method.remote(*arguments)
            except errors.RayTaskError as error:
                raise as_own_error(error.cause) from error
            except errors.ActorUnavailableError:
                await asyncio.sleep(_ASK_AGAIN)
            except errors.RayError as error:
                raise NodeLostError(one_line(error)) from error
            except TimeoutError as error:
                raise NodeLostError(f"no answer for {seconds:g} s") from error

    async def kill(self, handle: Any) -> None:
        """Kill an actor's process."""
        await asyncio.to_thread(self._ray.kill, handle, no_restart=True)


def as_own_error(error: BaseException) -> WebGymError:
    """Return an actor's exception as a `WebGymError`, without Ray's traceback."""
    return error if isinstance(error, WebGymError) else WebGymError(f"{type(error).__name__}: {error}")


class NodeActor:
    """Base class of webgym's actors. Constructed without arguments, so that another version can report its version."""

    async def inspect(self, marker: str) -> dict[str, Any]:
        """Return host, pid and webgym version of this process, and whether the file `marker` is visible."""
        visible = await wait_for_file(Path(marker), MARKER_SECONDS)
        version = webgym_cli.__version__
        return {"host": socket.gethostname(), "pid": os.getpid(), "version": version, "visible": visible}


async def check_actor(cluster: RayCluster, node: Node, handle: Any, root: Path) -> dict[str, Any]:
    """Return an actor's `inspect`. Raises `UsageError` if its version differs or it does not see the run's folder."""
    with NamedTemporaryFile(prefix="marker-", dir=root) as marker:
        info: dict[str, Any] = await cluster.call(handle.inspect, marker.name, seconds=START_SECONDS)
    if info["version"] != webgym_cli.__version__:
        raise UsageError(
            f"{node.name} has webgym {info['version']}, this is {webgym_cli.__version__}",
            hint=f'pip install "webgym[ray]=={webgym_cli.__version__}" on {node.name}',
        )
    if not info["visible"]:
        raise UsageError(
            f"{node.name} ({node.address}) does not see {root} as it is here",
            hint="put the run on a file system that every node mounts at the same path",
        )
    return info


async def end_actor(cluster: RayCluster, handle: Any, seconds: float) -> None:
    """Close an actor, then kill it even if closing fails or times out."""
    try:
        with suppress(NodeLostError, WebGymError):
            await cluster.call(handle.close, seconds=seconds)
    finally:
        await cluster.kill(handle)


@asynccontextmanager
async def open_cluster(settings: RolloutSettings) -> AsyncIterator[RayCluster]:
    """Connect to the cluster of `rollout.ray_address` or `RAY_ADDRESS`; else run a local Ray within the block.

    Raises `VenvError` if Ray is not installed, `UsageError` if the cluster can't be reached.
    """
    address = settings.ray_address or os.environ.get("RAY_ADDRESS", "") or OWN
    if _require_ray(address).is_initialized():  # by the program that uses webgym as a library
        yield RayCluster()
        return
    await require_answer(address)
    terminated = signal.getsignal(signal.SIGTERM)
    connection = RayConnection(address)
    try:
        await connection.connect()
        restore_sigterm(terminated)
        yield RayCluster()
    finally:
        await connection.leave()
        restore_sigterm(terminated)


def _require_ray(address: str) -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise VenvError(f"executor=ray: {error}", hint='pip install "webgym[ray]", on each node') from error
    if address.startswith("ray://"):
        raise UsageError(
            f"{address}: Ray's client addresses don't suffice: the driver shares the run's folder with the nodes",
            hint="run webgym on a node of the cluster, with -s rollout.ray_address=HOST:6379",
        )
    return ray


async def wait_for_file(file: Path, seconds: float) -> bool:
    """Wait up to `seconds` for a file; return whether it exists. Network file systems show new files late."""
    for _ in range(round(seconds / _LOOK_SECONDS)):
        if await asyncio.to_thread(file.exists):
            return True
        await asyncio.sleep(_LOOK_SECONDS)
    return False
