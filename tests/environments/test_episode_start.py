import pytest

from tests.tables import each
from webgym_cli.environments.episode_start import EpisodeStart, parse_start
from webgym_cli.errors import BoundaryError
from webgym_cli.records.failure import FailureKind

COOKIE = {"name": "a", "value": "b"}


@pytest.mark.parametrize("answer", [None, {}, EpisodeStart()], ids=str)
def test_an_empty_answer_prepares_nothing(answer):
    assert parse_start(answer, "reset") == EpisodeStart()


def test_an_answer_as_json():
    start = parse_start({"start_url": "/t/7/", "cookies": [COOKIE], "state": {"tenant": 7}}, "reset")
    assert (start.start_url, start.cookies, start.state) == ("/t/7/", (COOKIE,), {"tenant": 7})


@each("answer", [[], "x", 7, {"url": "/"}, {"cookies": "a=b"}, {"cookies": [7]}, {"start_url": 3}])
def test_another_answer_is_a_failure_of_the_environment_that_names_who_answered(answer):
    with pytest.raises(BoundaryError, match="the reset of desk") as caught:
        parse_start(answer, "the reset of desk")
    assert caught.value.kind is FailureKind.ENVIRONMENT_ERROR


def test_a_later_start_keeps_what_it_does_not_set():
    first = EpisodeStart(start_url="/a", cookies=(COOKIE,), state=1)
    assert first.updated_by(EpisodeStart(cookies=(COOKIE,))) == first.model_copy(update={"cookies": (COOKIE, COOKIE)})
    assert first.updated_by(EpisodeStart(start_url="/b", state=2)).state == 2


@pytest.mark.parametrize(
    ("url", "domain", "path", "secure"),
    [
        ("https://s.test", "s.test", "/", True),
        ("http://s.test:8080/app", "s.test", "/", False),
        ("https://s.test/app/", "s.test", "/app/", True),
        ("http://s.test/a/b?c=/d/", "s.test", "/a/", False),
    ],
)
def test_a_cookie_of_an_address_is_stored_as_playwright_sets_it(url, domain, path, secure):
    (cookie,) = EpisodeStart(start_url="http://t.test/", cookies=({**COOKIE, "url": url},)).to_storage_state()[
        "cookies"
    ]
    assert cookie == {
        **COOKIE, "domain": domain, "path": path, "secure": secure, "expires": -1, "httpOnly": False, "sameSite": "Lax"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("own", "place"),
    [
        ({}, {"url": "https://s.test/x"}),
        ({"path": "/app"}, {"domain": "s.test", "path": "/app"}),
        ({"domain": "t.test"}, {"domain": "t.test", "path": "/"}),
        ({"url": "http://t.test"}, {"url": "http://t.test"}),
    ],
)
def test_a_cookie_without_a_place_is_for_the_site(own, place):
    assert EpisodeStart(cookies=({**COOKIE, **own},)).cookies_for("https://s.test/x") == ({**COOKIE, **place},)
