"""Scripted judge over HTTP, for tests and demonstrations without a model.

It implements the OpenAI chat protocol for the questions of `rewards/judge` but ignores images. It decides by
deterministic rules over the text in the question's fence:

- key point: the page's title or URL contains a word of the task;
- blocking: a title or URL mentions a captcha, denied access or a browser check;
- claims: there is an answer;
- a task with quoted names that was carried out: the answer or the last page's title contains each of its items;
- any other fact: the answer, or the titles, actions and notes of the steps, contain each of its items (quoted, numeric
or capitalised; else its longer words); one of several alternatives is enough;
- reference: the answer equals one of the alternatives, except for case, spaces and punctuation;
- published protocols, in their own form: there is an answer, or, where it is not shown, there are actions;
- any other question, of a custom protocol: there is an answer.

It is no real judge, and every reason says so. It also generates tasks and checks their feasibility by the rules in
`scripted_tasks.py`, for the questions of `curriculum/prompts.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import product
from typing import Any

from aiohttp import web

from webgym_cli.config.model_servers import SCRIPTED
from webgym_cli.rewards.judge.scripted_tasks import feasible, new_tasks, rephrase
from webgym_cli.rewards.judge.webgym import CARRIED_OUT
from webgym_cli.util.local_server import LocalServer

# Maximum request size in bytes: some dozens of screenshots.
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


class ScriptedJudgeServer(LocalServer):
    """The server, on the loopback interface."""

    def __init__(self) -> None:
        app = web.Application(client_max_size=LARGEST_REQUEST)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", self._complete)
        super().__init__(app, 0)

    @property
    def base_url(self) -> str:
        """Value for `judge.base_url`."""
        return f"http://{self.address}/v1"

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response(
            {"object": "list", "data": [{"id": SCRIPTED.model, "object": "model", "owned_by": "webgym"}]}
        )

    async def _complete(self, request: web.Request) -> web.Response:
        try:
            body = await request.json()
            data = read_data(body)
            content = _format(data["question"], decide(data["question"], data))
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            return refuse(400, f"not a question of webgym's judge: {error!r}")
        return web.json_response(build_completion(body, content))


@asynccontextmanager
async def start_scripted_judge() -> AsyncIterator[str]:
    """Yield the address of a running server."""
    async with ScriptedJudgeServer() as server:
        yield server.base_url


def read_data(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fenced data of a chat completion request."""
    data: dict[str, Any] = json.loads(_FENCED.findall(body["messages"][-1]["content"][0]["text"])[0])
    return data


def build_completion(body: Mapping[str, Any], content: str | None, finish_reason: str = "stop") -> dict[str, Any]:
    """Return a chat completion response."""
    message = {"role": "assistant", "content": content}
    return {
        "id": "scripted",
        "object": "chat.completion",
        "created": 0,
        "model": str(body.get("model", SCRIPTED.model)),
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
        "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    }


def refuse(status: int, message: str) -> web.Response:
    """Return an error response of the OpenAI protocol."""
    # tests must not wait as long as a client would for an overloaded server
    return web.json_response({"error": {"message": message}}, status=status, headers={"retry-after-ms": "1"})


def _format(job: str, reply: Mapping[str, Any]) -> str:
    """Return a reply in the form of its question: published protocols have their own."""
    yes, no = _FORMS.get(job, ("", ""))
    if not yes:
        return json.dumps(reply)
    return f"{reply['reason']}\n{yes if reply['verdict'] == 'yes' else no}"


def decide(job: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reply to a question. Raises `KeyError` for a missing field."""
    if writer := _WRITERS.get(job):
        return writer(data)
    verdict = "yes" if _RULES.get(job, _is_answered)(data) else "no"
    return {"reason": f"By a rule over the question's text, no picture was looked at: {job}.", "verdict": verdict}


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
    texts = [str(step.get(name, "")) for step, name in product(data["steps"], ("title", "action", "note"))]
    text = " ".join([data["answer"], *texts])
    return any(_all_in(_items(part), text) for part in _alternatives(data["fact"]))


# Jobs whose answers are tasks instead of a verdict.
_WRITERS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {"generate": new_tasks, "rephrase": rephrase}
_RULES: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    "key_point": _key_point,
    "blocking": _blocking,
    "claims": _is_answered,
    "fact": _fact,
    "reference": lambda data: _plain(data["answer"]) in map(_plain, _alternatives(data["reference"])),
    "feasible": feasible,
    "webjudge_key_points": lambda data: True,
    "webjudge_score": _key_point,
    "webjudge": lambda data: bool(data["actions"]),
    "agenttrek": lambda data: bool(data["actions"]),
}
# Job -> the answers for yes and no, in the published form.
_STATUS = ("Thoughts: by a rule.\nStatus: success", "Thoughts: by a rule.\nStatus: failure")
_FORMS = {
    "webvoyager": ("SUCCESS", "NOT SUCCESS"),
    "webjudge_key_points": ("1. The task is done.", ""),
    "webjudge_score": ("Score: 5", "Score: 1"),
    "webjudge": _STATUS,
    "agenttrek": _STATUS,
    "agentrewardbench": ("<success>Successful</success>", "<success>Unsuccessful</success>"),
}


def _alternatives(text: str) -> list[str]:
    return [part.strip() for part in text.split("|OR|") if part.strip()]


def _all_in(items: list[str], text: str) -> bool:
    matches = (re.search(rf"(?<!\w){re.escape(item)}(?!\w)", text, re.IGNORECASE) for item in items)
    return bool(items) and all(matches)


def _items(fact: str) -> list[str]:
    """Return the items of a fact: quoted, numeric or capitalised words, else its words with four letters or more."""
    quoted = ["".join(groups) for groups in _QUOTED.findall(fact)]
    named = _NAMED.findall(_QUOTED.sub(" ", fact))
    return [*quoted, *named] or _WORD.findall(fact)


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))
