"""Sessions through the gateway's HTTP: what is recorded, what becomes a trajectory, and what is trained."""

import asyncio
import base64
import hashlib
import io
import json
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from unittest import mock

import httpx
import openai
import pytest
from aiohttp import web
from PIL import Image

from benchmarks.peers import OPENENV
from tests.gateway.served import LIMITS, Upstream, ask, gateway, picture
from tests.peers import require
from webgym_cli.agent.client.gate import ServedPolicy
from webgym_cli.agent.client.policy import digest_tokens
from webgym_cli.agent.tokens.tokens import ModelTokens
from webgym_cli.config.load import load
from webgym_cli.errors import BudgetSpentError, SettingsError, StoreError
from webgym_cli.gateway import recorder, server, sessions
from webgym_cli.gateway.requests import convert_to_chat
from webgym_cli.jobs.budget import Budget
from webgym_cli.prepare.export.export import Export
from webgym_cli.prepare.export.options import ExportOptions
from webgym_cli.prepare.rl.execute import execute
from webgym_cli.prepare.rl.plan import plan_batch
from webgym_cli.prepare.rl.rows import build_trained_rows, oldest_version, read_turns
from webgym_cli.prepare.sft.convert import Converter
from webgym_cli.prepare.sft.filters import DropReason
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.sample import Sample
from webgym_cli.records.sampling import PolicyVersion
from webgym_cli.records.task import Split
from webgym_cli.records.trajectory import Outcome, ParseErrorKind
from webgym_cli.store.buffer import scan_stored
from webgym_cli.store.index.query import open_index
from webgym_cli.store.screenshots import ScreenshotStore

CALL = '<tool_call>\n{"name": "click", "arguments": {"index": 3}}\n</tool_call>'
CLICK = {"type": "function", "function": {"name": "click", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture
async def world(tmp_path, model):
    async with gateway(tmp_path / "run", model) as world:
        yield world


def stored(run):
    return list(scan_stored(run, Split.TRAIN, 0))


async def end(world, session, **body):
    answer = await world.post(f"/sessions/{session['id']}/end", session["key"], body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def post_text(world, key, body):
    """Send a chat request in JSON that httpx does not write."""
    headers = {"Authorization": f"Bearer {key}"}
    return await world.client.post("/v1/chat/completions", content=body, headers=headers)


async def look_for_expired(world, patience=0.01):
    """Let the recorder look for sessions that exceed the time limit: once, if it is not patient."""
    with suppress(TimeoutError):
        await asyncio.wait_for(world.recorder.end_expired(), patience)


async def test_a_session_becomes_one_trajectory_whose_calls_train_one_by_one(world):
    session = await world.open(seed=7)
    images = [picture("red"), picture("blue"), picture("green", (96, 64), "JPEG")]
    for number, image in enumerate(images):
        if number == 2:  # new weights are served within the session
            world.recorder.agent._gate.policy = ServedPolicy(version=PolicyVersion(number=1, digest="e"))
        reply = await world.chat(session["key"], ask(f"Step {number}", image))
        assert reply.json()["choices"][0]["message"]["content"] == "It is done."
    assert (await end(world, session, reward=0.5, answer="42"))["calls"] == 3
    (trajectory,) = stored(world.run)
    assert (trajectory.id, trajectory.seed) == (session["id"], 7)
    assert (trajectory.outcome.reward, trajectory.outcome.answer) == (0.5, "42")
    turns = read_turns(trajectory, world.upstream.tokens)
    assert isinstance(turns, list)
    rows = build_trained_rows(turns, load().rl.data)
    assert [row.steps for row in rows] == [[0], [1], [2]]
    sent = [body["messages"] for body in world.upstream.bodies]
    store = ScreenshotStore(world.run.screenshots)
    for row, step, messages in zip(rows, trajectory.steps, sent, strict=True):
        assert sum(row.mask) == len(step.generation.token_ids) == len(step.generation.logprobs)
        assert row.input_ids[-sum(row.mask) :] == list(step.generation.token_ids)
        (shown,) = [part["image_url"]["url"] for part in messages[0]["content"] if part["type"] == "image_url"]
        assert base64.b64decode(shown.partition(",")[2]) == store.get(row.images[0])
    assert [step.generation.policy_version.number for step in trajectory.steps] == [0, 0, 1]
    assert [oldest_version(trajectory, row.steps) for row in rows] == [0, 0, 1]


async def test_the_run_s_sampling_is_forced_and_constraints_are_passed_on(world):
    session = await world.open()
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
    given = ask(temperature=0.1, top_p=0.2, frequency_penalty=0.3, max_tokens=7, seed=1, response_format=form, stop="x")
    await world.chat(session["key"], given)
    (body,) = world.upstream.bodies
    policy = world.recorder.settings.policy_config
    assert (body["temperature"], body["top_p"]) == (policy.temperature, policy.top_p)
    assert body["logprobs"] and body["return_token_ids"]
    assert body["response_format"] == form and body["stop"] == "x"
    assert "frequency_penalty" not in body and body["max_tokens"] != 7 and body["seed"] != 1


async def test_openai_s_client_streams_and_calls_tools_in_both_dialects(world):
    session = await world.open()
    world.upstream.text = f"I click. {CALL}"
    client = openai.AsyncOpenAI(base_url=world.server.base_url, api_key=session["key"])
    messages = [{"role": "user", "content": "Go."}]
    whole = await client.chat.completions.create(model="policy", messages=messages, tools=[CLICK])
    (call,) = whole.choices[0].message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("click", {"index": 3})
    assert whole.choices[0].finish_reason == "tool_calls"
    messages += [whole.choices[0].message.model_dump(exclude_none=True)]
    messages += [{"role": "tool", "tool_call_id": call.id, "content": "clicked"}]
    parts = [
        part
        async for part in await client.chat.completions.create(
            model="policy", messages=messages, tools=[CLICK], stream=True, stream_options={"include_usage": True}
        )
    ]
    deltas = [part.choices[0].delta for part in parts[:2]]
    assert [(delta.content, bool(delta.tool_calls)) for delta in deltas] == [("I click.", False), (None, True)]
    assert (deltas[1].tool_calls[0].index, deltas[1].tool_calls[0].function.name) == (0, "click")
    assert parts[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert parts[-1].usage.prompt_tokens_details.cached_tokens == 1
    tool = {"type": "function", **CLICK["function"]}
    response = await client.responses.create(model="policy", instructions="Act.", input="Go.", tools=[tool])
    assert [item.type for item in response.output] == ["message", "function_call"]
    later = [{"role": "user", "content": "Go."}, *response.output]
    later += [{"type": "function_call_output", "call_id": response.output[1].call_id, "output": "clicked"}]
    async with client.responses.stream(model="policy", input=later, tools=[tool]) as stream:
        async for _ in stream:
            pass
        final = await stream.get_final_response()
    assert json.loads(final.output[1].arguments) == {"index": 3}
    world.upstream.finish_reason = "length"
    async with client.responses.stream(model="policy", input="And then?") as stream:
        kinds = [event.type async for event in stream]
        final = await stream.get_final_response()
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert (final.status, final.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    await client.close()
    await end(world, session, reward=1)
    (trajectory,) = stored(world.run)
    assert [step.action.calls[0].name for step in trajectory.steps[:4]] == ["click"] * 4
    assert trajectory.steps[4].parse_error is ParseErrorKind.TRUNCATED
    assert isinstance(read_turns(trajectory, world.upstream.tokens), list)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", ask(tools=[CLICK])),
        ("/v1/responses", {"model": "policy", "input": "Go.", "tools": [{"type": "function", **CLICK["function"]}]}),
    ],
)
async def test_a_request_that_allows_no_calls_offers_no_tools(world, path, body):
    key, world.upstream.text = (await world.open())["key"], CALL
    kinds = []
    for choice in ("auto", "none"):
        answer = (await world.post(path, key, {**body, "tool_choice": choice})).text
        kinds.append('"tool_calls": [' in answer or '"function_call"' in answer)
    assert kinds == [True, False]
    assert ["click" in json.dumps(sent["messages"]) for sent in world.upstream.bodies] == [True, False]


@pytest.mark.parametrize(
    ("choice", "text", "problem"),
    [
        ({"tool_choice": "required"}, "It is done.", ParseErrorKind.NO_TOOL_CALL),
        ({"tool_choice": "click"}, "It is done.", ParseErrorKind.NO_TOOL_CALL),
        ({"tool_choice": "scroll"}, CALL, ParseErrorKind.NO_TOOL_CALL),
        ({"tool_choice": "click"}, CALL, None),
        ({"tool_choice": "required"}, CALL, None),
        ({"parallel_tool_calls": False}, CALL, None),
        ({"parallel_tool_calls": False}, CALL * 2, ParseErrorKind.SEVERAL_TOOL_CALLS),
        ({}, CALL * 2, None),
    ],
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
async def test_an_answer_without_the_calls_that_were_asked_for_has_no_valid_call(world, path, choice, text, problem):
    session, world.upstream.text = await world.open(), text
    functions = [CLICK["function"], {**CLICK["function"], "name": "scroll"}]
    own = ask(tools=[{"type": "function", "function": function} for function in functions])
    if path == "/v1/responses":
        own = {"model": "policy", "input": "Go.", "tools": [{"type": "function", **one} for one in functions]}
    if (name := choice.get("tool_choice")) in ("click", "scroll"):
        named = {"name": name} if path == "/v1/responses" else {"function": {"name": name}}
        choice = {"tool_choice": {"type": "function", **named}}
    answer = await world.post(path, session["key"], own | choice)
    assert answer.status_code == 200, answer.text
    assert ("call_id" in answer.text or '"tool_calls": [' in answer.text) == (problem is None)
    await end(world, session, reward=0)
    assert stored(world.run)[0].steps[0].parse_error is problem


async def test_a_field_that_could_change_the_answer_is_refused_by_name(world):
    key, messages = (await world.open())["key"], ask()["messages"]
    fields = {
        **{"logit_bias": {"5": 1}, "functions": [{}], "modalities": ["audio"], "structured_outputs": {"choice": ["a"]}},
        **{"previous_response_id": "r", "conversation": "c", "prompt": {"id": "p"}, "background": True},
        **{"n": 2, "stop": ["x"] * 65},
        **{"tool_choice": {"type": "function", "name": "gone", "function": {"name": "gone"}}},
    }
    for path, prompt in (("/v1/chat/completions", {"messages": messages}), ("/v1/responses", {"input": "Go."})):
        for name, value in fields.items():
            answer = await world.post(path, key, {"model": "policy", **prompt, name: value})
            error = answer.json()["error"]
            assert (answer.status_code, error["code"], name in error["message"]) == (400, "invalid_value", True)
    assert not world.upstream.bodies
    bookkeeping = {
        "user": "u",
        "store": True,
        "prompt_cache_options": {"mode": "explicit"},
        "metadata": {"a": "b"},
        "reasoning_effort": "low",
        "logit_bias": {},
    }
    assert (await world.chat(key, ask(**bookkeeping, modalities=["text"]))).status_code == 200


RED = picture("red")


@pytest.mark.parametrize(
    "url",
    [
        RED.replace("data:image/png;base64", "DATA:image/PNG;name=a.png;Base64"),
        "\n".join([RED[:60], RED[60:100], RED[100:]]),
        RED.rstrip("="),
    ],
)
async def test_a_data_url_is_read_as_browsers_read_it(world, url):
    session = await world.open()
    assert (await world.chat(session["key"], ask("Look.", url))).status_code == 200
    sent = world.upstream.bodies[0]["messages"][0]["content"]
    assert [part["image_url"]["url"] for part in sent if part["type"] == "image_url"] == [RED]


async def test_nulls_are_fields_that_are_not_given(world):
    key = (await world.open())["key"]
    bare = {"type": "function", "function": {"name": "click"}}
    nulls = {"type": "function", "function": {"name": "click", "description": None, "parameters": None, "strict": None}}
    for tool in (bare, nulls):
        assert (await world.chat(key, ask(tools=[tool], stream_options=None))).status_code == 200
    first, second = world.upstream.bodies
    assert first["messages"] == second["messages"]


@pytest.mark.parametrize("place", ["description", "parameters", "arguments"])
async def test_a_tool_s_text_that_was_cut_within_an_emoji_has_a_question_mark(world, place):
    cut = "Click a\ud83d"
    function = CLICK["function"] | ({place: cut} if place == "description" else {"parameters": {"description": cut}})
    body = ask(tools=[{"type": "function", "function": function}])
    if place == "arguments":
        call = {"function": {"name": "click", "arguments": json.dumps({"text": cut})}}
        body["messages"][1:] = [{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "content": "Done."}]
    session = await world.open()
    answer = await post_text(world, session["key"], json.dumps(body))
    assert answer.status_code == 200
    sent = json.dumps(world.upstream.bodies[0], ensure_ascii=False)
    assert "Click a?" in sent and sent.encode()
    assert (await end(world, session, reward=1))["calls"] == 1


async def test_an_infinite_number_in_a_schema_is_refused(world):
    key = (await world.open())["key"]
    endless = {"type": "function", "function": {"name": "click", "parameters": {"maximum": "?"}}}
    for fields in ({"tools": [endless]}, {"response_format": {"type": "json_object", "maximum": "?"}}):
        answer = await post_text(world, key, json.dumps(ask(**fields)).replace('"?"', "1e999"))
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_value")


async def test_a_history_that_begins_with_an_answer_has_an_empty_turn_before_it(world):
    session = await world.open()
    given = [("system", "Act."), ("assistant", "Shall I?"), ("user", "Go.")]
    body = {"model": "policy", "messages": [{"role": role, "content": text} for role, text in given]}
    assert (await world.chat(session["key"], body)).status_code == 200
    sent = [(message["role"], message["content"]) for message in world.upstream.bodies[0]["messages"]]
    assert sent == [given[0], ("user", ""), *given[1:]]
    await end(world, session, reward=1)
    (trajectory,) = stored(world.run)
    assert [
        len(row.steps) for row in build_trained_rows(read_turns(trajectory, world.upstream.tokens), load().rl.data)
    ] == [1]


async def test_an_item_of_an_earlier_response_can_be_referred_to_in_its_session(world):
    session, other = await world.open(), await world.open()
    world.upstream.text = f"I click. {CALL}"
    tools = [{"type": "function", **CLICK["function"]}]
    answer = await world.post("/v1/responses", session["key"], {"model": "policy", "input": "Go.", "tools": tools})
    text, call = answer.json()["output"]
    items = [{"role": "user", "content": "Go."}, *({"type": "item_reference", "id": one["id"]} for one in (text, call))]
    items += [{"type": "function_call_output", "call_id": call["call_id"], "output": "clicked"}]
    again = {"model": "policy", "input": items, "tools": tools}
    assert (await world.post("/v1/responses", session["key"], again)).status_code == 200
    refused = await world.post("/v1/responses", other["key"], again)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "unsupported_value")
    whole = {**again, "input": [items[0], text, call, items[-1]]}
    assert (await world.post("/v1/responses", session["key"], whole)).status_code == 200
    assert world.upstream.bodies[1]["messages"] == world.upstream.bodies[2]["messages"]
    assert world.upstream.bodies[1]["messages"][2]["content"] == f"I click.\n{CALL}"
    never = (1 / 0 for _ in "a")  # without a reference no earlier answer is built
    assert convert_to_chat({"input": items[:1]}, never)["messages"] == items[:1]


@pytest.mark.parametrize(("name", "code"), [("policy", None), ("helper-judge", None), ("gpt-4o", "model_not_found")])
async def test_a_model_is_looked_up_and_called_by_its_names_alone(world, name, code):
    key = (await world.open())["key"]
    listed = await world.client.get(f"/v1/models/{name}", headers={"Authorization": f"Bearer {key}"})
    called = await world.chat(key, ask() | {"model": name})
    for answer in (listed, called):
        assert (answer.status_code, answer.json().get("error", {}).get("code")) == (404 if code else 200, code)
    assert code or (listed.json()["id"], called.json()["model"]) == (name, name)


async def test_helper_calls_are_recorded_and_never_trained(world):
    session = await world.open()
    await world.chat(session["key"], ask("Act.") | {"tools": [CLICK]})
    await world.chat(session["key"], ask("Extract.") | {"model": "helper"})
    await world.chat(session["key"], ask("Judge.") | {"model": "helper-judge"})
    await world.chat(session["key"], ask("Compact."), **{"X-Webgym-Helper": "1"})
    counts = await end(world, session, reward=1)
    assert (counts["calls"], counts["helpers"], counts["abandoned"]) == (1, 3, 0)
    (trajectory,) = stored(world.run)
    assert [step.sent.messages[-1].content for step in trajectory.steps] == ["Act."]
    (file,) = world.run.sessions.glob("*.jsonl")
    calls = [line["call"] for line in map(json.loads, file.read_text().splitlines()) if "call" in line]
    paid = [call["step"]["generation"]["prompt_tokens"] for call in calls]
    assert (len(paid), trajectory.tokens.prompt) == (4, sum(paid))
    assert [tool["function"]["name"] for tool in trajectory.prompt.tools] == ["click"]
    lines = (world.run.sessions / f"{session['id']}.jsonl").read_text().splitlines()
    assert sum(json.loads(line).get("call", {}).get("helper", False) for line in lines) == 3


async def test_a_session_is_told_the_address_that_its_client_used(world):
    response = await world.client.post("/sessions", json={}, headers={"Host": "gateway.test:99"})
    assert response.json()["base_url"] == "http://gateway.test:99/v1"


@pytest.mark.parametrize(
    ("header", "bearer", "answered_by"),
    [("own", None, "own"), ("own", "wrong", "own"), ("own", "other", "own"), ("wrong", "own", None)],
)
async def test_a_key_may_be_in_a_header_of_its_own_which_comes_first(world, header, bearer, answered_by):
    sessions = {name: await world.open() for name in ("own", "other")}
    keys = {name: session["key"] for name, session in sessions.items()} | {"wrong": "wg-wrong"}
    headers = {"X-Webgym-Session": keys[header]}
    if bearer is not None:
        headers["Authorization"] = f"Bearer {keys[bearer]}"
    reply = await world.client.post("/v1/chat/completions", json=ask(), headers=headers)
    assert reply.status_code == (200 if answered_by else 401)
    counts = {name: (await end(world, session))["calls"] for name, session in sessions.items()}
    assert counts == {"own": int(answered_by == "own"), "other": 0}


async def test_a_repeated_request_is_the_same_call(world):
    session = await world.open()
    first = await world.chat(session["key"])
    assert (await world.chat(session["key"])).json() == first.json()
    named = {"Idempotency-Key": "a"}
    assert (await world.chat(session["key"], **named)).json()["id"] != first.json()["id"]
    again = await world.chat(session["key"], ask("Other words."), **named)  # not the answer to the first words
    assert (await world.chat(session["key"], ask("Other words."), **named)).json() == again.json()
    sent = [body["messages"][0]["content"] for body in world.upstream.bodies]
    assert [str(content).count("Other words.") for content in sent] == [0, 0, 1]
    assert (await end(world, session, reward=1))["calls"] == 3


async def test_a_request_that_was_a_helper_s_is_another_call_without_its_header(world):
    session = await world.open()
    for headers in ({"X-Webgym-Helper": "1"}, {}, {}, {"X-Webgym-Helper": "1"}):
        assert (await world.chat(session["key"], **headers)).status_code == 200
    assert len(world.upstream.bodies) == 2
    counts = await end(world, session, reward=1)
    assert (counts["calls"], counts["helpers"]) == (1, 1)


async def test_refused_calls_are_limited_and_calls_that_were_answered_not_by_them(world, monkeypatch):
    monkeypatch.setattr(server, "MAX_REFUSED", 4)
    session = await world.open()
    first = await world.chat(session["key"])
    world.upstream.lost_images = 1
    assert (await world.chat(session["key"], ask("Lost."))).status_code == 502
    assert (await world.chat(session["key"], {"model": "policy"})).json()["error"]["code"] == "invalid_value"
    assert (await world.chat(session["key"], ask("Lost."))).status_code == 502
    world.upstream.lost_images = 0
    assert (await world.chat(session["key"])).text == first.text
    assert (await world.chat(session["key"], ask("Next."))).status_code == 200
    assert (await world.chat(session["key"], [])).status_code == 400
    refused = [await world.chat(session["key"], ask(text)) for text in ("Look.", "Next.", "More.")]
    assert {reply.json()["error"]["code"] for reply in refused} == {"step_limit"}
    assert len(world.upstream.bodies) == 4
    assert (await end(world, session, reward=1))["calls"] == 2


async def test_an_answered_call_is_given_again_after_the_last_one(world, monkeypatch):
    monkeypatch.setattr(recorder, "MAX_CALLS", 2)
    session = await world.open()
    replies = [await world.chat(session["key"], ask(f"{number}.")) for number in (0, 1, 2, 1)]
    assert [reply.status_code for reply in replies] == [200, 200, 400, 200]
    assert replies[3].text == replies[1].text


async def test_refused_calls_are_no_steps_of_a_planned_episode(world):
    episode = world.recorder.find_session((await world.open())["key"]).episode
    session, key = world.recorder.admit(episode.model_copy(update={"id": "planned", "max_steps": 2}))
    world.upstream.lost_images = 1
    assert {(await world.chat(key, ask(f"{number}."))).status_code for number in range(5)} == {502}
    world.upstream.lost_images = 0
    codes = [(await world.chat(key, ask(f"{number}."))).status_code for number in range(3)]
    assert (codes, session.exhausted) == ([200, 200, 400], True)


async def test_no_session_is_opened_beyond_the_cost_of_a_run(world):
    cost = load(overrides=['cost.prices={"policy": {"prompt": 1e6, "completion": 1e6}}', "cost.max_cost=1"]).cost
    world.recorder.budget = Budget(cost, str(world.run.root))
    session = await world.open()
    assert (await world.chat(session["key"])).status_code == 200
    refused = await world.client.post("/sessions", json={})
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "cost_limit")
    assert (await world.chat(session["key"], ask("Go on."))).status_code == 200
    await look_for_expired(world)
    await end(world, session, reward=1.0)
    with pytest.raises(BudgetSpentError, match="of the cost of 1 is spent"):
        await world.recorder.end_expired()
    assert len(stored(world.run)) == 1


async def test_rewards_of_a_session_are_limited(world, monkeypatch):
    monkeypatch.setattr(server, "MAX_REWARDS", 2)
    session = await world.open()
    await world.chat(session["key"])
    codes = []
    for reward in (0.1, 0.2, 0.3):
        answer = await world.post(f"/sessions/{session['id']}/reward", session["key"], {"reward": reward})
        codes.append(answer.json().get("error", {}).get("code"))
    assert codes == [None, None, "too_many_rewards"]
    assert (await end(world, session))["reward"] == 0.2


async def ask_at_once(world, *keys):
    """Begin a call with each key; they wait for the policy."""
    world.upstream.may_answer.clear()
    asking = [asyncio.create_task(world.chat(key)) for key in keys]
    async with asyncio.timeout(10):
        while world.server.in_flight.total() < len(keys):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return asking


@pytest.mark.parametrize(("limit", "of_one"), [("MAX_IN_FLIGHT", False), ("MAX_REQUESTS", True)])
async def test_calls_in_flight_are_limited_over_all_sessions_and_equal_ones_of_a_session_too(
    world, monkeypatch, limit, of_one
):
    monkeypatch.setattr(server, limit, 2)
    keys = [(await world.open())["key"] for _ in range(3)]
    asking = await ask_at_once(world, keys[0], keys[0 if of_one else 1])
    reply = await world.chat(keys[0 if of_one else 2], {"no": "request"})  # refused before its body is read
    assert (reply.status_code, reply.json()["error"]["code"]) == (429, "too_many_calls")
    world.upstream.may_answer.set()
    if of_one:
        assert (await world.chat(keys[2])).status_code == 200
    assert {(await one).status_code for one in asking} == {200}
    assert [(await world.chat(key)).status_code for key in keys] == [200] * 3


async def test_a_call_of_a_session_that_was_ended_counts_until_it_is_read(world, monkeypatch):
    session, other = await world.open(), await world.open()
    may_read, parse = threading.Event(), server.parse_json
    monkeypatch.setattr(server, "MAX_IN_FLIGHT", 1)
    monkeypatch.setattr(
        server, "parse_json", lambda body: parse(body) if b"slow" not in body or may_read.wait(30) else {}
    )
    asking = asyncio.create_task(world.chat(session["key"], ask("slow")))
    async with asyncio.timeout(10):
        while not world.server.in_flight:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await end(world, session)
    assert (await world.chat(other["key"])).status_code == 429
    may_read.set()
    assert (await asking).status_code == 409
    assert (await world.chat(other["key"])).status_code == 200


async def test_a_request_that_is_slow_to_read_keeps_no_other_session_waiting(world, monkeypatch):
    reading, served = asyncio.Event(), threading.Event()
    parse, loop, waited = server.parse_json, asyncio.get_running_loop(), []

    def parse_slowly(body):
        if b"slow" in body:
            loop.call_soon_threadsafe(reading.set)
            waited.append(served.wait(30))
        return parse(body)

    monkeypatch.setattr(server, "parse_json", parse_slowly)
    slow = asyncio.create_task(world.chat((await world.open())["key"], ask("slow")))
    await reading.wait()
    assert (await world.chat((await world.open())["key"])).status_code == 200
    served.set()
    assert ((await slow).status_code, waited) == (200, [True])


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/sessions"])
async def test_a_body_that_does_not_arrive_is_refused(world, monkeypatch, path):
    monkeypatch.setattr(server, "BODY_SECONDS", 0.1)
    key = (await world.open())["key"]
    host, port = world.server.address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\nContent-Length: 99\r\n\r\n"
    writer.write(head.encode() + b"{")
    assert b" 408 " in await asyncio.wait_for(reader.readline(), 10)
    writer.close()


async def test_requests_at_the_same_time_are_sampled_once(world):
    session = await world.open()
    world.upstream.may_answer.clear()
    asking = [asyncio.create_task(world.chat(session["key"])) for _ in range(3)]
    await world.upstream.requested.wait()
    world.upstream.may_answer.set()
    assert len({(await one).text for one in asking}) == 1
    assert len(world.upstream.bodies) == 1


async def abandon(world, session, body):
    """Send a request and disconnect before its answer."""
    opened = world.recorder.find_session(session["key"])
    calls = len(opened.calls)
    world.upstream.may_answer.clear()
    world.upstream.requested.clear()
    asking = asyncio.create_task(world.chat(session["key"], body))
    await world.upstream.requested.wait()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await asyncio.sleep(0)
    world.upstream.may_answer.set()
    async with asyncio.timeout(10):
        while world.server.in_flight or len(opened.calls) == calls:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("asks_again", [False, True])
async def test_a_call_that_the_agent_did_not_wait_for_is_trained_only_if_asked_again(world, asks_again):
    session = await world.open()
    await world.chat(session["key"], ask("First."))
    await abandon(world, session, ask("Second."))
    if asks_again:
        await world.chat(session["key"], ask("Second."))
    counts = await end(world, session, reward=1)
    assert (counts["calls"], counts["abandoned"]) == ((2, 0) if asks_again else (1, 1))
    assert len(stored(world.run)[0].steps) == counts["calls"]


@pytest.mark.parametrize("asks_again", [False, True])
async def test_a_call_that_a_killed_gateway_did_not_deliver_is_trained_only_if_asked_again(tmp_path, model, asks_again):
    async with Upstream(ModelTokens(str(model))) as upstream:
        async with gateway(tmp_path / "run", model, upstream) as world:
            session = await world.open()
            await world.chat(session["key"], ask("First."))
            # Killed after the call is stored, and before its answer is sent.
            killed = mock.patch.object(server, "build_completion", side_effect=asyncio.CancelledError)
            with killed, pytest.raises(httpx.HTTPError):
                await world.chat(session["key"], ask("Second."))
        async with gateway(tmp_path / "run", model, upstream) as world:
            if asks_again:
                await world.chat(session["key"], ask("Second."))
            counts = await end(world, session, reward=1)
            assert (counts["calls"], counts["abandoned"]) == ((2, 0) if asks_again else (1, 1))
            assert len(stored(world.run)[0].steps) == counts["calls"]
    assert len(upstream.bodies) == 2


@pytest.mark.parametrize("notes", [{}, {"notes_deliveries": True}], ids=["this version", "an earlier version"])
async def test_a_session_goes_on_after_a_restart_and_its_lost_answer_stays_lost(tmp_path, model, notes):
    async with Upstream(ModelTokens(str(model))) as upstream:
        async with gateway(tmp_path / "run", model, upstream) as world:
            session = await world.open()
            await world.chat(session["key"], ask("First."))
            await world.chat(session["key"], ask("Second."))
            opened = world.recorder.find_session(session["key"])
            opened.note_loss(opened.calls[1])
        lines = [json.loads(line) for line in opened.path.read_text().splitlines()]
        assert [line["event"] for line in lines] == ["open", *["call", "delivered"] * 2, "abandoned"]
        lines = [line | notes if line["event"] in {"open", "call"} else line for line in lines]
        opened.path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        async with gateway(tmp_path / "run", model, upstream) as world:
            await world.chat(session["key"], ask("Third."))
            counts = await end(world, session, reward=1)
            assert (counts["calls"], counts["abandoned"]) == (2, 1)
            assert len(stored(world.run)[0].steps) == 2
            assert [path.name for path in world.run.sessions.iterdir()] == [f"{session['id']}.jsonl"]


async def test_an_answer_whose_delivery_a_full_disk_does_not_keep_is_not_sent(tmp_path, model):
    append = sessions.append_lines

    def refuse(path, line):
        if '"delivered"' in line:
            raise StoreError(f"{path}: No space left on device")
        append(path, line)

    async with Upstream(ModelTokens(str(model))) as upstream:
        async with gateway(tmp_path / "run", model, upstream) as world:
            session = await world.open()
            opened = world.recorder.find_session(session["key"])
            await world.chat(session["key"], ask("First."))
            with mock.patch.object(sessions, "append_lines", refuse):
                refused = await world.chat(session["key"], ask("Second."))
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "not_stored")
            assert (opened.count()["calls"], opened.refused) == (1, 1)
            assert "No space left on device" in str(opened.error)
            answer = await world.chat(session["key"], ask("Second."))
            assert (answer.status_code, opened.error, opened.refusal) == (200, None, "")
        async with gateway(tmp_path / "run", model, upstream) as world:
            await world.chat(session["key"], ask("Third."))
            counts = await end(world, session, reward=1)
            assert (counts["calls"], counts["abandoned"]) == (3, 0)
    assert len(upstream.bodies) == 3


@pytest.mark.parametrize("is_full", [False, True])
async def test_an_answer_that_is_cut_off_by_the_agent_is_not_trained(world, is_full):
    session = await world.open()
    await world.chat(session["key"], ask("First."))
    append = sessions.append_lines

    def refuse(path, line):
        if is_full and '"abandoned"' in line:
            raise StoreError(f"{path}: No space left on device")
        append(path, line)

    class CutOff(web.Response):
        async def write_eof(self, data=b""):
            raise ConnectionResetError

    with (
        mock.patch.object(sessions, "append_lines", refuse),
        mock.patch.object(server, "_build_response", lambda *_, **__: CutOff()),
        pytest.raises(httpx.HTTPError),
    ):
        await world.chat(session["key"], ask("Second."))
    (file,) = world.run.sessions.iterdir()
    events = [json.loads(line)["event"] for line in file.read_text().splitlines()]
    noted = ["open", "call", "delivered", "call", "delivered", "abandoned"]
    assert events == (noted[:-1] if is_full else noted)
    counts = await end(world, session, reward=1)
    assert (counts["calls"], counts["abandoned"]) == (1, 1)


def draw(kind):
    """Return a picture that servers and trainers read in different ways, its size and colours as a person sees it."""
    out, shown = io.BytesIO(), Image.new("RGBA", (64, 32), "red" if kind == "turned" else (0, 0, 0, 0))
    if kind == "turned":
        shown.paste("blue", (0, 0, 32, 32))
        turned = Image.Exif()
        turned[0x0112] = 6
        shown.convert("RGB").save(out, "JPEG", exif=turned, quality=95, subsampling=0)
    else:
        shown.save(out, "PNG")
    return out.getvalue()


@pytest.mark.parametrize(
    ("kind", "size", "colour"), [("transparent", (64, 32), (255, 255, 255)), ("turned", (32, 64), (0, 0, 254))]
)
async def test_a_picture_is_served_and_trained_as_a_person_sees_it(world, kind, size, colour):
    key = (await world.open())["key"]
    url = f"data:image/{'jpeg' if kind == 'turned' else 'png'};base64,{base64.b64encode(draw(kind)).decode()}"
    assert (await world.chat(key, ask("Look.", url))).status_code == 200
    (call,) = world.recorder.find_session(key).calls
    content = ScreenshotStore(world.run.screenshots).get(call.step.sent.images[0])
    (shown,) = [part for part in world.upstream.bodies[0]["messages"][0]["content"] if part["type"] == "image_url"]
    assert base64.b64decode(shown["image_url"]["url"].partition(",")[2]) == content
    with Image.open(io.BytesIO(content)) as image:
        assert (image.mode, image.size, image.getpixel((8, 8))) == ("RGB", size, colour)
        assert not image.getexif()


@pytest.mark.parametrize(
    ("fault", "code"), [({"lost_images": 3}, "prompt_tokens_differ"), ({"has_ids": False}, "no_prompt_tokens")]
)
async def test_a_prompt_is_refused_unless_the_server_returns_its_tokens_pictures_included(world, fault, code):
    session = await world.open()
    vars(world.upstream).update(fault)
    reply = await world.chat(session["key"], ask("Look.", picture()))
    assert (reply.status_code, reply.json()["error"]["code"]) == (502, code)
    assert (await end(world, session, reward=1))["calls"] == 0


async def test_a_session_without_a_call_of_the_policy_is_a_failure(world):
    session = await world.open()
    await end(world, session, reward=0)
    (trajectory,) = stored(world.run)
    assert (trajectory.outcome.failure, trajectory.outcome.reward) == (FailureKind.ENVIRONMENT_ERROR, None)


@pytest.mark.parametrize("answers", [1, 2])
async def test_a_reward_after_the_policy_was_lost_is_no_result(world, answers):
    """Runners give agents that catch the error of their last call a reward of 0, which was trained."""
    session, world.upstream.answers = await world.open(), answers
    replies = [await world.chat(session["key"], ask(text)) for text in ("Look.", "Look again.")]
    assert [reply.status_code for reply in replies] == [200, 200 if answers == 2 else 503]
    await end(world, session, reward=0)
    (trajectory,) = stored(world.run)
    assert (trajectory.outcome.failure is None, trajectory.outcome.reward) == (
        (True, 0) if answers == 2 else (False, None)
    )


async def test_a_picture_by_another_name_than_its_content_is_refused_and_never_left_out(world):
    key = (await world.open())["key"]
    body = ask()
    parts = body["messages"][0]["content"]
    for part in ({"type": "image_url"}, {"type": "input_image", "file_id": "file-1"}, {"type": "file", "file": {}}):
        body["messages"][0]["content"] = [*parts, part]
        refused = await world.chat(key, body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_value")
    assert not world.upstream.bodies


async def test_parts_and_calls_beyond_the_limit_are_refused_and_never_left_out(world):
    key, body, call = (await world.open())["key"], ask(), {"function": {"name": "click", "arguments": "{}"}}
    parts = [{"type": "text", "text": f"{number} "} for number in range(2000)]
    spoken = {"role": "assistant", "tool_calls": [call]}
    body["messages"] = [{"role": "user", "content": parts}, spoken, {"role": "tool", "content": "clicked"}]
    assert (await world.chat(key, body)).status_code == 200
    assert "1999" in str(world.upstream.bodies[0]["messages"])
    body["messages"][0]["content"] = [*parts, parts[0]]
    assert (await world.chat(key, body)).json()["error"]["code"] == "invalid_value"
    body["messages"] = [
        *ask()["messages"],
        {**spoken, "tool_calls": [call] * 2001},
        {"role": "tool", "content": "clicked"},
    ]
    assert (await world.chat(key, body)).json()["error"]["code"] == "invalid_value"
    assert len(world.upstream.bodies) == 1


async def test_an_answer_that_was_cut_off_is_no_action(world):
    session = await world.open()
    world.upstream.finish_reason = "length"
    reply = await world.chat(session["key"])
    assert reply.json()["choices"][0]["finish_reason"] == "length"
    await end(world, session, reward=0)
    assert stored(world.run)[0].steps[0].parse_error is ParseErrorKind.TRUNCATED


async def test_a_session_that_never_ends_is_a_failure_and_never_a_reward_of_0(tmp_path, model):
    async with gateway(tmp_path / "run", model, None, "rollout.episode_timeout=0.05") as world:
        session = await world.open()
        await world.chat(session["key"])
        ending = asyncio.create_task(world.recorder.end_expired())
        async with asyncio.timeout(10):
            while not stored(world.run):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        ending.cancel()
        (trajectory,) = stored(world.run)
        assert (trajectory.outcome.failure, trajectory.outcome.reward) == (FailureKind.EPISODE_TIMEOUT, None)
        assert (await world.chat(session["key"])).status_code == 401


@pytest.mark.parametrize("clock", ["2026-01-01T00:00:00.000+00:00", "2199-01-01T00:00:00.000+00:00"])
async def test_a_clock_that_is_set_ends_no_session(tmp_path, model, monkeypatch, clock):
    async with Upstream(ModelTokens(str(model))) as upstream:
        async with gateway(tmp_path / "run", model, upstream) as world:
            session = await world.open()
            await world.chat(session["key"])
            for module in (sessions, recorder):
                monkeypatch.setattr(module, "now", lambda: clock)
            await world.chat(session["key"], ask("Again."))
            await look_for_expired(world)
        async with gateway(tmp_path / "run", model, upstream) as world:
            await look_for_expired(world)
            await end(world, session, reward=1)
            (trajectory,) = stored(world.run)
    assert (len(trajectory.steps), trajectory.outcome.reward, 0 <= trajectory.seconds < 60) == (2, 1.0, True)


async def test_a_killed_gateway_loses_nothing_and_stores_nothing_twice(tmp_path, model):
    async with Upstream(ModelTokens(str(model))) as upstream:
        async with gateway(tmp_path / "run", model, upstream) as world:
            going, ended = await world.open(), await world.open()
            first = await world.chat(going["key"], ask("First."))
            await world.chat(ended["key"], ask("Only."))
            await world.post(f"/sessions/{going['id']}/reward", going["key"], {"reward": 1})
            # Killed between the end of a session and its trajectory, and within lines of a call and of the plan.
            session = world.recorder.find_session(ended["key"])
            session.record("reward", reward=0.25)
            session.record("end", end=Outcome())
            plan = world.run.plan(Split.TRAIN, 0, of_sessions=True)
            for path in (world.recorder.find_session(going["key"]).path, plan):
                path.write_text(path.read_text() + '{"event":"call","at":"2026')
        async with gateway(tmp_path / "run", model, upstream) as world:
            assert [trajectory.outcome.reward for trajectory in stored(world.run)] == [0.25]
            assert (await world.chat(going["key"], ask("First."))).json() == first.json()
            await world.chat(going["key"], ask("Second."))
            await end(world, await world.open())  # its line is after the torn one
            await end(world, going)
        async with gateway(tmp_path / "run", model, upstream) as world:
            steps = {trajectory.id: len(trajectory.steps) for trajectory in stored(world.run)}
            assert (steps[ended["id"]], steps[going["id"]], len(steps)) == (1, 2, 3)
            assert stored(world.run)[2].outcome.reward == 1
            assert (await world.chat(going["key"])).status_code == 401
    assert len(upstream.bodies) == 3


async def test_a_gateway_with_another_policy_takes_no_answers_of_the_one_before_for_its_own(tmp_path, model):
    """Sessions of `--policy URL` went on with the run's own policy, and were trained as all its own."""
    async with Upstream(ModelTokens(str(model))) as upstream:
        async with gateway(tmp_path / "run", model, upstream) as world:
            going, ended = await world.open(), await world.open()
            for session in (going, ended):
                await world.chat(session["key"], ask("First."))
            world.recorder.find_session(ended["key"]).record("end", end=Outcome())
            for path in world.run.sessions.iterdir():
                path.write_text(path.read_text().replace('"policy":"base"', '"policy":"another"'))
        async with gateway(tmp_path / "run", model, upstream) as world:
            outcomes = {one.id: (one.policy, one.outcome.failure) for one in stored(world.run)}
            assert outcomes == {going["id"]: ("another", "cancelled"), ended["id"]: ("another", None)}
            assert (await world.chat(going["key"])).status_code == 401


FULL = StoreError("No space left on device")


@pytest.mark.parametrize("waits", ["for its client", "for the next look"])
@pytest.mark.parametrize("later", [{"reward": 0, "answer": "changed"}, {"failure": "changed"}, {}])
async def test_a_session_whose_trajectory_a_full_disk_does_not_take_is_stored_later_as_it_ended(world, waits, later):
    session = await world.open()
    await world.chat(session["key"], ask("First."))
    (asking,) = await ask_at_once(world, session["key"])
    await world.upstream.requested.wait()
    path = f"/sessions/{session['id']}"
    with mock.patch.object(recorder, "append", side_effect=FULL):
        ended = await world.post(f"{path}/end", session["key"], {"reward": 1, "answer": "first"})
        world.upstream.may_answer.set()
        assert (ended.status_code, (await asking).status_code) == (503, 409)
        assert (await world.post(f"{path}/end", session["key"], later)).status_code == 503
        await look_for_expired(world)
        assert (await world.chat(session["key"], ask("Third."))).status_code == 409
        assert (await world.post(f"{path}/reward", session["key"], {"reward": 0.5})).status_code == 409
    if waits == "for its client":
        assert (await end(world, session, **later))["reward"] == 1
    else:
        await look_for_expired(world)
    (trajectory,) = stored(world.run)
    outcome = trajectory.outcome
    assert (outcome.reward, outcome.answer, outcome.failure, len(trajectory.steps)) == (1, "first", None, 1)
    (file,) = world.run.sessions.iterdir()
    assert file.name == f"{session['id']}.jsonl"
    lines = [json.loads(line)["event"] for line in file.read_text().splitlines()]
    assert lines == ["open", "call", "delivered", "reward", "end"]
    assert (await world.post(f"{path}/end", session["key"])).status_code == 401


async def test_while_the_disk_stays_full_each_session_is_tried_ever_more_rarely_and_noted_once(world, monkeypatch):
    ended = [world.recorder.find_session((await world.open())["key"]) for _ in range(2)]
    tries, looks, sleep = {session.id: [] for session in ended}, 0, asyncio.sleep
    monkeypatch.setattr(recorder, "_LOOK", 0)

    def refuse(run, trajectory):
        tries[trajectory.id].append(looks)
        raise FULL

    async def look_again(seconds):
        nonlocal looks
        looks += 1
        if looks == 3:
            ended[1].record("end", end=Outcome())
        if looks == 200:
            raise TimeoutError
        await sleep(seconds)

    ended[0].record("end", end=Outcome())
    with mock.patch.object(recorder, "append", refuse), mock.patch.object(asyncio, "sleep", look_again):
        await look_for_expired(world, patience=60)
    assert list(tries.values()) == [[0, 2, 4, 8, 16, 32, 64, 128, 192], [3, 4, 8, 16, 32, 64, 128, 192]]
    assert [event["id"] for event in world.events if event["event"] == "not_stored"] == list(tries)


async def test_an_end_that_arrives_while_another_is_read_is_of_no_open_session(world, monkeypatch):
    session, read = await world.open(), server._read_body
    await world.chat(session["key"])

    async def read_later(model, request):
        given = await read(model, request)
        if given.reward == 0:
            await end(world, session, reward=1)
        return given

    monkeypatch.setattr(server, "_read_body", read_later)
    answer = await world.post(f"/sessions/{session['id']}/end", session["key"], {"reward": 0})
    assert (answer.status_code, [one.outcome.reward for one in stored(world.run)]) == (401, [1])
    assert [path.name for path in world.run.sessions.iterdir()] == [f"{session['id']}.jsonl"]


async def test_no_file_holds_a_key(world):
    session = await world.open()
    await world.chat(session["key"])
    await end(world, session, reward=1)
    files = [path for path in world.run.root.rglob("*") if path.is_file()]
    assert files and not any(session["key"].encode() in path.read_bytes() for path in files)
    digest = hashlib.sha256(session["key"].encode()).hexdigest()
    assert digest in (world.run.sessions / f"{session['id']}.jsonl").read_text()


async def test_only_the_token_opens_sessions(tmp_path, model, monkeypatch):
    monkeypatch.setenv("GATEWAY_TOKEN", "token-of-the-harness")
    async with gateway(tmp_path / "run", model, host="0.0.0.0") as world:
        assert (await world.client.post("/sessions", json={})).status_code == 401
        assert (await world.post("/sessions", "token-of-the-harness")).status_code == 200
        assert (await world.chat("token-of-the-harness")).status_code == 401


async def test_an_address_that_others_reach_needs_a_token(tmp_path, model):
    with pytest.raises(SettingsError):
        async with gateway(tmp_path / "run", model, host="0.0.0.0"):
            pass


async def test_both_trainings_get_what_was_sampled(world, model):
    """Policy gradients: a row a call, a group of the sessions of a task; imitation: the same prompt and answer."""
    for reward in (0, 1):
        session = await world.open()
        for number in range(2):
            await world.chat(session["key"], ask(f"Step {number} of {reward}", picture("red")))
        await world.chat(session["key"], ask("Judge.") | {"model": "helper"})
        await end(world, session, reward=reward)
    settings = load(
        overrides=[
            *LIMITS,
            f"policy_config.base_model={model}",
            "train.algorithm=grpo",
            "algorithm_config.min_token_length=1",
        ]
    )
    with open_index(world.run) as index:
        data = execute(plan_batch(world.run, settings, index), world.run, settings, world.events.append)
    assert (data.trained, data.rows) == (2, 4)
    by_id = {trajectory.id: trajectory for trajectory in stored(world.run)}
    rows = [json.loads(line) for line in (world.run.rl_data / "rows.jsonl").read_text().splitlines()]
    for row in rows:
        generation = by_id[row["trajectory"]].steps[row["step"]].generation
        assert row["input_ids"][-len(generation.token_ids) :] == list(generation.token_ids)
        assert digest_tokens(row["input_ids"][: row["mask"].index(1)]) == generation.prompt_token_digest
    groups = [json.loads(line)["group"] for line in (world.run.rl_data / "trajectories.jsonl").read_text().splitlines()]
    assert groups == [0, 0]
    tokens = world.upstream.tokens
    converter = Converter(settings, tokens, ScreenshotStore(world.run.screenshots))
    for trajectory in by_id.values():
        sample = converter.convert(trajectory, 1)
        assert isinstance(sample, Sample)
        assert (
            digest_tokens(tokens.prompt_ids(sample.messages[:-1], [(64, 64)]))
            == trajectory.steps[1].generation.prompt_token_digest
        )


async def test_an_answer_in_other_tokens_than_its_text_has_is_imitated_on_request(world, model):
    world.upstream.pieces = [*world.upstream.text]  # as an answer that is held to a JSON schema
    session = await world.open()
    await world.chat(session["key"])
    await end(world, session, reward=1)
    ((trajectory,), tokens) = stored(world.run), world.upstream.tokens
    assert tokens.tokenizer.decode(trajectory.steps[0].generation.token_ids) == trajectory.steps[0].response
    results = {}
    for filtered in ("true", "false"):
        own = (f"policy_config.base_model={model}", "algorithm_config.min_token_length=1")
        settings = load(overrides=[*LIMITS, *own, f"algorithm_config.filter_retokenized={filtered}"])
        results[filtered] = Converter(settings, tokens, ScreenshotStore(world.run.screenshots)).convert(trajectory, 0)
    assert results["true"] is DropReason.RETOKENIZED
    assert results["false"].messages[-1].content == world.upstream.text


@pytest.mark.parametrize("name", ["openenv", "atif"])
async def test_sessions_are_exported_as_they_were_sampled(world, model, name):
    for reward in (0, 1):
        session = await world.open()
        world.upstream.text = CALL
        await world.chat(session["key"], ask("First.", picture("red")) | {"tools": [CLICK]})
        world.upstream.text = "It is done."
        await world.chat(session["key"], ask("Second.", picture("blue")) | {"tools": [CLICK]})
        await end(world, session, reward=reward)
    failed = await world.open()
    await end(world, failed)
    lines: list[str] = []
    overrides = [*LIMITS, f"policy_config.base_model={model}"]
    options = ExportOptions(name, embed_images=name == "openenv")
    stats = Export(world.run, load(overrides=overrides), options).execute(lines.append, world.events.append)
    assert (stats.records, stats.damaged) == (2, 0)
    episodes = [one for one in stored(world.run) if one.steps]
    check = {"openenv": check_training_trace, "atif": check_atif}[name]
    for line, result in zip(lines, episodes, strict=True):
        check(json.loads(line), result, world)
    broken = json.dumps(json.loads(lines[0]) | {"schema_version": "0"})
    assert await asyncio.to_thread(validate_with, READERS[name], [*lines, broken]) == [True, True, False]


READERS = {
    "openenv": "from openenv.core.harness.training import TrainingTrace as Model",
    "atif": "from harbor.models.trajectories import Trajectory as Model",
}
VALIDATE = """
import sys
for line in sys.stdin:
    try:
        Model.model_validate_json(line)
        print("true")
    except ValueError:
        print("false")
"""


def validate_with(reader, lines):
    """Return which lines the real package accepts, in the environment that it is installed in."""
    require(OPENENV)
    command, text = [OPENENV.python, "-c", reader + VALIDATE], "\n".join(lines)
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=300, check=True)
    return [json.loads(line) for line in done.stdout.split()]


def check_training_trace(trace, value, world):
    """Check the fields of schema 1, and that tokens and pictures are those of the session."""
    assert (set(trace), trace["schema_version"]) == ({"schema_version", "turns"}, 1)
    for turn, step in zip(trace["turns"], value.steps, strict=True):
        assert set(turn) == {
            *("node_id", "prompt_token_ids", "completion_token_ids", "per_token_logps", "loss_mask"),
            *("request", "response", "metadata"),
        }
        ids = turn["completion_token_ids"]
        assert digest_tokens(turn["prompt_token_ids"]) == step.generation.prompt_token_digest
        assert (tuple(ids), tuple(turn["per_token_logps"])) == (step.generation.token_ids, step.generation.logprobs)
        assert turn["loss_mask"] == [0] * len(turn["prompt_token_ids"]) + [1] * len(ids)
        (url,) = [
            part["image_url"]["url"]
            for message in turn["request"]["messages"]
            for part in message["content"]
            if part["type"] == "image_url"
        ]
        assert hashlib.sha256(base64.b64decode(url.partition(",")[2])).hexdigest() == step.sent.images[0]
        assert turn["metadata"]["reward"] == value.outcome.reward
    assert len({turn["node_id"] for turn in trace["turns"]}) == len(value.steps)


def check_atif(record, value, world):
    """Check the fields of ATIF 1.7, and that tokens and pictures are those of the session."""
    assert (record["schema_version"], record["session_id"]) == ("ATIF-v1.7", value.id)
    assert [step["step_id"] for step in record["steps"]] == list(range(1, len(record["steps"]) + 1))
    agent = [step for step in record["steps"] if step["source"] == "agent"]
    for step, of in zip(agent, value.steps, strict=True):
        assert step["metrics"]["completion_token_ids"] == list(of.generation.token_ids)
        assert step["metrics"]["prompt_tokens"] == of.generation.prompt_tokens
    assert [call["function_name"] for call in agent[0]["tool_calls"]] == ["click"]
    others = [step for step in record["steps"] if step["source"] != "agent"]
    assert all(set(step) == {"step_id", "source", "message"} for step in others)
    paths = [part["source"]["path"] for step in others for part in step["message"] if part["type"] == "image"]
    assert [Path(path).stem for path in paths] == [step.sent.images[0] for step in value.steps]
    assert record["extra"]["reward"] == value.outcome.reward
