"""Labelling by hand, as a person does it: in a browser, by keys, without seeing what others said."""

from html import unescape
from urllib.parse import quote

import aiohttp
import pytest

from tests.inspect.buffers import attempt, fill_run
from tests.records.test_judgement import judgement
from webgym_cli.errors import UsageError
from webgym_cli.evaluate.agreement import read_labels
from webgym_cli.inspect.labelling import LabelServer, read_episodes_to_label
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.task import Split
from webgym_cli.records.trajectory import Outcome
from webgym_cli.store.buffer import append_judgement, iter_labels
from webgym_cli.store.index.query import open_index

BROKEN = Outcome(failure=FailureKind.BROWSER_CRASHED, failure_detail="gone")
IDS = ["test-0000-00000", "test-0000-00001"]


@pytest.fixture
def run(tmp_path):
    """Two episodes to label, one of them with a verdict, and one whose browser crashed."""
    run = fill_run(
        tmp_path / "run",
        attempt(0, "a", True, instruction="Buy a red kettle."),
        attempt(1, "b", None, instruction="Find the oldest letter."),
        attempt(2, "c", None, outcome=BROKEN),
    )
    verdict = judgement(trajectory=IDS[1], models={"verdict": "secret-judge"}, success=True)
    append_judgement(run, Split.TEST, 0, verdict)
    return run


def serve_labels(run, ids=None):
    with open_index(run) as index:
        return LabelServer(run, read_episodes_to_label(run, index, ids))


def label_by_ben(run, name, value):
    with open_index(run) as index:
        serve_labels(run).add("ben", read_episodes_to_label(run, index, [name])[name], value)


def stored_labels(run):
    return {(label.who, label.trajectory): label.label for label in iter_labels(run)}


@pytest.mark.browser
async def test_a_person_labels_by_keys_and_sees_no_verdict(run, chromium):
    async with serve_labels(run) as server:
        view = await chromium.new_page(viewport={"width": 380, "height": 700})
        requests, errors = [], []
        view.on("request", lambda request: requests.append(request.url))
        view.on("console", lambda message: errors.append(message.text))
        await view.goto(server.url)
        await view.fill("input", "Anna अनिता")
        await view.click("button")
        assert await view.locator("h1").inner_text() == "Buy a red kettle."
        text = await view.content()
        assert not [word for word in ("solved", "reward", "Judgement", "secret-judge") if word in text]
        assert await view.evaluate("document.documentElement.scrollWidth") <= 380
        await view.keyboard.press("Y")
        await view.wait_for_url(f"**/{IDS[1]}")
        assert "secret-judge" not in await view.content()
        await view.keyboard.press("b")
        await view.wait_for_url(f"**/{IDS[0]}")
        assert await view.locator("button[aria-pressed=true]").get_attribute("value") == "yes"
        await view.keyboard.press("n")  # she changes her mind
        await view.wait_for_url(f"**/{IDS[1]}")
        await view.click("button[value=unsure]")
        await view.wait_for_url(f"**/{quote('Anna अनिता')}/")
        assert "All 2 episodes" in await view.locator("main").inner_text()
        await view.close()
    assert errors == []
    assert [url for url in requests if not url.startswith(("http://127.0.0.1:", "data:"))] == []
    assert stored_labels(run) == {("Anna अनिता", IDS[0]): "no", ("Anna अनिता", IDS[1]): "unsure"}
    assert len(list(iter_labels(run))) == 3  # both of her labels stay


async def test_people_label_apart_and_go_on_where_they_stopped(run):
    for value in ("yes", "no"):  # the second time from what is stored
        async with serve_labels(run) as server, aiohttp.ClientSession() as session:
            first = await session.get(f"{server.url}ben/")
            await session.post(first.url, data={"label": value})
            other = await session.get(f"{server.url}cleo/")
            assert (first.url.name, other.url.name) == (IDS[value == "no"], IDS[0])
    assert stored_labels(run) == {("ben", IDS[0]): "yes", ("ben", IDS[1]): "no"}
    newest = {(label.who, label.name): label.success for label in read_labels(run.root)}
    assert newest == {("ben", IDS[0]): True, ("ben", IDS[1]): False}


def test_a_label_that_a_crash_cut_off_hides_no_other(run):
    label_by_ben(run, IDS[0], "yes")
    (file,) = run.root.glob("*/*/labels.jsonl")
    with file.open("a") as torn:
        torn.write('{"trajectory": "test-00')
    label_by_ben(run, IDS[1], "no")
    assert serve_labels(run).read_labels() == {"ben": dict(zip(IDS, ("yes", "no"), strict=True))}


def test_two_servers_of_a_run_know_each_others_labels(run):
    other = serve_labels(run)
    label_by_ben(run, IDS[0], "yes")
    assert other.find_next("ben") == IDS[1]


async def test_labels_of_other_episodes_are_not_counted(run):
    label_by_ben(run, IDS[0], "yes")
    async with serve_labels(run, [IDS[1]]) as server, aiohttp.ClientSession() as session:
        page = await (await session.get(f"{server.url}ben/")).text()
    assert "ben, 0 of 1" in page


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("Anna Maria", "Anna Maria"),
        ("  Anna \t Maria ", "Anna Maria"),
        ("O'Neil, J.", "O'Neil, J."),
        ("अनिता", "अनिता"),
        ("Zoe\u0308", "Zo\u00eb"),
        ("a?b#c\\50%2f", "a?b#c\\50%2f"),
        ("<b>&", "<b>&"),
        ("\ufb01n", "\ufb01n"),
        ("\u0639\u0644\u06cc\u200c\u0631\u0636\u0627", "\u0639\u0644\u06cc\u200c\u0631\u0636\u0627"),  # with a joiner
        *((f"a{one}b", None) for one in ("\0", "\x1b", "\u200b", "\u202e")),
        ("a\u200d", None),
        ("x" * 40, "x" * 40),
        ("x" * 41, None),
        ("a/b", None),
        (".a", None),
        ("..", None),
    ],
)
async def test_a_name_is_any_words_that_an_address_can_hold(run, given, name):
    async with serve_labels(run) as server, aiohttp.ClientSession() as session:
        first = await session.get(server.url, params={"who": given})
        assert first.status == (400 if name is None else 200)
        if name is not None:
            await session.post(first.url, data={"label": "yes"})
            assert f"{name}, 1 of 2" in unescape(await (await session.get(first.url)).text())
    assert stored_labels(run) == ({} if name is None else {(name, IDS[0]): "yes"})


@pytest.mark.parametrize(
    ("path", "host", "status"),
    [
        ("", None, 200),
        ("ben/", "evil.test", 403),
        ("../", None, 404),
        ("ben/test-0000-00002", None, 404),  # it failed: there is nothing to label
        ("..%2f/test-0000-00000", None, 404),
        ("a%2fb/", None, 404),
        (f"{'x' * 41}/", None, 404),
        ("a%00b/test-0000-00000", None, 404),
    ],
)
async def test_only_the_address_itself_is_served(run, path, host, status):
    async with serve_labels(run) as server, aiohttp.ClientSession() as session:
        assert (await session.get(server.url + path, headers={"Host": host} if host else {})).status == status
        assert (await session.post(f"{server.url}ben/{IDS[0]}", data={"label": "maybe"})).status == 400
    assert stored_labels(run) == {}


@pytest.mark.parametrize("ids", [["test-0000-00002"], ["nothing"]])
def test_what_can_not_be_labelled_is_named(run, ids):
    with pytest.raises(UsageError, match=ids[0]):
        serve_labels(run, ids)
