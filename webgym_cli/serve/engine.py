"""Engine of a running vLLM server: in-place weight updates, sleep and wake-up, verified by fingerprints.

Each method raises `ServerCallError` if the engine's state is no longer certain; the caller then restarts the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from webgym_cli.serve.client import Fingerprint, ServerCallError, ServerClient
from webgym_cli.serve.plan import ServerPlan
from webgym_cli.serve.weights import HUB, tied_embeddings
from webgym_cli.store.weights import find_non_finite, is_zero_adapter

# The level of sleep after which the weights have to be loaded again.
SLEEP_LEVEL = 2

_Steps = Callable[[ServerClient], Awaitable[None]]


class VllmEngine:
    """Tracks the weights of an engine and the fingerprint of each set of weights."""

    def __init__(self, plan: ServerPlan, connect: Callable[[], ServerClient]) -> None:
        """`connect` returns a client of the running server."""
        self._plan = plan
        self._connect = connect
        self._model = self._digest = ""
        self._proved = False
        """Whether this server has reloaded dropped weights successfully."""
        self._fingerprints: dict[str, Fingerprint] = {}
        """Fingerprints by weight digest."""

    async def remember(self, model: str, digest: str) -> None:
        """Record the fingerprint of a newly started server; without one, every weight update needs a restart."""
        self._model, self._digest, self._proved = model, digest, False
        async with self._connect() as client:
            self._fingerprints[digest] = await client.fingerprint(checksums=self._plan.dev_mode)

    async def swap(self, model: str, wanted: str) -> None:
        """Load other weights in place. `model`: their folder; `wanted`: their digest."""
        self._require_in_place(wanted)
        if wanted == self._digest:
            return
        if self._plan.device == "cpu" and await asyncio.to_thread(tied_embeddings, model):
            # seen with 0.32: reload_weights leaves the packed copy that the CPU backend made of the output layer
            raise ServerCallError("vLLM on a CPU keeps the old output layer of a model with tied embeddings")

        async def steps(client: ServerClient) -> None:
            await self._require_answer(client)
            await client.pause(self._plan.serve.startup_timeout)
            await client.reload_weights(model, self._plan.serve.startup_timeout)
            await client.reset_caches()
            await client.resume()

        await self._load_and_verify(model, wanted, steps)

    async def sleep(self) -> None:
        """Free the GPU memory. Requires an engine whose wake-up can be verified."""
        self._require_in_place(self._digest)
        async with self._connect() as client:
            await client.sleep(SLEEP_LEVEL, self._plan.sleep.timeout)

    async def wake(self, model: str, wanted: str) -> None:
        """Allocate the memory again and load the weights `model` (folder or hub id) with digest `wanted`.

        New weights have no known fingerprint. Before its first swap on wake-up, a server therefore reloads the old
        weights, to verify that it restores everything it dropped.
        """
        self._require_in_place(wanted)
        if wanted != self._digest and not self._proved:
            await self._wake_with(self._model, self._digest)
            await self.swap(model, wanted)
        else:
            await self._wake_with(model, wanted)

    async def _wake_with(self, model: str, wanted: str) -> None:
        timeout = self._plan.sleep.timeout

        async def steps(client: ServerClient) -> None:
            await client.wake_weights(timeout)
            await client.reload_weights(model, self._plan.serve.startup_timeout)
            await client.reset_caches()
            await client.wake_cache(timeout)

        await self._load_and_verify(model, wanted, steps)
        self._proved = True

    async def load_adapter(self, name: str, folder: str) -> None:
        """Load a LoRA adapter under a new name, and query it once to verify that it responds."""
        async with self._connect() as client:
            await self._require_answer(client)
            await client.load_adapter(name, folder, self._plan.serve.startup_timeout)
        try:
            await self.check_adapter(name, folder)
        except ServerCallError:
            await self.unload_adapter(name)
            raise

    async def check_adapter(self, name: str, folder: str) -> None:
        """Query a loaded LoRA adapter to verify that it responds, and unlike the model without it.

        vLLM loads adapters whose names match none of its modules, and answers as the model alone. An adapter whose
        matrices are zero changes nothing and is served.
        """
        try:
            tensor = await asyncio.to_thread(find_non_finite, Path(folder))
            is_zero = await asyncio.to_thread(is_zero_adapter, Path(folder))
        except (OSError, ValueError) as error:
            raise ServerCallError(f"its weights can't be read: {error}") from error
        if tensor:
            raise ServerCallError(f"its weights {tensor} hold NaN or infinite values")
        async with self._connect() as client:
            served = await client.fingerprint(checksums=False, model=name)
        alone = self._fingerprints.get(self._digest)
        same = alone is not None and (served.tokens, served.logprobs) == (alone.tokens, alone.logprobs)
        if same and not is_zero:
            raise ServerCallError("vLLM answers as the model without it: its names match no module, or it is too small")

    async def unload_adapter(self, name: str) -> None:
        """Unload a LoRA adapter."""
        async with self._connect() as client:
            await client.unload_adapter(name)

    async def _require_answer(self, client: ServerClient) -> None:
        """Raise `ServerCallError` if the engine hangs: loading has a much longer deadline."""
        if not await client.answers(self._plan.serve.stall_timeout):
            raise ServerCallError(f"it has answered no request for {self._plan.serve.stall_timeout:g} s")

    def _require_in_place(self, wanted: str) -> None:
        new_from_hub = wanted.startswith(HUB) and wanted != self._digest
        if new_from_hub or not self._plan.dev_mode or self._digest not in self._fingerprints:
            raise ServerCallError("it needs a local folder, a server on loopback and a fingerprint")

    async def _load_and_verify(self, model: str, wanted: str, steps: _Steps) -> None:
        """Run the loading steps, then verify the weights by the engine's fingerprint."""
        async with self._connect() as client:
            await steps(client)
            now = await client.fingerprint(checksums=True)
        complete, before = self._plan.device != "cpu", self._fingerprints[self._digest]
        if wanted != self._digest and not now.differs(before, complete=complete):
            raise ServerCallError("vLLM still answers like the previous weights")
        if not now.matches(self._fingerprints.get(wanted, now)):
            raise ServerCallError("vLLM answers unlike these weights did before")
        self._model, self._digest = model, wanted
        self._fingerprints.setdefault(wanted, now)
