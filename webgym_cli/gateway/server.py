"""The gateway's HTTP server: OpenAI's routes for agents, and the routes of sessions for what runs them."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from pydantic import BaseModel, ConfigDict, Field

from webgym_cli.environments.registry import find_environment
from webgym_cli.errors import BoundaryError, StoreError, UsageError
from webgym_cli.gateway.answers import build_completion, build_response, stream_completion, stream_response
from webgym_cli.gateway.recorder import Recorder, require_open
from webgym_cli.gateway.requests import ChatRequest, Model, RequestError, convert_to_chat, parse_json, validate
from webgym_cli.gateway.sessions import GatewayCall, Session
from webgym_cli.imports.chat import Reward
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.task import Task
from webgym_cli.records.trajectory import Outcome
from webgym_cli.util.local_server import LocalServer
from webgym_cli.util.secrets import read_bearer, require_token

# Environment variable of the token without which nobody may open sessions.
TOKEN_VARIABLE = "GATEWAY_TOKEN"
# Model name of calls that are not the policy's, also with a suffix (`helper-judge`), and the header with that meaning.
HELPER, HELPER_HEADER = "helper", "X-Webgym-Helper"
SESSION_HEADER = "X-Webgym-Session"
# Maximum bytes of a request, with its pictures; and of one that opens, rewards or ends a session.
MAX_BODY, _MAX_FORM = 30 * 2**20, 2**20
# Maximum number of rewards of a session, of its refused calls, and of its requests in flight, equal ones included; and
# of those of all sessions.
MAX_REWARDS, MAX_REFUSED, MAX_REQUESTS, MAX_IN_FLIGHT = 1000, 1000, 32, 1024
# Seconds that a client has to send a body.
BODY_SECONDS = 120.0
_MAX_ANSWER = 100_000


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Opening(_Form):
    task: dict[str, Any] = {"id": "session"}
    seed: int = Field(default=0, ge=0, lt=2**32)


class _Rewarding(_Form):
    reward: Reward


class _Ending(_Form):
    reward: Reward | None = None
    answer: str | None = Field(default=None, max_length=_MAX_ANSWER)
    failure: str | None = Field(default=None, max_length=_MAX_ANSWER)


class GatewayServer(LocalServer):
    """The server. Without `with_sessions` only a rollout opens sessions, and no agent can reward itself."""

    def __init__(
        self, recorder: Recorder, *, port: int = 0, host: str = "127.0.0.1", with_sessions: bool = True
    ) -> None:
        """Raises `SettingsError` for an address that others reach, without a token."""
        self._recorder = recorder
        self.in_flight: Counter[str] = Counter()
        """Number of requests that are read or answered by session, also one that was ended; equal ones are one call."""
        self._token = require_token(TOKEN_VARIABLE, host)
        self._model = recorder.settings.serve.served_model_name
        app = web.Application(client_max_size=MAX_BODY, middlewares=[_answer_errors])
        app.router.add_post("/v1/chat/completions", partial(self._answer, True))
        app.router.add_post("/v1/responses", partial(self._answer, False))
        app.router.add_get("/v1/models", self._list_models)
        app.router.add_get("/v1/models/{id}", self._list_models)
        if with_sessions:
            app.router.add_post("/sessions", self._open)
            app.router.add_post("/sessions/{id}/reward", self._reward)
            app.router.add_post("/sessions/{id}/end", self._end)
        super().__init__(app, port, host)

    @property
    def base_url(self) -> str:
        """OpenAI base URL."""
        return f"http://{self.address}/v1"

    async def _answer(self, is_chat: bool, request: web.Request) -> web.StreamResponse:
        session = self._recorder.find_session(_read_key(request))
        try:
            chat, call = await self._call(session, is_chat, request)
            response = _build_response(chat, self._complete(session, call, chat.model), is_chat=is_chat)
            # The agent may have left meanwhile; then the answer is not one that it acted on.
            is_there = request.transport is not None and not request.transport.is_closing()
            is_new = is_there and session.note_delivery(call)
        except Exception as error:
            session.refused, session.refusal = session.refused + 1, str(error)
            if isinstance(error, StoreError):
                session.error = BoundaryError(FailureKind.ENVIRONMENT_ERROR, str(error))
            raise
        session.refusal = ""
        try:
            await response.prepare(request)
            await response.write_eof()
        except ConnectionError:
            if is_new:
                session.note_loss(call)
        return response

    def _complete(self, session: Session, call: GatewayCall, model: str) -> dict[str, Any]:
        thinking = bool(self._recorder.settings.policy_config.thinking)
        return build_completion(call, session.id, model, thinking=thinking)

    def _parse(self, session: Session, is_chat: bool, body: bytes) -> ChatRequest:
        value = parse_json(body)
        if not is_chat:
            value = convert_to_chat(value, (self._complete(session, call, self._model) for call in session.calls))
        return validate(ChatRequest, value)

    async def _call(self, session: Session, is_chat: bool, request: web.Request) -> tuple[ChatRequest, GatewayCall]:
        """Return a request and its call. Raises `RequestError`."""
        limit = max(MAX_IN_FLIGHT, self._recorder.settings.rollout.concurrency or 0)
        if self.in_flight.total() >= limit:
            raise RequestError(429, f"{limit} calls of all sessions are in flight", "too_many_calls")
        if self.in_flight[session.id] >= MAX_REQUESTS:
            raise RequestError(429, f"{MAX_REQUESTS} requests of the session are in flight", "too_many_calls")
        # Refusals, as while vLLM restarts, are no steps of an episode.
        if session.refused >= MAX_REFUSED:
            raise RequestError(400, f"{MAX_REFUSED} calls of the session were refused", "step_limit")
        self.in_flight[session.id] += 1
        try:
            body = await _read(request)
            # A hostile body takes seconds, for which other sessions would wait.
            chat = await asyncio.to_thread(self._parse, session, is_chat, body)
            header = request.headers.get(HELPER_HEADER)
            helper = self._is_helper(chat.model, header)
            named = request.headers.get("Idempotency-Key", "").encode(errors="replace")
            own = [] if header is None else [HELPER_HEADER.encode()]
            digest = hashlib.sha256(b"\0".join((request.path.encode(), named, body, *own))).hexdigest()
            return chat, await self._recorder.call(session, chat, digest, helper=helper)
        finally:
            self.in_flight -= Counter((session.id,))  # without those at 0

    def _is_helper(self, model: str, header: str | None) -> bool:
        """Whether a call is a helper's. Raises `RequestError` for another model: its calls would be trained, or not."""
        if model == HELPER or model.startswith(f"{HELPER}-"):
            return True
        if model != self._model:
            message = f"the model is {self._model!r}, or {HELPER!r} for calls that are not trained"
            raise RequestError(404, message, "model_not_found")
        return header is not None

    async def _list_models(self, request: web.Request) -> web.Response:
        self._recorder.find_session(_read_key(request))
        models = [{"id": name, "object": "model", "created": 0, "owned_by": "webgym"} for name in (self._model, HELPER)]
        if (name := request.match_info.get("id")) is None:
            return web.json_response({"object": "list", "data": models})
        self._is_helper(name, None)
        return web.json_response({**models[0], "id": name})

    async def _open(self, request: web.Request) -> web.Response:
        if self._token and not hmac.compare_digest(_read_key(request).encode(), self._token.encode()):
            raise RequestError(401, f"the token of {TOKEN_VARIABLE} is needed", "invalid_api_key")
        given = await _read_body(_Opening, request)
        task = validate(Task, {"environment": "web", **given.task})
        find_environment(task.environment)
        session, key = self._recorder.open_session(task.to_storable(), given.seed)
        # By the name under which the client reached the gateway: the address it listens on may be 0.0.0.0.
        base_url = f"{request.scheme}://{request.host}/v1"
        return web.json_response({"id": session.id, "key": key, "base_url": base_url, "model": self._model})

    async def _reward(self, request: web.Request) -> web.Response:
        session, given = await self._read_own(_Rewarding, request)
        require_open(session)
        if session.rewards >= MAX_REWARDS:
            raise RequestError(400, f"the session was given {MAX_REWARDS} rewards", "too_many_rewards")
        session.record("reward", reward=given.reward)
        return web.json_response({"id": session.id, "reward": session.reward})

    async def _end(self, request: web.Request) -> web.Response:
        session, given = await self._read_own(_Ending, request)
        if given.reward is not None and session.end is None:  # a repeated end changes nothing
            session.record("reward", reward=given.reward)
        kind = None if given.failure is None else FailureKind.ENVIRONMENT_ERROR
        end = Outcome(answer=given.answer, failure=kind, failure_detail=(given.failure or "")[:1000])
        self._recorder.end(session, end.to_storable())
        return web.json_response({"id": session.id, "reward": session.reward, **session.count()})

    async def _read_own(self, model: type[Model], request: web.Request) -> tuple[Session, Model]:
        """Return the session of a request and its body. Raises `RequestError`."""
        self._find_own(request)
        given = await _read_body(model, request)
        return self._find_own(request), given  # it may have ended meanwhile

    def _find_own(self, request: web.Request) -> Session:
        """Return the session of the key, which must be the one of the path."""
        session = self._recorder.find_session(_read_key(request))
        if session.id != request.match_info["id"]:
            raise RequestError(401, "the key is of another session", "invalid_api_key")
        return session


def _build_response(chat: ChatRequest, completion: dict[str, Any], *, is_chat: bool) -> web.Response:
    if not chat.stream:
        return web.json_response(completion if is_chat else build_response(completion))
    with_usage = chat.stream_options.get("include_usage") is True
    events = stream_completion(completion, with_usage=with_usage) if is_chat else stream_response(completion)
    headers = {"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
    return web.Response(body=b"".join(events), headers=headers)


def _read_key(request: web.Request) -> str:
    return request.headers.get(SESSION_HEADER, "") or read_bearer(request.headers.get("Authorization", ""))


async def _read_body(model: type[Model], request: web.Request) -> Model:
    body = await _read(request.clone(client_max_size=_MAX_FORM))
    return validate(model, parse_json(body or b"{}"))


async def _read(request: web.BaseRequest) -> bytes:
    """Return the body. Raises `RequestError` for a client that does not send it in time."""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await request.read()
    except TimeoutError:
        raise RequestError(408, f"the body did not arrive within {BODY_SECONDS:g} s", "body_timeout") from None


@web.middleware
async def _answer_errors(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Answer each refusal in OpenAI's error form."""
    try:
        if "Origin" in request.headers:  # the user's own browser, sent by a page: loopback does not keep it out
            raise RequestError(403, "requests of web pages are refused", "web_page")
        return await handler(request)
    except RequestError as error:
        refusal = error
    except StoreError as error:  # a full disk: the call is not recorded, so it is not answered
        refusal = RequestError(503, str(error), "not_stored")
    except UsageError as error:
        refusal = RequestError(400, str(error), "invalid_value")
    except web.HTTPException as error:
        refusal = RequestError(error.status, f"{request.method} {request.path}: {error.reason}", "http_error")
    except (HttpProcessingError, web.RequestPayloadError) as error:  # a body that is not encoded as its headers say
        refusal = RequestError(400, f"the body can't be read: {error}", "http_error")
    return web.json_response(refusal.body, status=refusal.status)
