"""A gateway in this process before a server that speaks as vLLM does, with a real tokenizer's ids and no model."""

import asyncio
import base64
import io
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import chain

import httpx
from aiohttp import web
from PIL import Image

from tests.records.builders import new_run
from webgym_cli.agent.client.gate import ServedPolicy
from webgym_cli.agent.tokens.tokens import ModelTokens
from webgym_cli.config.load import load
from webgym_cli.gateway.recorder import Recorder
from webgym_cli.gateway.server import GatewayServer
from webgym_cli.records.sample import IMAGE, Message
from webgym_cli.records.sampling import PolicyVersion
from webgym_cli.rollout.agents import ModelAgent
from webgym_cli.rollout.resources import PolicyEndpoint, open_agent
from webgym_cli.store.run import RunDir
from webgym_cli.util.local_server import LocalServer

LIMITS = ("image.image_min_pixels=1024", "rollout.endpoint.retries=0", "rollout.policy_wait=0")


class Upstream(LocalServer):
    """Answers chat requests with `text`, and with the ids of prompt and answer."""

    def __init__(self, tokens: ModelTokens) -> None:
        app = web.Application(client_max_size=2**28)
        app.router.add_get("/version", self._version)
        app.router.add_post("/v1/chat/completions", self._complete)
        super().__init__(app, 0)
        self.tokens = tokens
        self.text = "It is done."
        self.pieces = []
        """What is sampled token by token; empty: the text as the tokenizer divides it."""
        self.finish_reason = "stop"
        self.bodies = []
        self.answers = 1000
        """Number of requests that it answers before it fails."""
        self.has_ids = True
        """Whether it returns the ids of prompts."""
        self.lost_images = 0
        """Number of tokens that it leaves out of each prompt, as a server that cuts a picture off."""
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.requested = asyncio.Event()

    async def _version(self, request):
        return web.json_response({"version": "0"})

    async def _complete(self, request):
        body = await request.json()
        self.bodies.append(body)
        self.requested.set()
        await self.may_answer.wait()
        if len(self.bodies) > self.answers:
            return web.Response(status=503)
        messages, sizes = read_messages(body["messages"])
        prompt = self.tokens.prompt_ids(messages, sizes)[self.lost_images :]
        ids = [*chain.from_iterable(map(self.tokens.response_ids, self.pieces or [self.text])), self.tokens.stop]
        return web.json_response(
            {
                "model": body["model"],
                "prompt_token_ids": prompt if self.has_ids else None,
                "usage": {
                    "prompt_tokens": len(prompt),
                    "completion_tokens": len(ids) + 1,
                    "prompt_tokens_details": {"cached_tokens": 1},
                },
                "choices": [
                    {
                        "message": {"role": "assistant", "content": self.text},
                        "token_ids": ids,
                        "logprobs": {"content": [{"logprob": -0.5}] * len(ids)},
                        "finish_reason": self.finish_reason,
                    }
                ],
            }
        )


def read_messages(given):
    """Return messages as the recorder stores them, and the sizes of their images."""
    messages, sizes = [], []
    for one in given:
        text = one["content"]
        if isinstance(text, list):
            for part in text:
                if part["type"] == "image_url":
                    data = base64.b64decode(part["image_url"]["url"].partition(",")[2])
                    sizes.append(Image.open(io.BytesIO(data)).size)
            text = "".join(IMAGE if part["type"] == "image_url" else part["text"] for part in text)
        messages.append(Message(role=one["role"], content=text))
    return messages, sizes


@dataclass
class World:
    """A gateway with its run, its server and a client."""

    run: RunDir
    recorder: Recorder
    server: GatewayServer
    upstream: Upstream
    client: httpx.AsyncClient
    events: list = field(default_factory=list)

    async def open(self, **body):
        answer = await self.client.post("/sessions", json={"task": {"id": "t", "instruction": "Do it."}, **body})
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def post(self, path, key, body=None, **headers):
        headers = {"Authorization": f"Bearer {key}", **headers}
        return await self.client.post(path, json={} if body is None else body, headers=headers)

    async def chat(self, key, body=None, **headers):
        return await self.post("/v1/chat/completions", key, ask() if body is None else body, **headers)


@asynccontextmanager
async def gateway(root, model, upstream=None, *overrides, **options):
    """Yield a world. `upstream`: one that runs already."""
    settings = load(overrides=[*LIMITS, f"policy_config.base_model={model}", *overrides])
    run = new_run(root, settings)
    tokens, events = ModelTokens(str(model)), []
    own = upstream or Upstream(tokens)
    if upstream is None:
        async with own, _gateway(run, settings, tokens, events, own, options) as world:
            yield world
    else:
        async with _gateway(run, settings, tokens, events, own, options) as world:
            yield world


@asynccontextmanager
async def _gateway(run, settings, tokens, events, upstream, options):
    served = ServedPolicy(version=PolicyVersion(number=0, digest="d"), name="base")
    endpoint = PolicyEndpoint(base_urls=(f"http://{upstream.address}/v1",), served=served, logprobs="processed")
    async with open_agent(run, settings, endpoint) as agent:
        assert isinstance(agent, ModelAgent)
        recorder = Recorder(run, settings, agent, tokens, events.append)
        recorder.recover()
        async with (
            GatewayServer(recorder, **options) as server,
            httpx.AsyncClient(base_url=f"http://{server.address}", timeout=30, trust_env=False) as client,
        ):
            yield World(run, recorder, server, upstream, client, events)


def picture(color="red", size=(64, 64), kind="PNG"):
    """Return an image as a data URL."""
    out = io.BytesIO()
    Image.new("RGB", size, color).save(out, kind)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(out.getvalue()).decode()}"


def ask(text="Look.", *images, **fields):
    """Return a chat request."""
    parts = [{"type": "text", "text": text}, *({"type": "image_url", "image_url": {"url": url}} for url in images)]
    return {"model": "policy", "messages": [{"role": "user", "content": parts}], **fields}
