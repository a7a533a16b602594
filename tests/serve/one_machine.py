"""A cluster without Ray whose nodes are this machine, with actors that serve."""

from tests.rollout.in_process import InProcessCluster


class OneMachine(InProcessCluster):
    """Nodes with a GPU each, at loopback; ending an actor leaves its node alive."""

    here = "127.0.0.1"

    def __init__(self, count):
        super().__init__(count, gpus=1)
        self.actors = []

    def create_actor(self, kind, node, *, cpus=0, gpus=0):
        self.actors.append(super().create_actor(kind, node, cpus=cpus, gpus=gpus))
        return self.actors[-1]

    async def kill(self, handle):
        self.killed.append(handle.node)

    @property
    def servers(self):
        """The processes of the servers, by their nodes; a later one of a node hides the one before."""
        return {actor.node: actor._server for actor in self.actors if hasattr(actor, "_server")}
