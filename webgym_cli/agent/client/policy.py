"""Client of the policy: any OpenAI-compatible chat server. vLLM's extensions are used if the server is vLLM."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import httpx
import openai

from webgym_cli.agent.client.chat import describe_error, openai_client
from webgym_cli.agent.client.chat_request import EncodedImages, build_request_body
from webgym_cli.agent.forms.reasoning import join_reasoning
from webgym_cli.agent.prompt import PolicyReply, Prompt
from webgym_cli.config.endpoint import EndpointSettings
from webgym_cli.config.policy_config import PolicySettings
from webgym_cli.errors import BoundaryError, UsageError
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.sampling import Logprobs, Sampling
from webgym_cli.records.trajectory import Generation
from webgym_cli.records.usage import read_usage
from webgym_cli.tasks.encryption import NOT_STORED
from webgym_cli.util.http_client import BoundedClient
from webgym_cli.util.text import replace_surrogates

# Timeout of a probe, in seconds: of the server's version, and of one generated token.
PROBE_TIMEOUT = 10.0
# Statuses below 500 after which the same request may succeed later.
_RETRYABLE_STATUSES = (408, 409, 425, 429)
# Statuses of a server that would refuse every request: redirected, wrong key, no credit, wrong model or wrong path, or
# of a proxy before it that asks for another password.
_MISCONFIGURED_STATUSES = (301, 302, 303, 307, 308, 401, 402, 403, 404, 405, 407)
# `finish_reason` of a reply that the server did not finish (vLLM's, OpenRouter's, DeepSeek's, Zhipu's), or withheld.
_ABORTED = ("abort", "error", "insufficient_system_resource", "network_error")
_FILTERED = ("content_filter", "sensitive")
# Maximum length of a reply in characters per allowed token, about four times the usual length: a server that ignores
# `max_tokens` must not fill the buffer.
_CHARACTERS_PER_TOKEN = 16
# Characters of a model's name that are stored.
_MODEL_LIMIT = 200
# vLLM raises temperatures between 0 and this value to this value.
_MIN_TEMPERATURE = 0.01


class ServerMisconfiguredError(BoundaryError):
    """The server refuses every request (wrong key, model or path); another server may answer this one."""


class ChatPolicy:
    """A policy behind an OpenAI-compatible base URL."""

    def __init__(
        self,
        endpoint: EndpointSettings,
        settings: PolicySettings,
        images: EncodedImages,
        *,
        name: str = "",
        logprobs: Logprobs | None = None,
    ) -> None:
        """`logprobs`: distribution of the server's log-probabilities, known only of webgym's own servers, which are
        never behind a proxy. Raises `UsageError` for a bad URL."""
        try:
            url = httpx.URL(endpoint.base_url)
        except httpx.InvalidURL as error:
            raise UsageError(f"rollout.policy: {endpoint.base_url!r} is no address: {error}") from error
        self.name = name or endpoint.model
        self.address = str(url.copy_with(userinfo=b"", query=None)).rstrip("/")
        """The base URL without credentials and query, for messages."""
        self._model = endpoint.model
        self._settings = settings
        self._logprobs = logprobs
        self._images = images
        self._proxied = logprobs is None
        # The load balancer retries, on another server.
        self._client = openai_client(endpoint.model_copy(update={"retries": 0}), proxied=self._proxied)
        self._query = dict(url.params)
        self._is_vllm: bool | None = None

    async def reply(self, prompt: Prompt) -> PolicyReply:
        """Send the prompt; the reply has token ids and log-probabilities if the server returns them."""
        parameters = await self._parameters(prompt)
        body = build_request_body(prompt, self._images, parameters)
        reply = await self._send(body, parameters["model"], self._client, private=prompt.private)
        # A reply that the server aborts, for a weight update or its shutdown, is partial and no action.
        if (finish := reply.generation.finish_reason) in _ABORTED:
            raise BoundaryError(FailureKind.POLICY_UNAVAILABLE, f"{self.address}: the server broke the reply off")
        if finish in _FILTERED:  # what is left of it is no action of the policy either
            raise BoundaryError(FailureKind.POLICY_REFUSED, f"{self.address}: the server's filter withheld the reply")
        ids, most = reply.generation.token_ids, self._settings.max_new_tokens
        limit = _CHARACTERS_PER_TOKEN * most
        # A token may have more characters: some of the tiny model's are whole sentences.
        if len(reply.text) <= limit or (ids is not None and len(ids) <= most):
            return reply
        # Much longer than allowed: as one that reached its limit, without its tokens.
        update = {"token_ids": None, "logprobs": None, "finish_reason": "length"}
        return PolicyReply(text=reply.text[:limit], generation=reply.generation.model_copy(update=update))

    async def answers(self) -> bool:
        """Whether the server generates a token within `PROBE_TIMEOUT`, or refuses the request as such.

        A server whose engine hangs still answers `/health` with 200.
        """
        probe = {"model": self._model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
        try:
            client = self._client.with_options(timeout=PROBE_TIMEOUT)
            await self._send(json.dumps(probe).encode(), self._model, client)
        except BoundaryError as error:
            return error.kind is FailureKind.POLICY_REFUSED
        return True

    async def _send(self, body: bytes, model: str, client: openai.AsyncOpenAI, *, private: bool = False) -> PolicyReply:
        try:
            # The client's typed method would traverse the whole request again, at several times the cost.
            answer = await client.post("/chat/completions", cast_to=httpx.Response, content=body)
            # An answer of 16 MB takes seconds: other episodes must not wait for it.
            return await asyncio.to_thread(_read_reply, answer, model)
        except openai.APIError as error:
            # A server that is unavailable, or set up wrongly, or one that rejects the request for good.
            status = getattr(error, "status_code", 0)  # a lost connection has none
            passing = status >= 500 or status in (*_RETRYABLE_STATUSES, *_MISCONFIGURED_STATUSES)
            down = isinstance(error, openai.APIConnectionError) or passing
            kind = FailureKind.POLICY_UNAVAILABLE if down else FailureKind.POLICY_REFUSED
            raise self._to_boundary_error(kind, error, private=private) from error
        except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:  # no chat server
            raise self._to_boundary_error(
                FailureKind.POLICY_UNAVAILABLE, error, "the answer is no chat completion: ", private=private
            ) from error

    def sampling(self, *, greedy: bool) -> Sampling:
        """Return the sampling parameters of the requests. A server that was not probed yet is taken for vLLM."""
        settings = self._settings
        if greedy:
            return Sampling(temperature=0.0, logprobs=self._logprobs)
        if self._is_vllm is False:
            return Sampling(temperature=settings.temperature, top_p=settings.top_p, logprobs=self._logprobs)
        return Sampling(
            temperature=max(settings.temperature, _MIN_TEMPERATURE) if settings.temperature else 0.0,
            top_k=settings.top_k if settings.top_k > 0 else -1,
            top_p=settings.top_p,
            min_p=settings.min_p,
            logprobs=self._logprobs,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    def _to_boundary_error(
        self, kind: FailureKind, error: Exception, what: str = "", *, private: bool = False
    ) -> BoundaryError:
        reason = describe_error(error, self._client.api_key)
        if private:
            reason = f"{getattr(error, 'status_code', type(error.__cause__ or error).__name__)}: {NOT_STORED}"
        astray = isinstance(error, openai.APIStatusError) and error.status_code in _MISCONFIGURED_STATUSES
        return (ServerMisconfiguredError if astray else BoundaryError)(kind, f"{self.address}: {what}{reason}")

    async def _parameters(self, prompt: Prompt) -> dict[str, Any]:
        if self._is_vllm is None:  # other servers reject unknown parameters
            root = str(self._client.base_url).rstrip("/").removesuffix("/v1")
            try:
                async with BoundedClient(timeout=PROBE_TIMEOUT, trust_env=self._proxied) as client:
                    answer = await client.get(f"{root}/version", params=self._query)
                self._is_vllm = answer.status_code == 200 and '"version"' in answer.text
            except httpx.HTTPError as error:
                raise self._to_boundary_error(FailureKind.POLICY_UNAVAILABLE, error) from error
        sampling = self.sampling(greedy=prompt.greedy)
        parameters: dict[str, Any] = {
            **prompt.fields,
            "model": prompt.model or self._model,
            "max_tokens": self._settings.max_new_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
        }
        if self._is_vllm:
            parameters |= {"logprobs": True, "return_token_ids": True}
            parameters |= {"top_k": sampling.top_k, "min_p": sampling.min_p}
            if prompt.seed is not None and sampling.temperature:
                parameters["seed"] = prompt.seed
        return parameters


def digest_tokens(ids: Sequence[int]) -> str:
    """Return the SHA-256 of token ids as comma-separated decimals."""
    return hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()


def _read_reply(response: httpx.Response, model: str) -> PolicyReply:
    try:
        answer: Any = response.json()
    except ValueError as error:
        raise ValueError(response.text) from error
    if not answer.get("choices"):
        raise ValueError("no choice")
    choice = answer["choices"][0]
    prompt_ids, ids = answer.get("prompt_token_ids"), choice.get("token_ids")
    logprobs = (choice.get("logprobs") or {}).get("content")
    # Servers answer for an alias with its dated release: for `NAME` with `NAME-2026-01-31`.
    named = replace_surrogates(str(answer.get("model") or model))[:_MODEL_LIMIT]
    usage = read_usage(answer)
    generation = Generation(
        prompt_tokens=usage.prompt or None,
        cached_tokens=usage.cached,
        completion_tokens=usage.completion,
        prompt_token_digest=digest_tokens(prompt_ids) if prompt_ids else None,
        token_ids=tuple(ids or ()) or None,
        logprobs=tuple(entry["logprob"] for entry in logprobs or ()) or None,
        finish_reason=choice.get("finish_reason"),
        other_model=None if named.startswith(model) else named,
    )
    text = replace_surrogates(_read_text(choice))
    return PolicyReply(text=text, generation=generation)


def _read_text(choice: Any) -> str:
    """Return the generated text, with the reasoning in front if the server's parser split it off."""
    message = choice["message"]
    thoughts, content = (message.get("reasoning_content"), message.get("reasoning")), message.get("content")
    if isinstance(content, list):  # Mistral's: parts, of which those with a text count
        texts = (part.get("text") if isinstance(part, Mapping) else part for part in content)
        content = "".join(text for text in texts if isinstance(text, str))
    text = join_reasoning(content, *thoughts, truncated=choice.get("finish_reason") == "length")
    return text or message.get("refusal") or ""
