"""A scripted judge over real HTTP: for tests, and for a demonstration without any model.

It speaks the OpenAI chat protocol and reads the questions of `rewards/judge`, but it sees no picture. It decides by
plain rules over the text in the question's fence, the same for the same question:

- key point: a word of the task stands in the page's title or address;
- blocking: a title or address speaks of a captcha, denied access or a check of the browser;
- claims: there is an answer;
- a task with quoted names that was carried out: each of its items stands in the answer or in the last page's title;
- any other fact: each of its items (quoted, numeric or capitalised; else its longer words) stands in the answer or in
  the titles, actions and notes of the steps; one of the alternatives is enough;
- reference: the answer equals one of the alternatives, apart from case, spaces and punctuation;
- any other question, of a protocol of one's own: there is an answer.

So it is no judge of anything real, and says so in each reason. It also makes new tasks and tells whether one can be
done, by the rules of `scripted_tasks.py`: the questions of `tasks/generate_prompt.py`.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from aiohttp import web

from webgym_cli.errors import UsageError
from webgym_cli.rewards.judge.scripted_tasks import feasible, new_tasks
from webgym_cli.rewards.judge.webgym import CARRIED_OUT

# The one model that it lists; it answers to any name.
MODEL = "scripted-judge"
# So many of the newest questions are kept in `asked`.
KEPT_QUESTIONS = 10_000
# The job that asks for new tasks, not for a verdict.
GENERATE = "generate"
# Bytes: some dozens of screenshots.
LARGEST_REQUEST = 256 * 2**20

_SHUT_OUT = re.compile(
    r"captcha|access denied|forbidden|are you (?:a )?(?:human|robot)|verify(?:ing)? you are human|unusual traffic"
    r"|checking your browser|just a moment|attention required",
    re.IGNORECASE,
)
_FENCED = re.compile(r"<data>\n(.*?)\n</data>", re.DOTALL)
_QUOTED = re.compile(r"\"([^\"]+)\"|“([^”]+)”|`([^`]+)`|(?<!\w)'([^']+)'(?!\w)")
_NAMED = re.compile(r"\d+(?:[.,:]\d+)*|(?<!^)\b[A-Z]\w+")
_WORD = re.compile(r"\w{4,}")


@dataclass(frozen=True, slots=True)
class ScriptedReply:
    """One reply that is given in place of a decision."""

    content: str | None = None
    """The text of the message; None: none at all."""
    finish_reason: str = "stop"
    status: int = 200
    """HTTP status; with another one than 200 there is no completion."""
    body: bytes | None = None
    """The whole body, sent as it is."""
    silent: bool = False
    """Never answer: the request stays open until the client or the server closes it."""


@dataclass(frozen=True, slots=True)
class ReceivedQuestion:
    """A question as it arrived."""

    job: str
    data: Mapping[str, Any]
    """The fenced fields."""
    images: tuple[str, ...]
    """The pictures' data URLs."""
    request: Mapping[str, Any]
    """The request without its messages."""
    authorization: str


@dataclass(slots=True)
class ScriptedJudgeServer:
    """The server, on the loopback interface. An async context manager; raises `UsageError` for a port that is taken."""

    port: int = 0
    """Where to listen; 0 takes a free port."""
    asked: deque[ReceivedQuestion] = field(default_factory=lambda: deque(maxlen=KEPT_QUESTIONS))
    """The questions so far, oldest first."""
    _scripts: dict[str, deque[ScriptedReply]] = field(default_factory=dict)
    _runner: web.AppRunner | None = None
    _port: int = 0
    _closed: asyncio.Event = field(default_factory=asyncio.Event)
    _arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def base_url(self) -> str:
        """What `judge.base_url` is set to."""
        return f"http://127.0.0.1:{self._port}/v1"

    def script(self, *replies: ScriptedReply | str, job: str = "") -> None:
        """Answer the next questions (of this job) by these replies; a text is the content of a finished message."""
        queue = self._scripts.setdefault(job, deque())
        queue.extend(ScriptedReply(reply) if isinstance(reply, str) else reply for reply in replies)

    async def arrived(self, count: int, job: str = "") -> None:
        """Wait until so many questions (of this job) have arrived."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: sum(job in ("", question.job) for question in self.asked) >= count)

    async def __aenter__(self) -> ScriptedJudgeServer:
        """Start listening."""
        app = web.Application(client_max_size=LARGEST_REQUEST)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", self._complete)
        self._runner = web.AppRunner(app, shutdown_timeout=1.0)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        except OSError as error:
            await self._runner.cleanup()
            message = f"port {self.port} of 127.0.0.1 can't be listened on: {error.strerror or error}"
            raise UsageError(message, hint="choose another port; 0 takes a free one") from error
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop, also what is still open."""
        self._closed.set()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "webgym"}]})

    async def _complete(self, request: web.Request) -> web.Response:
        try:
            question = _read(await request.json(), request.headers.get("Authorization", ""))
            usual = decide(question.job, question.data)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            return _refuse(400, f"not a question of webgym's judge: {error!r}")
        async with self._arrived:
            self.asked.append(question)
            self._arrived.notify_all()
        scripted = self._next_script(question.job)
        if scripted is None:
            return web.json_response(_completion(question, json.dumps(usual), "stop"))
        if scripted.silent:
            await self._closed.wait()
        if scripted.body is not None:
            return web.Response(body=scripted.body, status=scripted.status, content_type="application/json")
        if scripted.status != 200:
            return _refuse(scripted.status, "scripted")
        return web.json_response(_completion(question, scripted.content, scripted.finish_reason))

    def _next_script(self, job: str) -> ScriptedReply | None:
        queue = self._scripts.get(job) or self._scripts.get("")
        return queue.popleft() if queue else None


def decide(job: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reply to a question. Raises `KeyError` for a field that is missing."""
    if job == GENERATE:
        return new_tasks(data)
    yes = _RULES.get(job, _is_answered)(data)
    return {"reason": f"By a rule over the question's text, no picture was looked at: {job}.", "verdict": _VERDICT[yes]}


_VERDICT = {True: "yes", False: "no"}


def _key_point(data: Mapping[str, Any]) -> bool:
    page = f"{data['page']['title']} {data['page']['url']}".casefold()
    return any(word.casefold() in page for word in _WORD.findall(data["task"]))


def _blocking(data: Mapping[str, Any]) -> bool:
    last = data["pages"][-1]
    return bool(_SHUT_OUT.search(f"{last['title']} {last['url']}"))


def _is_answered(data: Mapping[str, Any]) -> bool:
    return bool(data["answer"].strip())


def _fact(data: Mapping[str, Any]) -> bool:
    if data["fact"].startswith(CARRIED_OUT) and _QUOTED.search(data["fact"]):
        shown = data["steps"][-1].get("title", "") if data["steps"] else ""
        return _all_in(_items(data["fact"].removeprefix(CARRIED_OUT)), f"{data['answer']} {shown}")
    texts = [str(step.get(name, "")) for step in data["steps"] for name in ("title", "action", "note")]
    text = " ".join([data["answer"], *texts])
    return any(_all_in(_items(part), text) for part in _alternatives(data["fact"]))


def _reference(data: Mapping[str, Any]) -> bool:
    return _plain(data["answer"]) in map(_plain, _alternatives(data["reference"]))


_RULES: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    "key_point": _key_point,
    "blocking": _blocking,
    "claims": _is_answered,
    "fact": _fact,
    "reference": _reference,
    "feasible": feasible,
}


def _alternatives(text: str) -> list[str]:
    return [part.strip() for part in text.split("|OR|") if part.strip()]


def _all_in(items: list[str], text: str) -> bool:
    matches = (re.search(rf"(?<!\w){re.escape(item)}(?!\w)", text, re.IGNORECASE) for item in items)
    return bool(items) and all(matches)


def _items(fact: str) -> list[str]:
    """Return what a fact asks for: what is quoted, numeric or named, else its words of four letters and more."""
    quoted = ["".join(groups) for groups in _QUOTED.findall(fact)]
    named = _NAMED.findall(_QUOTED.sub(" ", fact))
    return [*quoted, *named] or _WORD.findall(fact)


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))


def _read(body: Mapping[str, Any], authorization: str) -> ReceivedQuestion:
    parts = body["messages"][-1]["content"]
    data = json.loads(_FENCED.findall(parts[0]["text"])[0])
    images = tuple(part["image_url"]["url"] for part in parts if part["type"] == "image_url")
    request = {name: value for name, value in body.items() if name != "messages"}
    return ReceivedQuestion(data["question"], data, images, request, authorization)


def _completion(question: ReceivedQuestion, content: str | None, finish_reason: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": content}
    return {
        "id": "scripted",
        "object": "chat.completion",
        "created": 0,
        "model": str(question.request.get("model", MODEL)),
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
        "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    }


def _refuse(status: int, message: str) -> web.Response:
    # a test must not wait as long as a client would for a server under load
    return web.json_response({"error": {"message": message}}, status=status, headers={"retry-after-ms": "1"})
