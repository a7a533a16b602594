"""A node other than node 0, where each runs the same command: takes part in node 0's trainings and ends with it."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from webgym_cli import errors
from webgym_cli.config.model import Settings
from webgym_cli.errors import JobError, StoreError, WebGymError
from webgym_cli.records.events import EventSink
from webgym_cli.store.run import RunDir
from webgym_cli.train.nodes.shared_peers import LINE_LIMIT, coordinator_file
from webgym_cli.train.nodes.topology import NodeTopology
from webgym_cli.train.nodes.trainer_node import TrainerNode
from webgym_cli.util.files import read_json
from webgym_cli.venvs.locate import role_python

POLL_SECONDS = 0.2
_AGAIN = "run the same command again on every node: the training goes on from its last checkpoint"
# Methods of `TrainerNode` that node 0 may call.
_METHODS = ("start", "status", "stop")


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How node 0's command ended."""

    code: int
    """Its exit code."""
    message: str
    """Why it ended before its time; empty when it succeeded."""


async def run_worker_node(run: RunDir, settings: Settings, topology: NodeTopology, sink: EventSink) -> CommandResult:
    """Take part in every training of node 0's command on this run, and return how that ended.

    Raises `RunLockedError` when another process has this rank, `JobError` when node 0 is lost or not heard from for
    `train.node_timeout` seconds, `UsageError` when the nodes disagree about their number.
    """

    def say(what: str) -> None:
        sink({"event": "node", "rank": topology.rank, "message": f"node {topology.rank} {what}"})

    role_python(settings, "train")  # a missing trainer is reported before node 0 waits for us
    say("waits for node 0")
    reader, writer, where = await _connect(run, settings.train.node_timeout, topology)
    node = TrainerNode(topology.rank, settings, say)
    try:
        while True:
            request = await _next_request(reader, settings.train.node_timeout, where)
            if request["method"] == "end":
                code, message = request["arguments"]
                return CommandResult(int(code), str(message))
            await _answer(writer, await _perform(node, request))
    except OSError as error:
        raise JobError(f"{where} was lost: {error}", hint=_AGAIN) from error
    finally:
        await node.stop()
        writer.close()


async def _connect(
    run: RunDir, patience: float, topology: NodeTopology
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, str]:
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        # A file that a killed command left names a port where nothing answers, or something else.
        with suppress(OSError, StoreError, KeyError, TypeError, ValueError):
            facts: dict[str, Any] = read_json(coordinator_file(run))
            async with asyncio.timeout(min(5.0, patience)):
                address = str(facts["address"]), int(facts["port"])
                reader, writer = await asyncio.open_connection(*address, limit=LINE_LIMIT)
                me = {"rank": topology.rank, "nodes": topology.count, "host": socket.gethostname(), "pid": os.getpid()}
                await _answer(writer, {"token": facts["token"], **me})
                welcome = json.loads(await reader.readline())
            if "error" in welcome:
                writer.close()
                hint = "export the same NNODES, and a NODE_RANK of its own, on every node"
                raise getattr(errors, welcome["error"])(f"{run.root}: {welcome['message']}", hint=hint)
            return reader, writer, f"node 0 ({facts['host']})"
        await asyncio.sleep(POLL_SECONDS)
    raise JobError(
        f"node 0 is not heard from for {patience:g} s (train.node_timeout)",
        hint=f"NODE_RANK=0 must run the same command on {run.root}; {_AGAIN}",
    )


async def _next_request(reader: asyncio.StreamReader, patience: float, where: str) -> dict[str, Any]:
    try:
        async with asyncio.timeout(patience):
            line = await reader.readline()
    except TimeoutError:
        raise JobError(f"{where} is not heard from for {patience:g} s (train.node_timeout)", hint=_AGAIN) from None
    except ConnectionError:  # reset: its process ended with an answer unread
        line = b""
    if not line:
        raise JobError(f"{where} was lost: its process has ended", hint=_AGAIN)
    request: dict[str, Any] = json.loads(line)
    return request


async def _perform(node: TrainerNode, request: dict[str, Any]) -> dict[str, Any]:
    if request["method"] not in _METHODS:
        return {}  # a ping
    try:
        return {"result": await getattr(node, request["method"])(*request["arguments"])}
    except WebGymError as error:
        return {"error": type(error).__name__, "message": str(error), "hint": error.hint}


async def _answer(writer: asyncio.StreamWriter, answer: dict[str, Any]) -> None:
    writer.write(json.dumps(answer).encode() + b"\n")
    await writer.drain()
