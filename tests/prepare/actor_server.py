"""A server that speaks vLLM's protocol of prompt log-probabilities, without a model."""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any

from aiohttp import web

from webgym_cli.util.local_server import LocalServer

UNLIKELY = -3.25
"""What a token's log-probability usually is."""


class ActorServer(LocalServer):
    """An async context manager. `logprobs`: of tokens that it knows; `max_model_len`: as vLLM's."""

    def __init__(self, logprobs: dict[int, float] | None = None, *, max_model_len: int = 1 << 20) -> None:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/v1/completions", self._complete)
        super().__init__(app, 0)
        self.logprobs = logprobs or {}
        self.answers: int | None = None
        """So many questions are answered, the others wait for ever; None: all are."""
        self.waiting = asyncio.Event()
        """Set when a question waits."""
        self.usual = UNLIKELY
        """The log-probability of other tokens."""
        self.max_model_len = max_model_len
        self.requests: list[list[int]] = []
        """The sequences of the questions so far."""
        self.models: set[str] = set()
        """The models that were asked."""
        self.statuses: deque[int] = deque()
        """HTTP statuses that the next questions get; 200: an answer."""

    @property
    def base_url(self) -> str:
        return f"http://{self.address}/v1"

    def of(self, tokens: Sequence[int]) -> list[float]:
        return [self.logprobs.get(token, self.usual) for token in tokens]

    async def _complete(self, request: web.Request) -> web.Response:
        body = await request.json()
        status = self.statuses.popleft() if self.statuses else 200
        if status != 200 or len(body["prompt"]) + body["max_tokens"] > self.max_model_len:
            return web.json_response({"error": {"message": "no"}}, status=400 if status == 200 else status)
        if self.answers is not None and len(self.requests) >= self.answers:
            self.waiting.set()
            await self.closing.wait()
            raise web.HTTPServiceUnavailable
        self.requests.append(body["prompt"])
        self.models.add(body["model"])
        return web.json_response({"choices": [{"text": "", "prompt_logprobs": self._prompt_logprobs(body)}]})

    def _prompt_logprobs(self, body: dict[str, Any]) -> list[Any]:
        pairs = zip(body["prompt"], self.of(body["prompt"]), strict=True)
        entries = [{str(token): {"logprob": of, "rank": 1, "decoded_token": ""}} for token, of in pairs]
        return [None, *entries[1:]] if body.get("prompt_logprobs") == 0 else []
