"""The engine of a running vLLM server: new weights in place, sleep and waking, proved by what it answers.

Each method raises `ServerCallError` where the engine can't be trusted from then on: the server is then started anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from webgym_cli.serve.client import Fingerprint, ServerCallError, ServerClient
from webgym_cli.serve.plan import ServerPlan
from webgym_cli.serve.weights import is_hub_id, tied_embeddings

# The level of sleep after which the weights have to be loaded again.
DROPS_WEIGHTS = 2

_Steps = Callable[[ServerClient], Awaitable[None]]


class VllmEngine:
    """Knows which weights an engine has, and what engines with them answer."""

    def __init__(self, plan: ServerPlan, connect: Callable[[], ServerClient]) -> None:
        """`connect` makes a client for the server as it runs now."""
        self._plan = plan
        self._connect = connect
        self._model = self._digest = ""
        self._proved = False
        """Whether this server was seen to load dropped weights again."""
        self._fingerprints: dict[str, Fingerprint] = {}
        """By digest of the weights."""

    async def remember(self, model: str, digest: str) -> None:
        """Take the fingerprint of a fresh server's weights; without one, every change of them needs a restart."""
        self._model, self._digest, self._proved = model, digest, False
        async with self._connect() as client:
            self._fingerprints[digest] = await client.fingerprint(checksums=self._plan.dev_mode)

    async def swap(self, model: str, wanted: str) -> None:
        """Load other weights: a folder and its digest."""
        self._require_in_place(wanted)
        if wanted == self._digest:
            return
        if self._plan.device == "cpu" and await asyncio.to_thread(tied_embeddings, model):
            # seen with 0.32: reload_weights leaves the packed copy that the CPU backend made of the output layer
            raise ServerCallError("vLLM on a CPU keeps the old output layer of a model with tied embeddings")

        async def steps(client: ServerClient) -> None:
            await client.pause(self._plan.startup_timeout)
            await client.reload_weights(model, self._plan.startup_timeout)
            await client.reset_caches()
            await client.resume()

        await self._load_and_verify(model, wanted, steps)

    async def sleep(self) -> None:
        """Give the GPU memory back. Only an engine that can be woken with proof is sent to sleep."""
        self._require_in_place(self._digest)
        async with self._connect() as client:
            await client.sleep(self._plan.sleep.level, self._plan.sleep.timeout)

    async def wake(self, model: str, wanted: str) -> None:
        """Take the memory again and load the weights, a folder or hub id and its digest, that it is to have.

        New weights have answers that nobody knows: a server that has never woken before first shows with the old ones
        that it loads all that it had dropped.
        """
        self._require_in_place(wanted)
        if wanted != self._digest and not self._proved and self._plan.sleep.level == DROPS_WEIGHTS:
            await self._wake_with(self._model, self._digest)
            await self.swap(model, wanted)
        else:
            await self._wake_with(model, wanted)

    async def _wake_with(self, model: str, wanted: str) -> None:
        timeout = self._plan.sleep.timeout

        async def steps(client: ServerClient) -> None:
            await client.wake_weights(timeout)
            if self._plan.sleep.level == DROPS_WEIGHTS or wanted != self._digest:
                await client.reload_weights(model, self._plan.startup_timeout)
            await client.reset_caches()
            await client.wake_cache(timeout)

        await self._load_and_verify(model, wanted, steps)
        self._proved = True

    async def load_adapter(self, name: str, folder: str) -> None:
        """Serve a LoRA adapter beside the weights, by a new name; it has answered the known prompts afterwards."""
        async with self._connect() as client:
            await client.load_adapter(name, folder, self._plan.startup_timeout)
            await client.fingerprint(checksums=False, model=name)

    async def unload_adapter(self, name: str) -> None:
        """Serve a LoRA adapter no longer."""
        async with self._connect() as client:
            await client.unload_adapter(name)

    def _require_in_place(self, wanted: str) -> None:
        new_from_hub = is_hub_id(wanted) and wanted != self._digest
        if new_from_hub or not self._plan.dev_mode or self._digest not in self._fingerprints:
            raise ServerCallError("it needs a local folder, a server on loopback and a fingerprint")

    async def _load_and_verify(self, model: str, wanted: str, steps: _Steps) -> None:
        """Take the steps that load weights, and see whether the engine then answers with them."""
        async with self._connect() as client:
            await steps(client)
            now = await client.fingerprint(checksums=True)
        if wanted != self._digest and not now.differs(self._fingerprints[self._digest]):
            raise ServerCallError("vLLM still answers like the previous weights")
        if not now.matches(self._fingerprints.get(wanted, now)):
            raise ServerCallError("vLLM answers unlike these weights did before")
        self._model, self._digest = model, wanted
        self._fingerprints.setdefault(wanted, now)
