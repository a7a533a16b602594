"""The HTTP calls to a vLLM server that are not for a policy: health, weights, and what its weights answer."""

from __future__ import annotations

import base64
import io
from collections.abc import Awaitable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import httpx

from webgym_cli.util.http_client import BoundedClient

# Deadline of one health check, in seconds.
HEALTH_TIMEOUT = 5.0
# Deadline of one answer to a known prompt or of one cache reset, in seconds.
CALL_TIMEOUT = 120.0
# How far log-probabilities of the same weights may lie apart.
LOGPROB_TOLERANCE = 1e-3

# Long enough to fill a block of the prefix cache: an answer from a stale cache shows.
PROMPT = " ".join(f"Step {n}: click the button, read the page and type {n * n} into field {n % 7}." for n in range(12))
TOKENS = 8
IMAGE_SIDE = 96


class ServerCallError(Exception):
    """A call to the server failed: it can't be reached, answers too late, refuses, or answers with other weights."""


async def find_failure(calls: Awaitable[None]) -> str:
    """Await calls to a server; return why they failed, an empty text where they did not."""
    try:
        await calls
    except ServerCallError as error:
        return str(error)
    return ""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What a server's weights answer to known prompts, and their checksum where the server has one."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    checksums: dict[str, str] = field(default_factory=dict)
    """Of each parameter as it lies in the engine; empty where vLLM has no such endpoint."""

    def matches(self, other: Fingerprint) -> bool:
        """Whether both come from the same weights."""
        if self.checksums and other.checksums and self.checksums != other.checksums:
            return False
        near = all(abs(a - b) <= LOGPROB_TOLERANCE for a, b in zip(self.logprobs, other.logprobs, strict=False))
        return self.tokens == other.tokens and near

    def differs(self, other: Fingerprint) -> bool:
        """Whether both come from different weights, by parameters and by answers: a stale cache keeps the answers.

        Exact: a small training changes log-probabilities by less than the tolerance.
        """
        if self.checksums and self.checksums == other.checksums:
            return False
        return (self.tokens, self.logprobs) != (other.tokens, other.logprobs)


class ServerClient:
    """An async context manager for the calls to one server."""

    def __init__(self, root: str, model: str) -> None:
        """`root` is the server's URL without `/v1`."""
        # a proxy from the environment must not stand between us and our own server
        self._http = BoundedClient(base_url=root, timeout=CALL_TIMEOUT, trust_env=False)
        self._model = model

    async def __aenter__(self) -> ServerClient:
        """Open nothing yet."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def healthy(self) -> bool:
        """Whether the server is up and its engine lives."""
        try:
            answer = await self._http.get("/health", timeout=HEALTH_TIMEOUT)
        # A server that is starting or dying refuses connections: unhealthy, but no error.
        except httpx.HTTPError:
            return False
        return answer.status_code == httpx.codes.OK

    async def pause(self, deadline: float) -> None:
        """Let running requests end, hold new ones back; in so many seconds."""
        await self._post("/pause?mode=wait", deadline=deadline)

    async def resume(self) -> None:
        """Go on with held requests."""
        await self._post("/resume")

    async def reload_weights(self, folder: str, deadline: float) -> None:
        """Load other weights of the same architecture into the running engine; in so many seconds."""
        body = {"method": "reload_weights", "kwargs": {"weights_path": folder}, "timeout": deadline}
        await self._post("/collective_rpc", body, deadline=deadline + HEALTH_TIMEOUT)

    async def sleep(self, level: int, deadline: float) -> None:
        """End what is asked, give the GPU memory back and keep the process; in so many seconds.

        Level 1 keeps the weights in the machine's memory, level 2 drops them.
        """
        await self._post(f"/sleep?level={level}&mode=abort", deadline=deadline)
        if not await self._sleeps(deadline):
            raise ServerCallError("/is_sleeping: it is awake after it was sent to sleep")

    async def wake_weights(self, deadline: float) -> None:
        """Take memory for the weights again. After level 2 they are undefined until they are loaded."""
        await self._post("/wake_up?tags=weights", deadline=deadline)

    async def wake_cache(self, deadline: float) -> None:
        """Take memory for the key-value cache again, and answer requests from now on."""
        await self._post("/wake_up?tags=kv_cache", deadline=deadline)
        if await self._sleeps(deadline):
            raise ServerCallError("/is_sleeping: it sleeps after it was woken")

    async def reset_caches(self) -> None:
        """Forget everything that the previous weights computed."""
        answer = await self._post("/reset_prefix_cache")
        if answer.content and answer.json().get("success") is False:
            raise ServerCallError("/reset_prefix_cache: blocks are still in use")
        await self._post("/reset_mm_cache")
        await self._post("/reset_encoder_cache")

    async def load_adapter(self, name: str, folder: str, deadline: float) -> None:
        """Serve a LoRA adapter beside the model, under a name that is new; in so many seconds."""
        await self._post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": folder}, deadline)

    async def unload_adapter(self, name: str) -> None:
        """Serve a LoRA adapter no longer."""
        await self._post("/v1/unload_lora_adapter", {"lora_name": name})

    async def fingerprint(self, *, checksums: bool, model: str = "") -> Fingerprint:
        """Ask the known prompts, greedily: one text, one image, so that a stale vision tower shows too.

        `model`: the name of a LoRA adapter.
        """
        common = {"model": model or self._model, "max_tokens": TOKENS, "temperature": 0, "return_token_ids": True}
        text = (await self._post("/v1/completions", common | {"prompt": PROMPT, "logprobs": 1})).json()
        picture = {"type": "image_url", "image_url": {"url": known_image()}}
        messages = [{"role": "user", "content": [picture, {"type": "text", "text": "Describe this."}]}]
        chat = (await self._post("/v1/chat/completions", common | {"messages": messages, "logprobs": True})).json()
        plain, seen = text["choices"][0], chat["choices"][0]
        return Fingerprint(
            (*plain["token_ids"], *seen["token_ids"]),
            (*plain["logprobs"]["token_logprobs"], *(token["logprob"] for token in seen["logprobs"]["content"])),
            await self._checksums() if checksums else {},
        )

    async def _checksums(self) -> dict[str, str]:
        try:
            answer = await self._post("/weight_checker", {"action": "checksum"})
        except ServerCallError:  # not every version of vLLM has it; the answers are compared anyway
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
    from PIL import Image  # slow, and only a server needs it

    places = [(x, y) for y in range(IMAGE_SIDE) for x in range(IMAGE_SIDE)]
    pixels = bytes(value for x, y in places for value in (x * 2, y * 2, (x // 8 + y // 8) % 2 * 255))
    png = io.BytesIO()
    Image.frombytes("RGB", (IMAGE_SIDE, IMAGE_SIDE), pixels).save(png, "PNG")
    return "data:image/png;base64," + base64.b64encode(png.getvalue()).decode()
