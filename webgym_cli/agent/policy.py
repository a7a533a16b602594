"""Asks a policy: any server that speaks the OpenAI chat protocol, vLLM's additions used where they are understood."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import httpx
import openai

from webgym_cli.agent.prompt import Prompt
from webgym_cli.agent.reply import Reply
from webgym_cli.agent.thoughts import rejoined
from webgym_cli.agent.wire import EncodedImages, ImageLoader, request_body
from webgym_cli.config.collect import PolicySettings, RolloutSettings
from webgym_cli.errors import BoundaryError, UsageError
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.trajectory import Generation

_REASON = 300
"""Characters of a server's words that are kept."""
PROBE_TIMEOUT = 10.0
"""Deadline of the question whether a server is vLLM, in seconds."""


class ChatPolicy:
    """A policy behind an OpenAI-compatible base URL."""

    def __init__(
        self,
        base_url: str,
        model: str,
        sampling: PolicySettings,
        limits: RolloutSettings,
        images: ImageLoader,
        *,
        name: str = "",
        api_key: str = "",
    ) -> None:
        try:
            httpx.URL(base_url)
        except httpx.InvalidURL as error:
            raise UsageError(f"rollout.policy: {base_url!r} is no address: {error}") from error
        self.name = name or model
        self._model = model
        self._sampling = sampling
        self._images = EncodedImages(images)
        self._client = openai.AsyncOpenAI(
            base_url=base_url,
            api_key=api_key or "none",
            timeout=limits.policy_timeout,
            max_retries=limits.policy_retries,
        )
        self._is_vllm: bool | None = None
        self._secret = api_key

    async def reply(self, prompt: Prompt) -> Reply:
        """Send the prompt; the reply has token ids and log-probabilities where the server gives them."""
        from openai.types.chat import ChatCompletion

        body = request_body(prompt, self._images, await self._parameters())
        try:
            # The client's typed method would walk through the whole request again, at several times the cost.
            return _reply(await self._client.post("/chat/completions", cast_to=ChatCompletion, content=body))
        except (
            openai.APITimeoutError,
            openai.APIConnectionError,
            openai.InternalServerError,
            openai.RateLimitError,
        ) as error:
            raise self._failed(FailureKind.POLICY_UNAVAILABLE, error) from error
        except openai.APIError as error:
            raise self._failed(FailureKind.POLICY_REFUSED, error) from error
        except (AttributeError, TypeError, ValueError) as error:  # whatever listens there, it is no chat server
            raise self._failed(FailureKind.POLICY_UNAVAILABLE, error, "the answer is no chat completion: ") from error

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    def _failed(self, kind: FailureKind, error: Exception, what: str = "") -> BoundaryError:
        reason = _reason(error)
        if self._secret:
            reason = reason.replace(self._secret, "[key]")  # some servers repeat the key that they refuse
        return BoundaryError(kind, f"{self._client.base_url}: {what}{reason[:_REASON]}")

    async def _parameters(self) -> dict[str, Any]:
        sampling = self._sampling
        parameters: dict[str, Any] = {
            "model": self._model,
            "max_tokens": sampling.max_new_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
        }
        if await self._knows_vllm():
            parameters |= {
                "logprobs": True,
                "top_k": sampling.top_k if sampling.top_k > 0 else -1,
                "min_p": sampling.min_p,
                "return_token_ids": True,
            }
        return parameters

    async def _knows_vllm(self) -> bool:
        """Ask once whether the server is vLLM: others refuse parameters that they don't know."""
        if self._is_vllm is None:
            root = str(self._client.base_url).rstrip("/").removesuffix("/v1")
            try:
                async with httpx.AsyncClient(timeout=PROBE_TIMEOUT) as client:
                    answer = await client.get(f"{root}/version")
                self._is_vllm = answer.status_code == 200 and '"version"' in answer.text
            except httpx.HTTPError as error:
                raise BoundaryError(FailureKind.POLICY_UNAVAILABLE, f"{root}: {_reason(error)[:_REASON]}") from error
        return self._is_vllm


def token_digest(ids: Sequence[int]) -> str:
    """Return the SHA-256 of token ids written as decimals with commas between."""
    return hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()


def _reply(answer: Any) -> Reply:
    if not answer.choices:
        raise ValueError("no choice")
    choice = answer.choices[0]
    prompt_ids = getattr(answer, "prompt_token_ids", None)
    ids = getattr(choice, "token_ids", None)
    logprobs = choice.logprobs.content if choice.logprobs else None
    generation = Generation(
        prompt_tokens=answer.usage.prompt_tokens if answer.usage else None,
        prompt_token_digest=token_digest(prompt_ids) if prompt_ids else None,
        token_ids=tuple(ids) if ids else None,
        logprobs=tuple(entry.logprob for entry in logprobs) if logprobs else None,
        finish_reason=choice.finish_reason,
    )
    text = _text(choice).encode(errors="replace").decode()  # half a character can't be stored
    return Reply(text=text, generation=generation)


def _text(choice: Any) -> str:
    """Return what was generated: with the thought in front where a reasoning parser told it apart."""
    message = choice.message
    content: str | None = message.content
    thought = getattr(message, "reasoning_content", None) or getattr(message, "reasoning", None)
    if isinstance(thought, str) and thought:
        return rejoined(thought, content, truncated=choice.finish_reason == "length")
    return content or ""


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
