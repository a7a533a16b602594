"""Ray cluster: connection, nodes, and actors pinned to nodes."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import webgym_cli
from webgym_cli.config.rollout import RolloutSettings
from webgym_cli.errors import JobError, UsageError, VenvError, WebGymError

# Seconds between two calls while an actor is temporarily unavailable, and between two checks for a file.
_POLL_SECONDS = 0.25
# Timeout of each call that starts an actor: Ray may have to start a process or wait for a free GPU.
START_SECONDS = 120.0
# Timeout of a liveness check, after which an actor counts as hung and is killed.
SILENCE = 90.0
# Timeout for a new file to become visible.
MARKER_SECONDS = 15.0
# Timeout of a TCP connection to the cluster's address, in seconds.
_CONNECT_SECONDS = 10.0
# Ray would kill a dead actor's children, including the browsers' reaper, but not their children, the browsers.
_WORKER_ENV = {"RAY_kill_child_processes_on_worker_exit": "0"}
_HOW = "ray symmetric-run --address HOST:6379 -- webgym ..., or -s rollout.ray_address=HOST:PORT (docs/many-nodes.md)"


class NodeLostError(Exception):
    """An actor is dead or does not respond in time; the message contains the reason."""


@dataclass(frozen=True, slots=True)
class Node:
    """Node of the cluster."""

    id: str
    address: str
    """Its IP address."""
    host: str
    gpus: int = 0
    """Number of its GPUs."""

    @property
    def name(self) -> str:
        """The node in messages."""
        return f"{self.host} ({self.address})"


class RayCluster:
    """Connection to Ray. Use `open_cluster`."""

    def __init__(self) -> None:
        self._ray = importlib.import_module("ray")
        self.here = str(self._ray.util.get_node_ip_address())
        """IP address of this machine in the cluster."""

    def nodes(self, cpus: float = 0.0, gpus: float = 0.0, *, others: bool = False) -> list[Node]:
        """Return the alive nodes with at least `cpus` CPUs and `gpus` GPUs in total; `others`: without this one."""
        here = self._ray.get_runtime_context().get_node_id()
        known = [node for node in self._ray.nodes() if node["Alive"] and not (others and node["NodeID"] == here)]
        return [
            Node(node["NodeID"], node["NodeManagerAddress"], node["NodeManagerHostname"], int(has.get("GPU", 0)))
            for node in known
            if (has := node["Resources"]).get("CPU", 0) >= cpus and has.get("GPU", 0) >= gpus
        ]

    def create_actor(self, kind: type, node: Node, *, cpus: float = 0.0, gpus: float = 0.0) -> Any:
        """Create an actor of class `kind` pinned to `node`; return its handle."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        where = NodeAffinitySchedulingStrategy(node.id, soft=False)
        options = {"num_cpus": cpus, "num_gpus": gpus, "max_restarts": 0, "runtime_env": {"env_vars": _WORKER_ENV}}
        return self._ray.remote(kind).options(**options, scheduling_strategy=where).remote()

    async def call(self, method: Any, *arguments: Any, seconds: float | None = None) -> Any:
        """Await an actor's method. Raises `NodeLostError`, and exceptions of the method as `WebGymError`.

        `seconds`: timeout. The call is repeated while Ray can't reach the actor, so it may run more than once.
        """
        errors = self._ray.exceptions
        try:
            async with asyncio.timeout(seconds):
                while True:
                    try:
                        return await method.remote(*arguments)
                    except errors.ActorUnavailableError:
                        await asyncio.sleep(_POLL_SECONDS)
        except errors.RayTaskError as error:
            raise as_own_error(error.cause) from error
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


@contextmanager
def name_errors(name: str, hint: str = "", *, lost: str = "") -> Iterator[None]:
    """Put a node's name before the errors of the block; `lost`: words that make a `NodeLostError` a `JobError`."""
    try:
        yield
    except WebGymError as error:
        raise type(error)(f"{name}: {error}", hint=error.hint or hint) from error
    except NodeLostError as error:
        if not lost:
            raise
        raise JobError(f"{name} {lost}: {error}", hint=hint) from error


def one_line(error: BaseException) -> str:
    """Return a Ray error message as one line of at most 400 characters."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    words = [line for line in lines if not line.startswith(("class_name:", "actor_id:", "pid:", "namespace:", "ip:"))]
    return " ".join(words)[:400] or type(error).__name__


class NodeActor:
    """Base class of webgym's actors. Constructed without arguments, so that another version can report its version."""

    async def inspect(self, marker: str) -> dict[str, Any]:
        """Return host, pid and webgym version of this process, and whether the file `marker` is visible."""
        visible = await wait_for_file(Path(marker))
        version = webgym_cli.__version__
        return {"host": socket.gethostname(), "pid": os.getpid(), "version": version, "visible": visible}


async def check_actor(cluster: RayCluster, node: Node, handle: Any, root: Path) -> dict[str, Any]:
    """Return an actor's `inspect`. Raises `UsageError` if its version differs or it does not see the run's folder."""
    with NamedTemporaryFile(prefix="marker-", dir=root) as marker:
        info: dict[str, Any] = await cluster.call(handle.inspect, marker.name, seconds=START_SECONDS)
    if info["version"] != webgym_cli.__version__:
        raise UsageError(
            f"{node.host} has webgym {info['version']}, this is {webgym_cli.__version__}",
            hint=f'pip install "webgym[ray]=={webgym_cli.__version__}" on {node.host}',
        )
    if not info["visible"]:
        raise UsageError(
            f"{node.name} does not see {root} as it is here",
            hint="put the run on a file system that every node mounts at the same path",
        )
    return info


async def end_actor(cluster: RayCluster, handle: Any, seconds: float = SILENCE) -> None:
    """Close an actor, then kill it even if closing fails or times out."""
    try:
        with suppress(NodeLostError, WebGymError):
            await cluster.call(handle.close, seconds=seconds)
    finally:
        await cluster.kill(handle)


@contextmanager
def open_cluster(settings: RolloutSettings) -> Iterator[RayCluster]:
    """Connect to the cluster of `rollout.ray_address` or `RAY_ADDRESS`, else to the one that this machine is part of.

    Blocks for some seconds. Raises `VenvError` if Ray is not installed, `UsageError` if there is no cluster.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise VenvError(f"executor=ray: {error}", hint='pip install "webgym[ray]", on each node') from error
    if ray.is_initialized():  # by another part of this command, or the program that uses webgym as a library
        yield RayCluster()
        return
    terminated = signal.getsignal(signal.SIGTERM)
    try:
        _connect(ray, settings.ray_address or os.environ.get("RAY_ADDRESS", "") or "auto")
        _restore_sigterm(terminated)
        yield RayCluster()
    finally:
        ray.shutdown()
        _restore_sigterm(terminated)


def _connect(ray: Any, address: str) -> None:
    host, _, port = address.rpartition(":")
    if address.startswith("ray://"):
        raise UsageError(
            f"{address}: Ray's client addresses don't suffice: the driver shares the run's folder with the nodes",
            hint="run webgym on a node of the cluster, with -s rollout.ray_address=HOST:6379",
        )
    # Ray prints dead nodes to stdout, which is reserved for data; webgym reports them itself.
    worker = importlib.import_module("ray._private.worker")
    worker.print_to_stdstream = lambda *_, **__: None  # type: ignore[attr-defined]
    try:
        if port.isdecimal():  # where nothing listens, Ray itself would try for many minutes
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError, TimeoutError, OSError, OverflowError) as error:
        which = "no Ray cluster on this machine" if address == "auto" else f"rollout.ray_address: {address}"
        raise UsageError(f"{which}: {one_line(error)}", hint=_HOW) from error


def _restore_sigterm(handler: Any) -> None:
    """Restore the SIGTERM handler: Ray's C++ handler would abort the process after three seconds."""
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)
        signal.siginterrupt(signal.SIGTERM, False)


async def wait_for_file(file: Path) -> bool:
    """Wait for a file for some seconds; return whether it exists. Network file systems show new files late."""
    for _ in range(round(MARKER_SECONDS / _POLL_SECONDS)):
        if await asyncio.to_thread(file.exists):
            return True
        await asyncio.sleep(_POLL_SECONDS)
    return False
