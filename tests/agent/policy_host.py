"""A policy server of this process that does as it is told: answers, waits, fails, dies and comes back."""

import asyncio

from aiohttp import web

from tests.json_server import completion
from tests.records.builders import png, shot
from webgym_cli.agent.client.chat_request import EncodedImages
from webgym_cli.agent.client.load_balancer import BalancedPolicy
from webgym_cli.agent.client.policy import ChatPolicy
from webgym_cli.agent.prompt import render
from webgym_cli.config.policy_config import PolicySettings
from webgym_cli.config.rollout import RolloutSettings
from webgym_cli.records.trajectory import Observation, PromptSpec

PROMPT = render(PromptSpec(), "Do it.", "http://a/", [], Observation(url="http://a/", screenshot=shot(0)))
KEY = "secret-key"


class Host:
    """One server on loopback, at the same port whenever it runs."""

    def __init__(self, name="host", content="Hi."):
        self.name = name
        self.content = content
        self.model = "policy"
        self.status = 200
        """Of the answers to chat requests."""
        self.statuses = []
        """Of the next answers, before `status` holds."""
        self.health = 200
        """Status of the answers to probes."""
        self.gate = asyncio.Event()
        """Requests wait for it."""
        self.gate.set()
        self.pace = None
        """Awaited before each answer."""
        self.received = self.answered = self.probed = 0
        self.log = []
        """Names of hosts in the order of the requests; several hosts may share one."""
        self._news = asyncio.Condition()
        self._runner = None
        self._port = 0

    @property
    def url(self):
        return f"http://127.0.0.1:{self._port}/v1"

    async def start(self):
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_get("/version", self._version)
        self._runner = web.AppRunner(app, shutdown_timeout=0.01)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port, reuse_address=True).start()
        self._port = self._runner.addresses[0][1]

    async def stop(self):
        if self._runner:
            await self._runner.cleanup()
            self._runner = None

    async def until(self, holds):
        """Wait for something that requests, answers or probes bring about."""
        async with asyncio.timeout(30), self._news:
            await self._news.wait_for(holds)

    async def tell(self):
        """Have those look again who wait."""
        async with self._news:
            self._news.notify_all()

    async def _version(self, request):
        return web.json_response({}, status=404)

    async def _complete(self, request):
        self.body = await request.json()
        if self.body["max_tokens"] == 1:
            return await self._probe()
        self.received += 1
        self.log.append(self.name)
        await self.tell()
        await self.gate.wait()
        if self.pace:
            await self.pace()
        status = self.statuses.pop(0) if self.statuses else self.status
        if status != 200:
            return web.json_response({"error": {"message": f"no, not with {KEY}"}}, status=status)
        self.answered += 1
        await self.tell()
        return self._completion()

    def _completion(self):
        return web.json_response(completion(self.content) | {"model": self.model})

    async def _probe(self):
        self.probed += 1
        await self.tell()
        await self.gate.wait()
        return self._completion() if self.health == 200 else web.json_response({}, status=self.health)


def balanced(*hosts, started=False, **limits):
    """Return a policy over these servers, made as a rollout makes it."""
    requests = {name: limits.pop(name) for name in ("timeout", "retries") if name in limits}
    endpoint = {"timeout": 10, "api_key_env_var": "POLICY_HOST_KEY", **requests}
    settings = RolloutSettings.model_validate({"endpoint": endpoint, **limits})
    images = EncodedImages({shot(0).sha256: png(0)}.__getitem__)
    chats = [ChatPolicy(settings.build_endpoint(host.url, "policy"), PolicySettings(), images) for host in hosts]
    return BalancedPolicy(chats, settings, started=started)
