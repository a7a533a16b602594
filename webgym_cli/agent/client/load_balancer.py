"""Load balancer over policy servers, with affinity: an episode stays on its server, a new one goes to the least busy.

The server of an episode has its screenshots preprocessed and encoded, and its prompt prefix cached. The episode moves
to the available server with the fewest outstanding requests if its server is out or much busier.

A server that fails a request is out until it answers one: a probe of one token, or a request that was in flight. The
failed request is retried, on another server if there is one. Processes share no state: each rank of a multi-node
rollout balances its own requests.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from webgym_cli.agent.client.policy import ChatPolicy, ServerMisconfiguredError
from webgym_cli.agent.prompt import PolicyReply, Prompt, ServerCounters
from webgym_cli.config.rollout import RolloutSettings
from webgym_cli.errors import BoundaryError
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.sampling import Sampling

# Delay before a request is retried on a server that has failed it, in seconds; doubles with each further failure.
RETRY_DELAY = 0.5
# Delay before the first probe of a server that is out, in seconds; doubles up to the maximum.
PROBE_DELAY, MAX_PROBE_DELAY = 0.5, 15.0
# Wait for a server that has never answered, in seconds: its address may be wrong, or it is still starting.
FIRST_WAIT = 30.0
# Outstanding requests by which an episode's server may exceed the least busy one before the episode moves.
AFFINITY_SLACK = 4
# Maximum number of episodes whose server is remembered: more than any rollout runs concurrently.
_MAX_REMEMBERED_EPISODES = 16384
# Length of each server's last error in the message that no server is available, in characters.
_ERROR_CHARACTERS = 160


@dataclass(slots=True, eq=False)
class _Server:
    policy: ChatPolicy
    outstanding: int = 0
    used: int = 0
    """Sequence number of its last request among those of all servers."""
    requests: int = 0
    failures: int = 0
    seconds: float = 0.0
    answered: bool = False
    """Whether it has answered a request."""
    error: BoundaryError | None = None
    """Its last failure while it is out; None: it is available."""
    out_since: float = 0.0
    """Start of its last outage, in the loop's time."""
    outages: int = 0
    delay: float = 0.0
    """Delay before its next probe; 0 once a request has succeeded."""
    probing: asyncio.Task[None] | None = None

    def counters(self) -> dict[str, float]:
        """Return its part of `ServerCounters`."""
        return {
            "requests": self.requests,
            "failures": self.failures,
            "opened": self.outages,
            "seconds": round(self.seconds, 2),
            "outstanding": self.outstanding,
            "open": int(self.error is not None),
        }

    def longest_wait(self, limit: float) -> float:
        """Return the seconds from the start of an outage for which requests wait for it."""
        return limit if self.answered else min(limit, FIRST_WAIT)


class BalancedPolicy:
    """A policy behind one or several servers with the same weights. Bound to one event loop; close it at the end."""

    def __init__(self, policies: Sequence[ChatPolicy], limits: RolloutSettings, *, started: bool = False) -> None:
        """`policies`: at least one, each at another address. `started`: whether the servers are known to be up."""
        self.name = policies[0].name
        self._servers = [_Server(policy, answered=started) for policy in policies]
        self._retries = limits.endpoint.retries
        self._wait = limits.policy_wait
        self._sent = 0
        self._server_of_episode: OrderedDict[str, _Server] = OrderedDict()
        """Episode -> server of its last request, in the order of these requests."""
        self._server_available = asyncio.Event()
        """Set when a server is available again, or refuses every request."""

    async def reply(self, prompt: Prompt) -> PolicyReply:
        """Send the prompt to one of the servers; retry a server failure, preferably on another server.

        Raises `BoundaryError`: the last server's, or `policy_unavailable` with the errors of all servers if none
        becomes available within `rollout.policy_wait` of its failure.
        """
        failed: list[_Server] = []
        while True:
            server = await self._wait_for_server(failed, prompt)
            if server in failed:
                await asyncio.sleep(RETRY_DELAY * 2 ** (failed.count(server) - 1))
                server = await self._wait_for_server(failed, prompt)
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

    async def _wait_for_server(self, failed: list[_Server], prompt: Prompt) -> _Server:
        """Return the best available server; wait for one if necessary. Raises `BoundaryError`."""
        allowed = [one for one in self._servers if not prompt.servers or one.policy.address in prompt.servers]
        while (server := self._find_best_server(allowed, failed, prompt)) is None:
            errors = [server.error for server in allowed if server.error]
            # Only another key, model or path helps.
            if all(isinstance(error, ServerMisconfiguredError) for error in errors):
                raise errors[0]
            self._server_available.clear()
            try:
                async with asyncio.timeout_at(max(one.out_since + one.longest_wait(self._wait) for one in allowed)):
                    await self._server_available.wait()
            except TimeoutError:
                words = "; ".join(str(error)[:_ERROR_CHARACTERS] for error in errors)
                longest = max(one.longest_wait(self._wait) for one in allowed)
                message = f"no policy server came back within {longest:g} s: {words}"
                raise BoundaryError(FailureKind.POLICY_UNAVAILABLE, message) from None
        return server

    def _find_best_server(self, allowed: list[_Server], failed: list[_Server], prompt: Prompt) -> _Server | None:
        free = [server for server in allowed if server.error is None]
        # Ties go to the server that was used longest ago, so that idle servers take turns.
        least = min(free, key=lambda one: (failed.count(one), one.outstanding, one.used), default=None)
        home = self._server_of_episode.get(prompt.episode)
        if least and home in free and home not in failed and home.outstanding - least.outstanding <= AFFINITY_SLACK:
            return home
        return least

    async def _query(self, server: _Server, prompt: Prompt) -> PolicyReply:
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._sent += 1
        if prompt.episode:
            self._server_of_episode[prompt.episode] = server
            self._server_of_episode.move_to_end(prompt.episode)
            if len(self._server_of_episode) > _MAX_REMEMBERED_EPISODES:
                self._server_of_episode.popitem(last=False)
        server.used, server.requests, server.outstanding = self._sent, server.requests + 1, server.outstanding + 1
        try:
            reply = await server.policy.reply(prompt)
        except BoundaryError as error:
            if _is_server_fault(error):
                self._take_out(server, error)
            raise
        finally:
            server.outstanding -= 1
            server.seconds += loop.time() - began
        server.delay = 0.0
        self._put_back(server)
        return reply

    def _take_out(self, server: _Server, error: BoundaryError) -> None:
        """Send no more requests to a server that failed one, until it answers."""
        server.failures += 1
        if server.error is None:
            server.outages += 1
            server.out_since = asyncio.get_running_loop().time()
            # It doubles for a server that answers probes and fails requests, which would draw all of them.
            server.delay = min(MAX_PROBE_DELAY, 2 * server.delay or PROBE_DELAY)
            server.probing = asyncio.create_task(self._probe_until_answered(server))
        server.error = error
        if isinstance(error, ServerMisconfiguredError):
            self._server_available.set()  # no request must wait for it

    def _put_back(self, server: _Server) -> None:
        server.error, server.answered = None, True
        self._server_available.set()

    async def _probe_until_answered(self, server: _Server) -> None:
        delay = server.delay
        while server.error is not None:
            await asyncio.sleep(delay)
            delay = min(MAX_PROBE_DELAY, 2 * delay)
            if await server.policy.answers():
                self._put_back(server)


def _is_server_fault(error: BoundaryError) -> bool:
    """Whether another server may answer the request; False if the request itself was refused."""
    return error.kind is FailureKind.POLICY_UNAVAILABLE
