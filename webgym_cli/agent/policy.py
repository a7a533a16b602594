"""Asks a policy: any server that speaks the OpenAI chat protocol, vLLM's additions used where they are understood."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import httpx
import openai

from webgym_cli.agent.prompt import Prompt, pieces
from webgym_cli.config.collect import PolicySettings, RolloutSettings
from webgym_cli.errors import BoundaryError, UsageError
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.sample import IMAGE, Message
from webgym_cli.records.trajectory import Generation

ImageLoader = Callable[[str], bytes]
"""SHA-256 of a screenshot -> its PNG bytes."""

PROBE_TIMEOUT = 10.0
"""Deadline of the question whether a server is vLLM, in seconds."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A policy's answer."""

    text: str
    generation: Generation


class Policy(Protocol):
    """Something that answers a prompt. Raises `BoundaryError` when it can't."""

    name: str
    """Stands in the trajectory as `policy`."""

    async def reply(self, prompt: Prompt) -> Reply:
        """Return the response to a prompt, within the policy's deadline."""
        ...


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
        self._images = images
        self._client = openai.AsyncOpenAI(
            base_url=base_url,
            api_key=api_key or "none",
            timeout=limits.policy_timeout,
            max_retries=limits.policy_retries,
        )
        self._is_vllm: bool | None = None

    async def reply(self, prompt: Prompt) -> Reply:
        """Send the prompt; the reply has token ids and log-probabilities where the server gives them."""
        request = {"messages": openai_messages(prompt, self._images), **await self._parameters()}
        try:
            return _reply(await self._client.chat.completions.create(**request))
        except (
            openai.APITimeoutError,
            openai.APIConnectionError,
            openai.InternalServerError,
            openai.RateLimitError,
        ) as error:
            raise BoundaryError(FailureKind.POLICY_UNAVAILABLE, f"{self._client.base_url}: {_reason(error)}") from error
        except openai.APIError as error:
            raise BoundaryError(FailureKind.POLICY_REFUSED, f"{self._client.base_url}: {_reason(error)}") from error
        except (AttributeError, TypeError, ValueError) as error:  # whatever listens there, it is no chat server
            message = f"{self._client.base_url}: the answer is no chat completion: {_reason(error)}"
            raise BoundaryError(FailureKind.POLICY_UNAVAILABLE, message) from error

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _parameters(self) -> dict[str, Any]:
        sampling = self._sampling
        parameters: dict[str, Any] = {
            "model": self._model,
            "max_tokens": sampling.max_new_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
        }
        if await self._knows_vllm():
            parameters["logprobs"] = True
            parameters["extra_body"] = {
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
                raise BoundaryError(FailureKind.POLICY_UNAVAILABLE, f"{root}: {_reason(error)}") from error
        return self._is_vllm


def openai_messages(prompt: Prompt, images: ImageLoader) -> list[dict[str, Any]]:
    """Return the prompt in the OpenAI chat format, images inline as data URLs."""
    left = iter(prompt.images)
    return [{"role": message.role, "content": _parts(message, left, images)} for message in prompt.messages]


def _parts(message: Message, left: Iterator[str], images: ImageLoader) -> str | list[dict[str, Any]]:
    if IMAGE not in message.content:
        return message.content
    return [
        {"type": "image_url", "image_url": {"url": _data_url(images(next(left)))}}
        if piece is None
        else {"type": "text", "text": piece}
        for piece in pieces(message)
    ]


def _data_url(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


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
    text = (choice.message.content or "").encode(errors="replace").decode()  # half a character can't be stored
    return Reply(text=text, generation=generation)


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
