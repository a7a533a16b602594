"""Client of an outcome reward model behind an OpenAI-compatible server. vLLM also tokenizes for it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from typing import Any

import httpx
import openai

from webgym_cli.agent.client.chat import describe_error, openai_client, read_api_key, require_address
from webgym_cli.agent.prompts.orm_prompt import ANSWERS, OrmPrompt
from webgym_cli.agent.tokens.orm_tokens import (
    NO_THINKING,
    FileTokenizer,
    OrmError,
    OrmTokenizer,
    ServerTokenizer,
    fit_prompt,
    to_chat,
)
from webgym_cli.config.judge import OrmSettings
from webgym_cli.errors import SettingsError, WebGymError
from webgym_cli.records.sample import Message

# Number of likeliest tokens to request from servers without specific tokens: OpenAI's limit.
TOP_TOKENS = 20
# Seconds between two requests to a server that is being restarted.
_PAUSE = 2.0
HINT = "webgym score RUN --orm http://HOST:PORT/v1"


@dataclass(frozen=True, slots=True)
class OrmReply:
    """Result for one trajectory."""

    probability: Probability
    prompt_tokens: int
    """Length of the sent prompt in tokens, including the chat template."""
    cut: int
    """Number of omitted trajectory tokens."""


class OrmClient:
    """The model `orm.model` at `orm.base_url`."""

    def __init__(self, settings: OrmSettings, restart_timeout: float = 0.0) -> None:
        """Initialize without connecting. `restart_timeout`: seconds to wait for a server that is being restarted.

        Raises `SettingsError` without a usable `orm.base_url`.
        """
        self._restart_timeout = restart_timeout
        require_address("orm", settings.base_url, HINT)
        self._settings = settings
        self._client = openai_client(settings)
        self._root = str(self._client.base_url).rstrip("/").removesuffix("/v1")
        self._tokens: OrmTokenizer | None = None
        self._begin: dict[str, frozenset[int]] = {}
        self._first = asyncio.Lock()

    async def ask(self, prompt: OrmPrompt) -> OrmReply:
        """Return the probability that the task was solved. Raises `OrmError`; `SettingsError` without a tokenizer."""
        tokens = await self._prepare()
        fitted = await fit_prompt(prompt, tokens, self._settings)
        listed = await self._list_tokens(fitted.prompt.messages(self._settings.system_prompt))
        probability = compute_probability(listed, self._name_tokens(YES), self._name_tokens(NO))
        return OrmReply(probability, fitted.count, fitted.cut)

    async def call(self, path: str, body: Mapping[str, Any]) -> Any:
        """Return the response of a vLLM-specific endpoint. Raises `OrmError`."""
        return await self._post(f"{self._root}/{path}", {"model": self._settings.model, **body})

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _prepare(self) -> OrmTokenizer:
        """Find the tokenizer and the first tokens of the answers, once."""
        async with self._first:
            if self._tokens is None:
                tokens: OrmTokenizer = ServerTokenizer(self.call)
                try:
                    spelled = {one: await tokens.ids(one) for of_one in SPELLINGS.values() for one in of_one}
                    self._begin = find_first_tokens(spelled)
                except OrmError as error:
                    if not self._lacks_tokenizer(error.__cause__):
                        raise
                    tokens = await asyncio.to_thread(self._by_files)
                self._tokens = tokens
        return self._tokens

    async def _list_tokens(self, messages: Sequence[Message]) -> list[tuple[str, float]]:
        body: dict[str, Any] = {
            "model": self._settings.model,
            "messages": to_chat(messages),
            "max_tokens": 1,
            "temperature": 1.0,
            "top_p": 1.0,
            "logprobs": True,
            "top_logprobs": TOP_TOKENS,
        }
        if self._begin:
            body |= {
                "logprob_token_ids": sorted(self._begin[YES] | self._begin[NO]),
                "return_tokens_as_token_ids": True,
                "chat_template_kwargs": NO_THINKING,
            }
        answer = await self._post("/chat/completions", body)
        try:
            first = answer["choices"][0]["logprobs"]["content"][0]
            return [(str(one["token"]), float(one["logprob"])) for one in first["top_logprobs"]]
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise OrmError("the server gives no log-probabilities with its answer") from error

    def _lacks_tokenizer(self, error: BaseException | None) -> bool:
        """Whether a server lacks this endpoint, as opposed to an unknown model, which has the same status code."""
        lacks = isinstance(error, openai.APIStatusError) and error.status_code in (404, 405)
        return lacks and self._settings.model not in str(error)

    def _by_files(self) -> OrmTokenizer:
        """Return the tokenizer from the model's files. Raises `SettingsError`."""
        model = self._settings.model
        try:
            return FileTokenizer(model)
        except SettingsError as error:
            raise SettingsError(
                f"orm.model: the server does not count tokens, and {model!r} has no tokenizer that could: {error}",
                hint="serve the model with vLLM, or under the name of its folder or hub id",
            ) from error

    def _name_tokens(self, answer: str) -> frozenset[str]:
        ids = self._begin.get(answer)
        return frozenset(SPELLINGS[answer] if ids is None else (f"token_id:{one}" for one in ids))

    async def _post_patiently(self, path: str, body: Mapping[str, Any]) -> Any:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._restart_timeout
        while True:
            try:
                return await self._client.post(path, body=dict(body), cast_to=object)
            except openai.APIConnectionError:
                if loop.time() >= deadline:
                    raise
                await asyncio.sleep(_PAUSE)

    async def _post(self, path: str, body: Mapping[str, Any]) -> Any:
        try:
            return await self._post_patiently(path, body)
        except openai.APIError as error:
            where = f"{self._settings.base_url}: {describe_error(error, self._client.api_key)}"
            raise OrmError(where, unavailable=True) from error
        except (ValueError, RecursionError) as error:
            raise OrmError(
                f"{self._settings.base_url}: the answer is no JSON: {describe_error(error)}", unavailable=True
            ) from error


def query_served_model(settings: OrmSettings) -> str:
    """Return the name of a server's single model. Raises `SettingsError` if it has several or is no such server."""
    require_address("orm", settings.base_url, HINT)
    key = read_api_key(settings.api_key_env_var)
    try:
        with ThreadPoolExecutor(1) as thread:  # this thread may already run an event loop
            names = thread.submit(lambda: asyncio.run(_list_models(settings))).result()
    except (openai.APIError, httpx.HTTPError, ValueError, AttributeError, TypeError, RecursionError) as error:
        raise WebGymError(
            f"orm.base_url: {settings.base_url} does not tell its models: {describe_error(error, key)}",
            hint="start the server, or name the model: -s orm.model=NAME",
        ) from error
    if len(names) != 1:
        raise SettingsError(
            f"orm.base_url: {settings.base_url} has {len(names)} models: {', '.join(names[:5])}",
            hint="choose one: -s orm.model=NAME",
        )
    return names[0]


async def _list_models(settings: OrmSettings) -> list[str]:
    async with openai_client(settings) as client:
        return [model.id async for model in client.models.list()]


YES, NO = ANSWERS
# Log-probabilities of servers may exceed 0 by rounding.
_ROUNDING = 0.01
# Accepted spellings of each answer; the first one is requested.
SPELLINGS = {
    answer: tuple(f"{space}{form}" for form, space in product((answer, answer.capitalize(), answer.lower()), ("", " ")))
    for answer in ANSWERS
}


@dataclass(frozen=True, slots=True)
class Probability:
    """Output of the reward model for a trajectory."""

    yes: float
    """P(YES) among YES and NO."""
    mass: float
    """P(YES) + P(NO) among all tokens; a small value means that the model did not understand the question."""


def find_first_tokens(spelled: Mapping[str, Sequence[int]]) -> dict[str, frozenset[int]]:
    """Return the first tokens of each answer from the token ids of all spellings.

    These are the first token of the requested spelling, which a model is trained to produce, and other spellings of a
    single token. Raises `OrmError` if both answers start with the same token.
    """
    tokens_by_answer: dict[str, set[int]] = {}
    for answer, spellings in SPELLINGS.items():
        single = {spelled[spelling][0] for spelling in spellings if len(spelled[spelling]) == 1}
        tokens_by_answer[answer] = single | set(spelled[spellings[0]][:1])
    shared = tokens_by_answer[YES] & tokens_by_answer[NO]
    if not (tokens_by_answer[YES] - shared and tokens_by_answer[NO] - shared):
        raise OrmError("the model's tokenizer begins YES and NO with the same token")
    return {answer: frozenset(ids - shared) for answer, ids in tokens_by_answer.items()}


def compute_probability(listed: Iterable[tuple[str, float]], yes: Collection[str], no: Collection[str]) -> Probability:
    """Return P(YES) from the tokens listed by a server with their natural log-probabilities.

    An unlisted answer is less likely than all listed tokens: NO then gets the probability of the least likely listed
    token and YES gets 0, so that nothing succeeds because of an omission. Raises `OrmError` if both are missing.
    """
    tokens = list(listed)
    if not all(logprob <= _ROUNDING for _, logprob in tokens):
        raise OrmError("a log-probability is no number, or above 0")
    for_yes = math.fsum(math.exp(logprob) for token, logprob in tokens if token in yes)
    for_no = math.fsum(math.exp(logprob) for token, logprob in tokens if token in no)
    if not for_yes + for_no:
        words = ", ".join(repr(token) for token, _ in sorted(tokens, key=lambda one: -one[1])[:3])
        raise OrmError(f"neither YES nor NO is among the answer's likely tokens ({words or 'none is listed'})")
    bound = for_no or min(math.exp(logprob) for _, logprob in tokens)
    return Probability(yes=for_yes / (for_yes + bound), mass=min(1.0, for_yes + for_no))
