"""HTTP client for a vLLM server's management endpoints: health, weights, sleep, adapters and fingerprints."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from itertools import chain, product
from typing import Any

import httpx

from webgym_cli.util.http_client import BoundedClient

# Timeout of one health check, in seconds.
HEALTH_TIMEOUT = 5.0
# Timeout of one fingerprint request or cache reset, in seconds.
CALL_TIMEOUT = 120.0
# Maximum difference between log-probabilities of the same weights.
LOGPROB_TOLERANCE = 1e-3

# Long enough to fill a block of the prefix cache, so that a stale cache is detected.
PROMPT = " ".join(f"Step {n}: click the button, read the page and type {n * n} into field {n % 7}." for n in range(12))
TOKENS = 8
IMAGE_SIDE = 96
# Samples of `/metrics` on requests and progress, and the engine in their labels.
_SAMPLE = re.compile(
    r"^vllm:(num_requests_running|num_requests_waiting|prompt_tokens_total|generation_tokens_total|kv_cache_usage_perc)"
    r"\{([^}]*)\} (\S+)",
    re.MULTILINE,
)
_ENGINE = re.compile(r'engine="([^"]*)"')


class ServerCallError(Exception):
    """A call failed: connection error, timeout, error status, or a response of unexpected weights."""


async def find_failure(calls: Awaitable[None]) -> str:
    """Await calls to a server; return the reason of a failure, empty on success."""
    try:
        await calls
    except ServerCallError as error:
        return str(error)
    return ""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Greedy responses to fixed prompts, and parameter checksums if the server has them."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    checksums: dict[str, str] = field(default_factory=dict)
    """Checksums of the engine's parameters, by name; empty if vLLM lacks the endpoint."""

    def matches(self, other: Fingerprint) -> bool:
        """Whether both come from the same weights."""
        if self.checksums and other.checksums and self.checksums != other.checksums:
            return False
        near = all(abs(a - b) <= LOGPROB_TOLERANCE for a, b in zip(self.logprobs, other.logprobs, strict=False))
        return self.tokens == other.tokens and near

    def differs(self, other: Fingerprint, *, complete: bool) -> bool:
        """Whether both come from different weights, by checksums and by responses (a stale cache repeats the old ones).

        The comparison is exact: a small update changes log-probabilities by less than the tolerance. `complete`:
        whether the checksums cover all weights; on a CPU vLLM packs those of the linear layers out of their reach.
        """
        if self.checksums and self.checksums == other.checksums:
            return not complete and not self.matches(other)
        return (self.tokens, self.logprobs) != (other.tokens, other.logprobs)


@dataclass(slots=True)
class EngineLoad:
    """Requests and progress of one engine of a server."""

    requests: float = 0.0
    """Unfinished requests."""
    progress: dict[str, float] = field(default_factory=dict)
    """Values that change while it works: tokens so far, and the use of the KV cache, which a long prompt fills."""


class ServerClient(AbstractAsyncContextManager["ServerClient", None]):
    """Calls to one server; its connections are closed at the end of the block."""

    def __init__(self, root: str, model: str) -> None:
        """`root` is the server's URL without `/v1`."""
        # requests to webgym's own server must bypass a proxy from the environment
        self._http = BoundedClient(base_url=root, timeout=CALL_TIMEOUT, trust_env=False)
        self._model = model

    async def __aexit__(self, *exc: object) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def healthy(self) -> bool:
        """Whether the server is up and its engine alive."""
        try:
            answer = await self._http.get("/health", timeout=HEALTH_TIMEOUT)
        # A server that is starting or dying refuses connections: unhealthy, but no error.
        except httpx.HTTPError:
            return False
        return answer.status_code == httpx.codes.OK

    async def answers(self, deadline: float) -> bool:
        """Whether the model generates a token within `deadline` seconds."""
        body = {"model": self._model, "prompt": "Hi", "max_tokens": 1, "temperature": 0}
        return not await find_failure(self._post("/v1/completions", body, deadline))

    async def read_load(self) -> dict[str, EngineLoad]:
        """Return the load of each engine by its number; empty if `/metrics` does not answer."""
        try:
            answer = await self._call("GET", "/metrics", None, HEALTH_TIMEOUT)
        except ServerCallError:
            return {}
        loads: dict[str, EngineLoad] = {}
        for name, labels, value in _SAMPLE.findall(answer.text):
            load = loads.setdefault(next(iter(_ENGINE.findall(labels)), ""), EngineLoad())
            if name.startswith("num_requests"):
                load.requests += float(value)
            else:
                load.progress[name] = float(value)
        return loads

    async def pause(self, deadline: float) -> None:
        """Finish running requests and hold new ones, within `deadline` seconds."""
        await self._post("/pause?mode=wait", deadline=deadline)

    async def resume(self) -> None:
        """Continue with the held requests."""
        await self._post("/resume")

    async def reload_weights(self, folder: str, deadline: float) -> None:
        """Load other weights of the same architecture into the running engine, within `deadline` seconds."""
        body = {"method": "reload_weights", "kwargs": {"weights_path": folder}, "timeout": deadline}
        await self._post("/collective_rpc", body, deadline=deadline + HEALTH_TIMEOUT)

    async def sleep(self, level: int, deadline: float) -> None:
        """Abort requests and free the GPU memory within `deadline` seconds; the process stays.

        Level 1 keeps the weights in CPU memory, level 2 drops them.
        """
        await self._post(f"/sleep?level={level}&mode=abort", deadline=deadline)
        if not await self._sleeps(deadline):
            raise ServerCallError("/is_sleeping: it is awake after it was sent to sleep")

    async def wake_weights(self, deadline: float) -> None:
        """Allocate memory for the weights. After level 2 they are undefined until reloaded."""
        await self._post("/wake_up?tags=weights", deadline=deadline)

    async def wake_cache(self, deadline: float) -> None:
        """Allocate the KV cache and serve requests again."""
        await self._post("/wake_up?tags=kv_cache", deadline=deadline)
        if await self._sleeps(deadline):
            raise ServerCallError("/is_sleeping: it sleeps after it was woken")

    async def reset_caches(self) -> None:
        """Clear the prefix, multimodal and encoder caches of the previous weights."""
        answer = await self._post("/reset_prefix_cache")
        if answer.content and answer.json().get("success") is False:
            raise ServerCallError("/reset_prefix_cache: blocks are still in use")
        await self._post("/reset_mm_cache")
        await self._post("/reset_encoder_cache")

    async def load_adapter(self, name: str, folder: str, deadline: float) -> None:
        """Load a LoRA adapter under a new name, within `deadline` seconds."""
        await self._post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": folder}, deadline)

    async def unload_adapter(self, name: str) -> None:
        """Unload a LoRA adapter."""
        await self._post("/v1/unload_lora_adapter", {"lora_name": name})

    async def fingerprint(self, *, checksums: bool, model: str = "") -> Fingerprint:
        """Query the fixed prompts greedily: a text, and an image to detect a stale vision tower.

        `model`: name of a LoRA adapter; empty: the model itself.
        """
        common = {"model": model or self._model, "max_tokens": TOKENS, "temperature": 0, "return_token_ids": True}
        text = (await self._post("/v1/completions", common | {"prompt": PROMPT, "logprobs": 1})).json()
        picture = {"type": "image_url", "image_url": {"url": known_image()}}
        messages = [{"role": "user", "content": [picture, {"type": "text", "text": "Describe this."}]}]
        chat = (await self._post("/v1/chat/completions", common | {"messages": messages, "logprobs": True})).json()
        for answer in (text, chat):
            if (name := answer.get("model", common["model"])) != common["model"]:
                raise ServerCallError(f"it answers as the model {name!r}, not {common['model']!r}")
        plain, seen = text["choices"][0], chat["choices"][0]
        return Fingerprint(
            (*plain["token_ids"], *seen["token_ids"]),
            (*plain["logprobs"]["token_logprobs"], *(token["logprob"] for token in seen["logprobs"]["content"])),
            await self._checksums() if checksums else {},
        )

    async def _checksums(self) -> dict[str, str]:
        try:
            answer = await self._post("/weight_checker", {"action": "checksum"})
        except ServerCallError:  # not every version of vLLM has it; responses are compared anyway
            return {}
        return dict(answer.json()["checksums"])

    async def _sleeps(self, deadline: float) -> bool:
        answer = await self._call("GET", "/is_sleeping", None, deadline)
        return bool(answer.json()["is_sleeping"])

    async def _post(self, path: str, body: dict[str, Any] | None = None, deadline: float = CALL_TIMEOUT) -> Any:
        return await self._call("POST", path, body, deadline)

    async def _call(self, method: str, path: str, body: dict[str, Any] | None, deadline: float) -> Any:
        try:
            answer = await self._http.request(method, path, json=body, timeout=deadline)
        except httpx.HTTPError as error:
            raise ServerCallError(f"{path}: {type(error).__name__} {error}".rstrip()) from error
        if answer.status_code != httpx.codes.OK:
            raise ServerCallError(f"{path}: status {answer.status_code}: {answer.text[:300]}")
        return answer


def known_image() -> str:
    """Return a PNG of coloured stripes as a data URL."""
    from PIL import Image  # slow to import, and only needed with a server

    places = [(x, y) for y, x in product(range(IMAGE_SIDE), range(IMAGE_SIDE))]
    pixels = bytes(chain.from_iterable((x * 2, y * 2, (x // 8 + y // 8) % 2 * 255) for x, y in places))
    png = io.BytesIO()
    Image.frombytes("RGB", (IMAGE_SIDE, IMAGE_SIDE), pixels).save(png, "PNG")
    return "data:image/png;base64," + base64.b64encode(png.getvalue()).decode()
