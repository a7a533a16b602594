"""Speaks to a running vLLM server: is it healthy, what does it compute, take these weights."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any

import httpx

from webgym_cli.errors import JobError
from webgym_cli.serve.plan import ServerPlan

CALL_TIMEOUT = 60.0
PAUSE_TIMEOUT = 600.0
"""Pausing waits for the requests in flight."""
RELOAD_TIMEOUT = 1800.0
PROBE_TOKENS = 160
"""More than one block of the prefix cache (128 tokens on a CPU), so that the cache takes part."""
TOLERANCE = 0.1
"""Two ways to the same log-probability may differ by so much (rounding in 16 bits)."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What a server computes for a fixed prompt: other weights give other numbers."""

    values: tuple[float, ...]
    """Log-probabilities of the prompt's tokens, computed without the prefix cache."""
    next_value: float
    """Log-probability of the greedy next token, computed the same way."""
    cached_value: float
    """The same number with the prefix cache taking part: it differs when the cache is older than the weights."""

    @property
    def consistent(self) -> bool:
        """Whether the prefix cache belongs to the weights."""
        return math.isclose(self.next_value, self.cached_value, rel_tol=0.0, abs_tol=TOLERANCE)

    def close_to(self, other: Fingerprint) -> bool:
        """Whether both come from the same weights, up to rounding."""
        pairs = zip(self.values, other.values, strict=True)
        return all(math.isclose(one, two, rel_tol=0.0, abs_tol=TOLERANCE) for one, two in pairs)


class Control:
    """The control side of one server. Every call has a deadline; failures are `JobError`."""

    def __init__(self, plan: ServerPlan) -> None:
        self._plan = plan
        key = os.environ.get("VLLM_API_KEY", "")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        # a proxy of the environment must not come between us and our own server
        self._client = httpx.AsyncClient(base_url=plan.root_url, headers=headers, timeout=CALL_TIMEOUT, trust_env=False)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def health(self) -> int | None:
        """Return the status of the health check; None while nothing answers."""
        try:
            return (await self._client.get("/health", timeout=10.0)).status_code
        except httpx.HTTPError:
            return None

    async def models(self) -> list[str]:
        """Return the names that the server answers to."""
        answer = await self._call("GET", "/v1/models")
        return [str(model["id"]) for model in answer.json()["data"]]

    async def fingerprint(self) -> Fingerprint:
        """Return what the server computes now."""
        count = min(PROBE_TOKENS, self._plan.max_model_len - 8)
        prompt = [32 + (7 * position) % 200 for position in range(count)]  # ids that every vocabulary has
        request = {"model": self._plan.served_name, "prompt": prompt, "max_tokens": 1, "temperature": 0, "logprobs": 0}
        plain = (await self._call("POST", "/v1/completions", {**request, "prompt_logprobs": 0})).json()["choices"][0]
        cached = (await self._call("POST", "/v1/completions", request)).json()["choices"][0]
        try:
            return _read_fingerprint(prompt, plain, cached)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise JobError(f"vLLM's answer can't be read: {error!r}") from error

    async def load_weights(self, model: str) -> None:
        """Give the running server the weights of a local folder; requests wait meanwhile."""
        await self._call("POST", "/pause?mode=wait", deadline=PAUSE_TIMEOUT)
        reload = {"method": "reload_weights", "kwargs": {"weights_path": model}}
        await self._call("POST", "/collective_rpc", reload, deadline=RELOAD_TIMEOUT)
        reset = await self._call("POST", "/reset_prefix_cache")
        if reset.content and reset.json().get("success") is False:
            raise JobError("vLLM did not empty its prefix cache")
        await self._call("POST", "/reset_mm_cache")
        await self._call("POST", "/reset_encoder_cache")
        await self._call("POST", "/resume")

    async def _call(
        self, method: str, path: str, body: Any = None, *, deadline: float = CALL_TIMEOUT
    ) -> httpx.Response:
        try:
            answer = await self._client.request(method, path, json=body, timeout=deadline)
        except httpx.HTTPError as error:
            raise JobError(f"vLLM did not answer {path}: {error or type(error).__name__}") from error
        if answer.status_code != httpx.codes.OK:
            raise JobError(f"vLLM answered {path} with {answer.status_code}: {answer.text[:300]}")
        return answer


def _read_fingerprint(prompt: list[int], plain: Any, cached: Any) -> Fingerprint:
    # the first token has no probability; each entry may also hold the likeliest token beside the prompt's own
    entries = zip(prompt[1:], plain["prompt_logprobs"][1:], strict=True)
    values = tuple(float(entry[str(token)]["logprob"]) for token, entry in entries)
    return Fingerprint(
        values, float(plain["logprobs"]["token_logprobs"][0]), float(cached["logprobs"]["token_logprobs"][0])
    )
