"""A user's set-up function: what it returns starts the episode, and what it raises is an infrastructure failure."""

import asyncio
import time
import warnings
from contextlib import AsyncExitStack
from unittest import mock

import pytest

from webgym_cli.environments.episode_start import EpisodeStart
from webgym_cli.environments.sites import setup
from webgym_cli.environments.sites.site_setup import SETUPS, require_setup_fields, set_up_site
from webgym_cli.errors import BoundaryError, UsageError
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.task import Task

TASK = Task(id="a", site="desk", role="agent", start_url="http://desk:80/tickets", extra={"title": "Chair"})
START = EpisodeStart(start_url=TASK.start_url, cookies=({"name": "a", "value": "b", "domain": "desk"},), state=1)


@pytest.fixture(autouse=True)
def _no_setups():
    with mock.patch.dict(SETUPS.registered, clear=True):
        yield


async def prepare(function, held=None, **options):
    setup("desk", **options)(function)
    return await set_up_site(TASK, "train-0-0.1", 7, START, 5.0, held or AsyncExitStack())


async def test_a_setup_adds_to_the_start_of_the_episode():
    async def make(context, title, role):
        assert (context.id, context.seed, context.url, context.state) == ("train-0-0.1", 7, TASK.start_url, 1)
        cookies = [{"name": "tenant", "value": title}, {"name": "x", "value": "y", "domain": "other"}]
        return {"start_url": "/tenant/1?as=agent", "cookies": cookies, "state": {"ids": (1, 2)}}

    start = await prepare(make)
    assert start.start_url == "http://desk:80/tenant/1?as=agent"
    assert start.cookies == (
        *START.cookies,
        {"name": "tenant", "value": "Chair", "url": "http://desk:80"},
        {"name": "x", "value": "y", "domain": "other", "path": "/"},
    )
    assert start.state == {"ids": [1, 2]}  # as it is stored with the episode


async def test_a_setup_may_return_nothing_and_a_site_may_have_none_and_a_state_be_zero():
    assert await set_up_site(TASK, "x", 0, START, 5.0, AsyncExitStack()) == START
    assert await prepare(lambda: None) == START
    SETUPS.registered.clear()
    assert (await prepare(lambda: {"state": 0})).state == 0


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_generator_goes_on_once_the_episode_is_over(is_async):
    done = []

    def make(title):
        done.append("made")
        yield {"state": title}
        done.append("removed")

    async def make_later(title):
        for answer in make(title):
            yield answer

    setup("desk")(make_later if is_async else make)
    async with AsyncExitStack() as held:
        start = await set_up_site(TASK, "x", 0, START, 5.0, held)
        assert (start.state, done) == ("Chair", ["made"])
    assert done == ["made", "removed"]


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (lambda role: ({"state": 1 // (1 - count)} for count in range(2)), "ZeroDivisionError"),
        (lambda role: ({"state": count} for count in range(2)), "ValueError: it yielded again"),
        (lambda role: (None for count in range(2)), "ValueError: it yielded again"),
    ],
)
async def test_what_fails_after_an_episode_is_shown_for_each(plan, words):
    setup("desk")(plan)
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("default")
        for episode in "xy":
            async with AsyncExitStack() as held:
                await set_up_site(TASK, episode, 0, START, 5.0, held)
    first, second = (str(note.message) for note in notes)
    assert first.startswith(f"after the episode x the setup desk failed: {words}")
    assert second == first.replace("episode x", "episode y")


async def test_a_generator_that_takes_too_long_cleans_up_and_goes_no_further():
    done = []

    def make():
        try:
            time.sleep(0.2)
            yield
        finally:
            done.append("removed")
        done.append("went on")

    setup("desk", timeout=0.05)(make)
    with warnings.catch_warnings(action="error"):
        async with AsyncExitStack() as held:
            with pytest.raises(BoundaryError, match=r"more than 0.05 s"):
                await set_up_site(TASK, "x", 0, START, 5.0, held)
    await asyncio.sleep(0.4)
    assert done == ["removed"]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("http://desk/", "is no mapping of start_url"),
        ({"url": "http://desk/"}, "url: there is no such field"),
        ({"cookies": "a=b"}, "cookies"),
        ({"cookies": [{"name": "tenant"}]}, "cookies: value should be a text, not None"),
        ({"cookies": [{"name": "tenant", "value": 7}]}, "cookies: value should be a text, not 7"),
        ({"start_url": "http://[::1"}, "start_url"),
        ({"start_url": "localhost:8000/"}, "start_url: 'localhost:8000/' is neither a path nor"),
        ({"state": object()}, "serializ"),
        ({"state": {"share": float("nan")}}, "not JSON compliant"),
    ],
)
async def test_any_other_value_is_a_failure_of_the_environment(answer, words):
    with pytest.raises(BoundaryError, match=f"setup desk.*{words}") as caught:
        await prepare(lambda: answer)
    assert caught.value.kind is FailureKind.ENVIRONMENT_ERROR


async def fail_later():
    yield {"state": 1 // 0}


@pytest.mark.parametrize("fail", [lambda: 1 / 0, lambda: ({"state": 1 // count} for count in range(2)), fail_later])
async def test_what_a_setup_raises_or_its_deadline_names_the_line(fail):
    async with AsyncExitStack() as held:  # what has failed is not gone on with
        with pytest.raises(BoundaryError, match=r"desk .*ZeroDivisionError.*\(test_site_setup.py:\d+\)"):
            await prepare(fail, held)
    SETUPS.registered.clear()
    with pytest.raises(BoundaryError, match=r"more than 0.05 s"):
        await prepare(lambda: time.sleep(60), timeout=0.05)


def test_a_task_is_refused_that_lacks_a_field_of_its_setup_and_a_setup_without_a_site():
    setup("desk")(lambda context, title, owner: None)
    with pytest.raises(UsageError, match=r"desk needs owner, .* the task a"):
        require_setup_fields(TASK)
    # a field of the context's name is hidden, not refused
    require_setup_fields(TASK.model_copy(update={"extra": {"title": "Chair", "owner": "A", "context": "Chair"}}))
    with pytest.raises(UsageError, match="needs the site"):
        setup(lambda: None)
