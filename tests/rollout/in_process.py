"""A cluster without Ray: its ranks are the real ones, in this process; calls can be lost, and nodes can die."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import partial

from tests.rollout.scripted import CALL, Script, ScriptedAgent, ScriptedPool
from webgym_cli.jobs.ray_cluster import ActorLostError, Node
from webgym_cli.rollout.resources import RolloutResources


class InProcessCluster:
    """Nodes n0, n1, ...; every call is made twice when `stutters`, the first answer being lost."""

    here = "10.0.0.1"

    def __init__(self, count, *, stutters=False):
        self.known = [Node(f"n{number}", self.here, f"host{number}") for number in range(count)]
        self.stutters = stutters
        self.ranks = {}
        """Ranks by the name of their node."""
        self.dead = set()
        self.killed = []

    def nodes(self, cpus):
        return [node for node in self.known if node.id not in self.dead]

    def hire(self, kind, node, *, cpus):
        self.ranks[node.id] = rank = kind()
        rank.node = node.id
        return rank

    async def ask(self, method, *arguments, seconds):
        node = method.__self__.node
        if method.__name__ == "begin":
            arguments = (partial(arguments[0], node=node), *arguments[1:])
        for _ in range(1 + (self.stutters and method.__name__ == "exchange")):
            answer = await method(*arguments)
        if node in self.dead:
            raise ActorLostError("its node died")
        return answer

    async def kill(self, handle):
        self.killed.append(handle.node)

    async def bury(self):
        """End the engines of dead nodes, which here could not be killed: they write late, as zombies would."""
        for rank in self.ranks.values():
            if rank._lease:
                rank._lease.cancel()
            if rank._work and not rank._work.done():
                rank._work.cancel()
                await asyncio.wait((rank._work,))


class Parting:
    """Opens scripted parts, a pool a node."""

    def __init__(self, *, judge=None, broken=None, reply=CALL, **script):
        self.script = script
        self.reply = reply
        self.judge = judge
        self.broken = broken
        self.pools = {}
        """By the id of the node."""

    @asynccontextmanager
    async def open(self, run, settings, acting, environment, node=""):
        if not environment:
            yield RolloutResources(ScriptedAgent(), None, self.judge)
            return
        if self.broken is not None:
            error, self.broken = self.broken, None
            raise error
        self.pools[node] = pool = ScriptedPool(Script(**self.script))
        yield RolloutResources(ScriptedAgent((self.reply,)), pool, self.judge)

    def node(self, environment):
        """Return the id of the node that an environment is on."""
        return next(node for node, pool in self.pools.items() if pool is environment.pool)
