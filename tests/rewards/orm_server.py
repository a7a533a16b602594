"""A server that speaks vLLM's protocol of tokens and log-probabilities, for the tests of the outcome reward model.

A token is a run of characters or a run of white space, so texts and ids go back and forth without loss.
"""

import math
import re
from collections import deque
from typing import Any

from aiohttp import web

from tests.json_server import completion
from webgym_cli.util.local_server import LocalServer

MODEL = "an-orm"
FRAME = 10
"""Tokens of the chat's own, whatever it says."""


class OrmServer(LocalServer):
    """An async context manager. `vllm`: whether it has a tokenizer to ask and finds tokens by their ids."""

    def __init__(self, *, vllm: bool = True, max_model_len: int = 4096, models: tuple[str, ...] = (MODEL,)) -> None:
        app = web.Application()
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", self._complete)
        if vllm:
            app.router.add_post("/tokenize", self._tokenize)
            app.router.add_post("/detokenize", self._detokenize)
        super().__init__(app, 0)
        self.max_model_len = max_model_len
        self.models = models
        self.requests: list[dict[str, Any]] = []
        """The questions so far: each a chat request."""
        self.tokenized = 0
        self.answers: deque[dict[str, float] | int] = deque()
        """What the next questions get: the probability of each first token, or an HTTP status."""
        self.usual: dict[str, float] = {"YES": 0.6, "NO": 0.2}
        self._ids: dict[str, int] = {}

    @property
    def base_url(self) -> str:
        return f"http://{self.address}/v1"

    @property
    def prompts(self) -> list[str]:
        """What the model read of each trajectory."""
        return [request["messages"][1]["content"] for request in self.requests]

    def id_of(self, token: str) -> int:
        return self._ids.setdefault(token, len(self._ids) + 100)

    def ids_of(self, text: str) -> list[int]:
        return [self.id_of(token) for token in re.findall(r"\s+|\S+", text)]

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": name, "object": "model"} for name in self.models]})

    async def _tokenize(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.tokenized += 1
        if body["model"] not in self.models:
            return _refused(404, f"The model `{body['model']}` does not exist.")
        texts = [message["content"] for message in body["messages"]] if "messages" in body else [body["prompt"]]
        ids = [token for text in texts for token in self.ids_of(text)]
        ids += [0] * FRAME if "messages" in body else []
        return web.json_response({"count": len(ids), "max_model_len": self.max_model_len, "tokens": ids})

    async def _detokenize(self, request: web.Request) -> web.Response:
        texts = {number: token for token, number in self._ids.items()}
        tokens = (await request.json())["tokens"]
        return web.json_response({"prompt": "".join(texts[token] for token in tokens)})

    async def _complete(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.requests.append(body)
        result = self.answers.popleft() if self.answers else self.usual
        if isinstance(result, int):
            return _refused(result, "scripted")
        listed = {self._named(token, body): math.log(share) for token, share in result.items()}
        if wanted := body.get("logprob_token_ids"):
            listed = {name: listed[name] for name in (f"token_id:{token}" for token in wanted) if name in listed}
        tops = [{"token": token, "logprob": logprob, "bytes": []} for token, logprob in listed.items()]
        first = {"token": "?", "logprob": -1.0, "bytes": [], "top_logprobs": tops}
        logprobs = {"content": [first]} if result else None
        return web.json_response(completion("?", finish_reason="length", logprobs=logprobs))

    def _named(self, token: str, body: dict[str, Any]) -> str:
        return f"token_id:{self.id_of(token)}" if body.get("return_tokens_as_token_ids") else token


def _refused(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message}}, status=status, headers={"retry-after-ms": "1"})
