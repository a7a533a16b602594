"""The scripted judge: its rules, and that it speaks the protocol."""

import httpx
import openai
import pytest

from tests.tables import each
from webgym_cli.config.judge import JudgeSettings
from webgym_cli.config.model_servers import MODEL_SERVERS, SCRIPTED, ModelServer
from webgym_cli.config.trust import select_executed
from webgym_cli.errors import SettingsError
from webgym_cli.rewards.judge.client import require_judge
from webgym_cli.rewards.judge.judge import compute_settings_digest, name_models
from webgym_cli.rewards.judge.scripted_server import ScriptedJudgeServer, decide
from webgym_cli.rewards.judge.webgym import CARRIED_OUT


def verdict(job, **data):
    return decide(job, data)["verdict"]


def fact(text, answer="", *steps):
    return verdict("fact", fact=text, answer=answer, steps=steps)


@each(
    ("text", "answer", "expected"),
    [
        ("The year is 1665", "in 1665", "yes"),
        ("The year is 1665", "in 16650", "no"),
        ("The price is 12.50", "It costs 12.50.", "yes"),
        ('It is called "the Girl"', "THE GIRL", "yes"),
        ('It is called "the Girl" and is by Vermeer', "the girl", "no"),
        ("It's by Vermeer", "vermeer", "yes"),
        ("Rubens |OR| by Vermeer", "Vermeer", "yes"),
        ("some shoes are listed", "some shoes are listed here", "yes"),
        ("some shoes are listed", "some shoes", "no"),
        ("ok", "ok", "no"),
        ("", "anything", "no"),
    ],
)
def test_a_fact_needs_each_of_its_items(text, answer, expected):
    assert fact(text, answer) == expected


def test_a_task_with_names_is_carried_out_where_the_last_page_is_called_so():
    text = f'{CARRIED_OUT}show "Desk"'
    desk, lamps = {"title": "Desk – Shop"}, {"title": "Lamps – Shop"}
    assert fact(text, "", lamps, desk) == fact(text, "At the desk.") == "yes"
    assert fact(text, "", desk, lamps) == fact(text, "", {**lamps, "action": 'click "Desk"'}) == fact(text) == "no"


def test_a_fact_may_stand_in_a_step():
    stated = {field: fact("By Vermeer", "", {field: "Vermeer"}) for field in ("title", "action", "note", "url")}
    assert stated == {"title": "yes", "action": "yes", "note": "yes", "url": "no"}


@each(
    ("titles", "expected"),
    [
        (["Shop", "Please solve this CAPTCHA"], "yes"),
        (["Please solve this CAPTCHA", "Shop"], "no"),
        (["Access Denied"], "yes"),
        (["Just a moment..."], "yes"),
        (["Log in"], "no"),
        (["404 Not Found"], "no"),
    ],
)
def test_blocking_is_what_the_last_page_says(titles, expected):
    pages = [{"title": title, "url": "http://a.test/"} for title in titles]
    assert verdict("blocking", pages=pages) == expected


@each(("answer", "expected"), {"the girl": "yes", "  The GIRL! ": "yes", "B": "yes", "girl": "no", "": "no"}.items())
def test_a_reference_is_compared_apart_from_case_and_punctuation(answer, expected):
    assert verdict("reference", reference="The Girl|OR|b.", answer=answer) == expected


def test_claims_need_an_answer_and_key_points_a_word_of_the_task():
    assert [verdict("claims", answer=answer) for answer in (" ", "a")] == ["no", "yes"]
    pages = ({"title": "Portraits", "url": ""}, {"title": "", "url": "http://a/portrait"}, {"title": "News", "url": ""})
    assert [verdict("key_point", task="Find a portrait", page=page) for page in pages] == ["yes", "yes", "no"]
    assert "no picture was looked at" in decide("claims", {"answer": "a"})["reason"]


async def test_it_speaks_the_protocol():
    async with ScriptedJudgeServer() as server, openai.AsyncOpenAI(base_url=server.base_url, api_key="none") as client:
        assert [model.id async for model in client.models.list()] == [SCRIPTED.model]
        with pytest.raises(openai.BadRequestError, match="not a question of webgym's judge"):
            await client.chat.completions.create(model="a", messages=[{"role": "user", "content": "Hello"}])
        async with httpx.AsyncClient() as http:
            answer = await http.post(f"{server.base_url}/chat/completions", content=b"{half")
        assert answer.status_code == 400


@pytest.mark.parametrize("own", [{}, {"model": "other"}, {"jobs": {"blocking": {"model": "small", "temperature": 1}}}])
async def test_a_plan_names_the_digest_that_the_scripted_judge_stores(own):
    """Otherwise the same command judged everything again, and an evaluation found none of its verdicts."""
    planned = JudgeSettings.model_validate({"base_url": "scripted", **own})
    async with planned.reach() as answering:
        assert compute_settings_digest(planned) == compute_settings_digest(answering)


async def test_a_plugin_brings_a_model_server_of_its_own(monkeypatch):
    """A command starts it, stores its model's name, and trusts its name as little as the plugin."""
    planned = JudgeSettings(base_url="mine")
    with pytest.raises(SettingsError, match="mine"):
        require_judge(planned)
    assert select_executed({"judge.base_url": "mine"})
    monkeypatch.setitem(MODEL_SERVERS.registered, "mine", ModelServer("my-model", SCRIPTED.start))
    require_judge(planned)
    assert not select_executed({"judge.base_url": "mine"})
    async with planned.reach() as answering:
        assert (answering.model, answering.base_url[:17]) == ("my-model", "http://127.0.0.1:")
        async with httpx.AsyncClient() as http:
            assert (await http.get(f"{answering.base_url}/models")).status_code == 200
    assert name_models(planned) == name_models(answering)
