"""Log-probabilities of given tokens under the policy, from vLLM's `prompt_logprobs`.

They are the model's own, before temperature and truncation (top-k, top-p, min-p).
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import openai

from webgym_cli.agent.client.chat import describe_error, openai_client
from webgym_cli.config.endpoint import EndpointSettings
from webgym_cli.errors import WebGymError
from webgym_cli.util.text import hide_passwords

HINT = (
    "run the same command again: what was scored stays. A server whose GPU ran out of memory: "
    '-s serve.extra_args=\'["--max-num-batched-tokens","2048"]\''
)
# Maximum size of an answer in bytes: it has an entry for each token of the prompt.
MAX_PROMPT_ANSWER = 64 * 2**20
# Statuses that reject a single request (such as a prompt over the context length), not the server's configuration.
_REFUSED = (400, 413)


class PromptLogprobs:
    """Client of a policy behind one or several base URLs of vLLM, used round-robin."""

    def __init__(self, endpoint: EndpointSettings, base_urls: Sequence[str] = ()) -> None:
        """Open no connection yet. `base_urls`: the run's own servers; none: the endpoint's."""
        self._model = endpoint.model
        self._requests = 0
        self._clients = [
            openai_client(
                endpoint.model_copy(update={"base_url": url}), max_answer=MAX_PROMPT_ANSWER, proxied=not base_urls
            )
            for url in base_urls or (endpoint.base_url,)
        ]

    async def of(self, prompt: Sequence[int], response: Sequence[int]) -> list[float] | None:
        """Return the natural log-probability of each response token after a prompt, both given as token ids.

        None: the server rejected the request, for example as too long. Raises `WebGymError` if it returns none.
        """
        self._requests += 1
        client = self._clients[self._requests % len(self._clients)]
        body = {
            "model": self._model,
            "prompt": [*prompt, *response],
            "max_tokens": 1,
            "temperature": 0.0,
            "prompt_logprobs": 0,
        }
        try:
            answer = await client.post("/completions", body=body, cast_to=object)
            return _read_logprobs(answer, response)
        except openai.APIStatusError as error:
            if error.status_code in _REFUSED:
                return None
            raise self._to_error(client, error) from error
        except (openai.APIError, ValueError) as error:
            raise self._to_error(client, error) from error

    async def close(self) -> None:
        """Close the connections."""
        for client in self._clients:
            await client.close()

    def _to_error(self, client: openai.AsyncOpenAI, error: Exception) -> WebGymError:
        where = hide_passwords(f"{client.base_url}").rstrip("/")
        return WebGymError(
            f"{where}: no log-probabilities of a prompt: {describe_error(error, client.api_key)}", hint=HINT
        )


def _read_logprobs(answer: Any, response: Sequence[int]) -> list[float]:
    """Return the log-probabilities of the last `len(response)` prompt tokens.

    Raises `ValueError` if the answer lacks them, has other token ids, or a value is not finite.
    """
    try:
        entries = answer["choices"][0]["prompt_logprobs"][-len(response) :]
        logprobs = [float(entry[str(id_)]["logprob"]) for id_, entry in zip(response, entries, strict=True)]
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise ValueError("the answer has no prompt_logprobs of the tokens that were sent: it is no vLLM") from error
    if not all(map(math.isfinite, logprobs)):
        raise ValueError("a log-probability is not finite")
    return logprobs


# Returns the client; a server may have to be started first.
ClientFactory = Callable[[], Awaitable[PromptLogprobs]]
