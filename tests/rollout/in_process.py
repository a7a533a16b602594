"""A cluster without Ray: the real workers in this process; calls can be repeated, nodes can die or hang."""

import asyncio
from contextlib import asynccontextmanager
from contextvars import ContextVar

from tests.rollout.scripted import CALL, Script, ScriptedAgent, ScriptedPool
from webgym_cli.jobs.ray_cluster import Node, NodeLostError, as_own_error
from webgym_cli.rollout.ray_worker import RolloutWorker
from webgym_cli.rollout.runner import LocalRunner

NODE: ContextVar[str] = ContextVar("node")


class InProcessCluster:
    """Nodes n0, n1, ...; every episode's call is made twice when `stutters`, the first answer being lost."""

    here = "10.0.0.1"
    here_id = "n0"

    def __init__(self, count, *, stutters=False, gpus=0):
        self.known = [Node(f"n{number}", self.here, f"host{number}", gpus) for number in range(count)]
        self.stutters = stutters
        self.workers = {}
        """Workers by the name of their node."""
        self.dead = {}
        """Set, by the name of their node, for those that died."""
        self.hanging = set()
        self.killed = []
        self.reserved = {}
        """GPUs, by node."""

    def nodes(self, cpus=0, gpus=0, *, others=False):
        offered = [node for node in self.known if node.id not in self.dead and node.gpus >= gpus]
        return [node for node in offered if not (others and node.id == self.here_id)]

    def create_actor(self, kind, node, *, cpus=0, gpus=0):
        worker = kind()
        worker.node = node.id
        self.reserved[node.id] = gpus
        if isinstance(worker, RolloutWorker):
            self.workers[node.id] = worker
        return worker

    def die(self, node):
        self.dead[node] = True

    async def call(self, method, *arguments, seconds=None):
        node = method.__self__.node
        NODE.set(node)
        work = asyncio.ensure_future(self._call(method, arguments))
        try:
            async with asyncio.timeout(seconds):
                while not work.done() or node in self.hanging:
                    if node in self.dead:
                        raise NodeLostError("its node died")
                    await asyncio.sleep(0.01)
        except TimeoutError as error:
            raise NodeLostError(f"no answer for {seconds:g} s") from error
        except asyncio.CancelledError:
            work.cancel()
            raise
        if node in self.dead:
            raise NodeLostError("its node died")
        if error := work.exception():
            raise as_own_error(error)
        return work.result()

    async def _call(self, method, arguments):
        for _ in range(1 + (self.stutters and method.__name__ == "run_episode")):
            answer = await method(*arguments)
        return answer

    async def kill(self, handle):
        self.killed.append(handle.node)
        self.die(handle.node)

    async def bury(self):
        """Close the workers of dead nodes, which here could not be killed."""
        for worker in self.workers.values():
            if hasattr(worker, "_runner"):
                worker._runner.stop()
            await worker.close()


class Parting:
    """Opens scripted runners, a pool a node."""

    def __init__(self, *, judge=None, broken=None, reply=CALL, **script):
        self.script = script
        self.reply = reply
        self.judge = judge
        self.broken = broken
        self.pools = {}
        """By the id of the node."""

    @asynccontextmanager
    async def open(self, run, settings, endpoint, environment):
        if self.broken is not None:
            error, self.broken = self.broken, None
            raise error
        self.pools[NODE.get()] = pool = ScriptedPool(Script(**self.script))
        yield LocalRunner(run, settings, ScriptedAgent((self.reply,)), pool)

    def node(self, environment):
        """Return the id of the node that an environment is on."""
        return next(node for node, pool in self.pools.items() if pool is environment.pool)
