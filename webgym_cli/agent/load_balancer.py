"""Load balancer over policy servers, with affinity: an episode stays on its server, a new one goes to the least busy.

The server of an episode has its screenshots preprocessed and encoded, and its prompt prefix cached. The episode moves
to the healthy server with the fewest outstanding requests if its server is down or much busier.

A request that fails on one server is retried on another one. Consecutive failures open a server's circuit breaker.
Processes share no state: each rank of a multi-node rollout balances its own requests.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from webgym_cli.agent.circuit_breaker import BreakerState, CircuitBreaker
from webgym_cli.agent.policy import ChatPolicy, ServerMisconfiguredError
from webgym_cli.agent.prompt import Prompt
from webgym_cli.agent.reply import PolicyReply, ServerCounters
from webgym_cli.config.rollout import RolloutSettings
from webgym_cli.errors import BoundaryError
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.sampling import Sampling

# Delay before a request is retried on a server that has failed it, in seconds; doubles with each further failure.
RETRY_DELAY = 0.5
# Outstanding requests by which an episode's server may exceed the least busy one before the episode moves.
AFFINITY_SLACK = 4
# Maximum number of episodes whose server is remembered: more than any rollout runs concurrently.
_MAX_REMEMBERED_EPISODES = 16384
# Length of each server's last error in the message that no server is available, in characters.
_ERROR_CHARACTERS = 160


@dataclass(slots=True, eq=False)
class _Server:
    """State of a server in the load balancer."""

    policy: ChatPolicy
    breaker: CircuitBreaker
    outstanding: int = 0
    """Number of requests in flight."""
    used: int = 0
    """Sequence number of its last request among those of all servers."""
    requests: int = 0
    failures: int = 0
    seconds: float = 0.0
    last_error: str = ""
    """Message of its last failure."""
    probing: asyncio.Task[None] | None = None
    """Task that probes the server while its breaker is open."""

    def counters(self) -> dict[str, float]:
        """Return its part of `ServerCounters`."""
        return {
            "requests": self.requests,
            "failures": self.failures,
            "opened": self.breaker.times_opened,
            "seconds": round(self.seconds, 2),
            "outstanding": self.outstanding,
            "open": int(self.breaker.state is not BreakerState.CLOSED),
        }


class BalancedPolicy:
    """A policy behind several servers with the same weights. Bound to one event loop; close it at the end."""

    def __init__(self, policies: Sequence[ChatPolicy], limits: RolloutSettings) -> None:
        """`policies`: at least one, each at another address, without retries, which would delay the next server."""
        self.name = policies[0].name
        self._servers = [
            _Server(policy, CircuitBreaker(limits.policy_failures, limits.policy_cooldown, limits.policy_cooldown_max))
            for policy in policies
        ]
        self._retries = limits.policy_retries
        self._timeout = limits.policy_timeout
        self._sent = 0
        self._server_of_episode: OrderedDict[str, _Server] = OrderedDict()
        """Episode -> server of its last request, in the order of these requests."""
        self._server_available = asyncio.Event()
        """Set when a server admits requests again."""

    async def reply(self, prompt: Prompt) -> PolicyReply:
        """Send the prompt to one of the servers; retry a server failure, preferably on another server.

        Raises `BoundaryError`: the last server's, or `policy_unavailable` with the errors of all servers if none
        becomes available within `rollout.policy_timeout`.
        """
        failed: list[_Server] = []
        while True:
            server = await self._choose_server(failed, prompt)
            try:
                return await self._query(server, prompt)
            except BoundaryError as error:
                if not _is_server_fault(error) or len(failed) >= self._retries:
                    raise
                failed.append(server)

    def sampling(self, *, greedy: bool) -> Sampling:
        """Return the sampling parameters, which are the same for all servers."""
        return self._servers[0].policy.sampling(greedy=greedy)

    def servers(self) -> ServerCounters:
        """Return the counters of each server by its address."""
        return {server.policy.address: server.counters() for server in self._servers}

    async def close(self) -> None:
        """Close all connections."""
        probes = [server.probing for server in self._servers if server.probing]
        for probe in probes:
            # Cancelled before the clients are closed: a probe must not use a closed client.
            probe.cancel()
        endings = await asyncio.gather(*probes, return_exceptions=True)
        await asyncio.gather(*(server.policy.close() for server in self._servers))
        for error in endings:
            if isinstance(error, Exception):
                raise error

    async def _choose_server(self, failed: list[_Server], prompt: Prompt) -> _Server:
        """Return the server for a request, after a delay if it is one of those that have `failed` it."""
        server = await self._wait_for_server(failed, prompt)
        if server in failed:
            await asyncio.sleep(RETRY_DELAY * 2 ** (failed.count(server) - 1))
            server = await self._wait_for_server(failed, prompt)
        return server

    async def _wait_for_server(self, failed: list[_Server], prompt: Prompt) -> _Server:
        """Return the best server that admits a request; wait for one if necessary. Raises `BoundaryError`."""
        try:
            async with asyncio.timeout(self._timeout):
                while (server := self._find_best_server(failed, prompt)) is None:
                    self._server_available.clear()
                    await self._server_available.wait()
        except TimeoutError:
            words = "; ".join(server.last_error[:_ERROR_CHARACTERS] for server in self._servers)
            message = f"no policy server came back within {self._timeout:g} s: {words}"
            raise BoundaryError(FailureKind.POLICY_UNAVAILABLE, message) from None
        return server

    def _find_best_server(self, failed: list[_Server], prompt: Prompt) -> _Server | None:
        allowed = [one for one in self._servers if not prompt.servers or one.policy.address in prompt.servers]
        free = [server for server in allowed if server.breaker.admits]
        # Ties go to the server that was used longest ago, so that idle servers take turns.
        least = min(free, key=lambda one: (failed.count(one), one.outstanding, one.used), default=None)
        home = self._server_of_episode.get(prompt.episode)
        if least and home in free and home not in failed and home.outstanding - least.outstanding <= AFFINITY_SLACK:
            return home
        return least

    def _remember_server(self, episode: str, server: _Server) -> None:
        if episode:
            self._server_of_episode[episode] = server
            self._server_of_episode.move_to_end(episode)
            if len(self._server_of_episode) > _MAX_REMEMBERED_EPISODES:
                self._server_of_episode.popitem(last=False)

    async def _query(self, server: _Server, prompt: Prompt) -> PolicyReply:
        """Send a request to a server and record its result.

        Requires `server.breaker.admits`: nothing may be awaited between the choice of the server and this call.
        """
        loop = asyncio.get_running_loop()
        term, began = server.breaker.start_request(), loop.time()
        worked: bool | None = None
        self._sent += 1
        self._remember_server(prompt.episode, server)
        server.used, server.requests, server.outstanding = self._sent, server.requests + 1, server.outstanding + 1
        try:
            reply = await server.policy.reply(prompt)
            worked = True
        except BoundaryError as error:
            worked = not _is_server_fault(error)
            if not worked:
                server.failures += 1
                server.last_error = str(error)
            raise
        finally:
            server.outstanding -= 1
            server.seconds += loop.time() - began
            server.breaker.finish_request(term, worked=worked)
            self._after_request(server)
        return reply

    def _after_request(self, server: _Server) -> None:
        """Wake waiting requests if the server admits them, else start its probe."""
        if server.breaker.admits:
            self._server_available.set()
        elif server.breaker.state is BreakerState.OPEN and (server.probing is None or server.probing.done()):
            server.probing = asyncio.create_task(self._probe_until_healthy(server))

    async def _probe_until_healthy(self, server: _Server) -> None:
        """Probe a server after each pause of its open breaker until it is healthy; then a trial request is admitted."""
        while server.breaker.state is BreakerState.OPEN:
            await asyncio.sleep(server.breaker.pause)
            server.breaker.record_probe(healthy=await server.policy.healthy())
        self._server_available.set()


def _is_server_fault(error: BoundaryError) -> bool:
    """Whether another server may answer the request; False if the request itself was refused."""
    return error.kind is FailureKind.POLICY_UNAVAILABLE or isinstance(error, ServerMisconfiguredError)
