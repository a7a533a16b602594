"""The viewer, as a person uses it: in a browser, by filters, links and keys."""

import html
import io

import aiohttp
import pytest
from PIL import Image

from tests.inspect.buffers import attempt, fill_run
from tests.records.builders import png, shot, step
from tests.records.test_judgement import judgement
from webgym_cli.compare.views import render_study
from webgym_cli.errors import StoreError
from webgym_cli.inspect import viewer
from webgym_cli.inspect.viewer import LARGEST, EpisodeTable, ViewServer, make_thumbnail
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.judgement import Verdict
from webgym_cli.records.task import Split
from webgym_cli.records.trajectory import Observation, Outcome
from webgym_cli.store.buffer import append, append_judgement
from webgym_cli.store.index.query import open_index
from webgym_cli.store.screenshots import ScreenshotStore

HOSTILE = "</h2><script>document.title = 'taken'</script><img src=http://evil.test/x onerror=alert(1)>"
BROKEN = Outcome(failure=FailureKind.BROWSER_CRASHED, failure_detail="gone")
IDS = [f"test-0000-{number:05d}" for number in range(5)]


def watched(number):
    seen = Observation(url="http://a.test/", title=HOSTILE, screenshot=shot(100, 640, 384))
    return tuple(step(n, observation=seen, response=HOSTILE) for n in range(number))


@pytest.fixture
def run(tmp_path):
    """Two episodes of a kettle, one with a verdict, a hostile one, a crash, and one without a step."""
    run = fill_run(
        tmp_path / "run",
        attempt(0, "kettle", True, instruction="Buy a red kettle.").model_copy(update={"steps": watched(3)}),
        attempt(1, "kettle", None, instruction="Buy a red kettle.").model_copy(update={"steps": watched(2)}),
        attempt(2, HOSTILE, True, instruction=HOSTILE),
        attempt(3, "lamp", None, outcome=BROKEN),
        attempt(4, "lamp", False, steps=0),
    )
    ScreenshotStore(run.screenshots).put(png(100, 640, 384))
    fact = Verdict(question="It is red.", passed=False, reason="It is blue.", votes=(False,))
    append_judgement(run, Split.TEST, 0, judgement(trajectory=IDS[1], success=False, facts=(fact,)))
    return run


def serve(*runs):
    """Return a server of runs, whose charts are a title and whose study is its links."""

    def link(_pairs, links):
        return "".join(f"<a href={address}>{name}</a> " for name, address in links.items()).encode()

    return ViewServer(runs, lambda *_: b"<title>charts</title>", link)


@pytest.fixture
def served(run):
    return serve(run)


@pytest.fixture
async def view(chromium):
    """A narrow tab, what it asked for and what went wrong."""
    tab = await chromium.new_page(viewport={"width": 380, "height": 700})
    tab.requests, tab.errors = [], []
    tab.on("request", lambda request: tab.requests.append(request.url))
    for event in ("console", "pageerror", "dialog"):
        tab.on(event, lambda rows: tab.errors.append(getattr(rows, "text", str(rows))))
    yield tab
    await tab.close()
    # screenshots that are lost, of which the card has the name
    assert [error for error in tab.errors if "Failed to load resource" not in error] == []
    assert [url for url in tab.requests if not url.startswith(("http://127.0.0.1:", "data:"))] == []


async def list_ids(view):
    return await view.locator("article a.open").all_inner_texts()


@pytest.mark.browser
async def test_a_person_finds_an_episode_and_looks_at_it(served, view, monkeypatch):
    monkeypatch.setattr(viewer, "PAGE", 3)
    async with served as server:
        await view.goto(server.url)
        assert await list_ids(view) == IDS[:3]
        assert await view.evaluate("document.documentElement.scrollWidth") <= 380
        assert await view.locator("h2").nth(2).inner_text() == HOSTILE
        await view.keyboard.press("n")
        await view.wait_for_url("**page=1")
        assert await list_ids(view) == IDS[3:]
        await view.keyboard.press("/")
        await view.keyboard.type("RED kettle")
        await view.keyboard.press("Enter")
        await view.wait_for_url("**words=RED+kettle**")
        assert await list_ids(view) == IDS[:2]
        await view.locator("a.open").first.click()
        await view.locator("section.step svg").first.wait_for()  # where it clicked
        assert await view.evaluate("document.documentElement.scrollWidth") <= 380
        await view.keyboard.press("j")
        await view.keyboard.press("J")
        edge = "(step) => step.getBoundingClientRect().top - document.querySelector('nav.film').offsetHeight"
        assert abs(await view.locator("#step-1").evaluate(edge)) < 20
        assert await view.locator("nav.film a[aria-current]").all_inner_texts() == ["1"]
        await view.keyboard.press("n")
        await view.wait_for_url(f"**id={IDS[1]}**")
        assert "It is blue." in await view.locator("header").inner_text()
        await view.keyboard.press("Escape")
        await view.wait_for_url(lambda url: "/?words=RED+kettle" in url)  # the episode's address has the words, too
        assert await list_ids(view) == IDS[:2]
        choice = view.locator("select[name=outcome]")
        values = await choice.locator("option").all_inner_texts()
        await choice.focus()
        for _ in range(2):  # by keyboard: the first value is not filtered by on the way to the second
            await view.keyboard.press("ArrowDown")
        await view.get_by_role("button", name="Filter").press("Enter")
        await view.wait_for_url(lambda url: f"outcome={values[2].replace(' ', '+')}" in url)
        for name in await list_ids(view):
            assert await view.get_by_role("checkbox", name=f"{name} side by side").count() == 1


async def list_shown(view):
    """Return the numbers of the steps that are not hidden."""
    steps = view.locator("section.step")
    return [number for number in range(await steps.count()) if await steps.nth(number).is_visible()]


@pytest.mark.browser
async def test_a_person_plays_an_episode_as_a_film(served, view):
    async with served as server:
        await view.clock.install(time=0)
        await view.goto(f"{server.url}episode?id={IDS[0]}")
        await view.clock.pause_at(3600)  # else it goes on by itself, as on a busy machine
        marked = view.locator("nav.film a[aria-current]")
        play = view.get_by_role("button", name="play")
        await view.keyboard.press(" ")
        assert await list_shown(view) == [0]
        assert await play.get_attribute("aria-pressed") == "true"
        assert await view.locator("section.now svg .dot").is_visible()  # where it clicked
        await view.clock.run_for(1000)
        assert (await list_shown(view), await marked.all_inner_texts()) == ([1], ["1"])
        await view.keyboard.press("k")
        assert await list_shown(view) == [0]
        await view.locator("nav.film a").nth(1).click()
        assert await list_shown(view) == [1]
        assert await view.evaluate("document.documentElement.scrollWidth") <= 380
        await play.click()
        assert (await list_shown(view), await marked.all_inner_texts()) == ([0, 1, 2], ["1"])
        await play.click()
        await view.clock.run_for(1000)
        assert await list_shown(view) == [2]
        await view.clock.run_for(1000)  # its end
        assert await list_shown(view) == [0, 1, 2]
        assert await play.get_attribute("aria-pressed") == "false"
        await view.locator("summary").first.focus()
        await view.keyboard.press(" ")  # opens what has the focus
        assert await view.locator("details").first.get_attribute("open") is not None
        assert await list_shown(view) == [0, 1, 2]


CONTRAST = """() => {
  const light = (color) => {
    const parts = color.match(/[\\d.]+/g).slice(0, 3).map((part) => part / 255)
      .map((part) => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  };
  const ground = (node) => {
    const color = getComputedStyle(node).backgroundColor;
    return color !== "rgba(0, 0, 0, 0)" || !node.parentElement ? color : ground(node.parentElement);
  };
  const names = "h1, h2, h3, a, dd, dt, pre, .soft, .state, .bad, .good, .odd, kbd, button, input, select";
  const texts = [...document.querySelectorAll(names)];
  return texts.filter((node) => node.checkVisibility()).map((node) => {
    const pair = [light(getComputedStyle(node).color), light(ground(node))].sort((one, two) => two - one);
    return [(pair[0] + 0.05) / (pair[1] + 0.05), node.outerHTML.slice(0, 80)];
  }).filter(([contrast]) => contrast < 4.5);  // of WCAG
}"""


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_texts_stand_out_in_both_schemes(served, view, scheme):
    await view.emulate_media(color_scheme=scheme)
    async with served as server:
        for page in ("", f"episode?id={IDS[1]}", f"episode?id={IDS[3]}"):
            await view.goto(server.url + page)
            assert await view.evaluate(CONTRAST) == []
            ground = await view.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (ground == "rgb(20, 21, 23)") == (scheme == "dark")


@pytest.mark.browser
async def test_two_episodes_side_by_side_move_together(served, view):
    async with served as server:
        await view.set_viewport_size({"width": 1200, "height": 700})
        await view.goto(server.url)
        for name in IDS[:2]:
            await view.locator(f"input[value={name}]").check()
        await view.keyboard.press("c")
        await view.wait_for_url("**/pair?**")
        frames = [view.frame_locator("iframe").nth(n) for n in range(2)]
        for frame in frames:
            await frame.locator("#step-1").wait_for()
        await frames[1].locator("summary").first.focus()  # a key pressed there moves the other one, too
        await view.keyboard.press("j")
        await view.keyboard.press("j")
        for frame in frames:
            assert await frame.locator("#step-1").evaluate("(step) => step.getBoundingClientRect().top < 400")
        await view.get_by_role("button", name="play").click()
        for frame in frames:
            await frame.locator(".playing .now").wait_for()
        await frames[1].locator("#step-0").wait_for(state="visible")  # it was at its end, so it begins again
        assert await frames[0].locator("section.step:visible").count() == 1
        await view.get_by_role("button", name="play").first.click()
        await view.keyboard.press("Escape")
        await view.wait_for_url(lambda url: url.rstrip("?") == server.url)
        await view.keyboard.press("r")
        await view.wait_for_url("**/report")
        assert await view.title() == "charts"


@pytest.mark.browser
async def test_several_runs_begin_with_their_curves_and_a_refresh_shows_what_is_new(run, view, tmp_path):
    other = fill_run(tmp_path / "other", attempt(0, "lamp", True))
    async with serve(run, other) as server:
        await view.goto(server.url)
        names = view.locator("a")
        assert await names.all_inner_texts() == [str(run.root), str(other.root)]
        assert await view.evaluate("document.documentElement.scrollWidth") <= 380
        await names.nth(1).click()
        await view.wait_for_url("**/1/")
        assert await list_ids(view) == IDS[:1]
        append(other, attempt(1, "lamp", False))
        await view.goto(f"{server.url}1/?outcome=not+solved")
        assert await list_ids(view) == []
        await view.keyboard.press("u")
        await view.locator("article").wait_for()
        assert await list_ids(view) == IDS[1:2]
        await view.keyboard.press("a")
        await view.wait_for_url(server.url)


@pytest.mark.parametrize(
    ("damaged", "words"),
    [
        ("{", "not JSON"),
        ("[]", "not a mapping of sections"),
        ('"text"', "not a mapping of sections"),
        ('{"new_section": {"on": true}}', "new_section"),
        ('{"agent": {"max_steps": "x"}}', "agent.max_steps"),
        ('{"agent": 3}', "agent"),
        (None, "can't be read"),
    ],
)
def test_a_run_with_damaged_settings_hides_no_other(run, tmp_path, damaged, words):
    other = fill_run(tmp_path / "other", attempt(0, "lamp", True))
    for broken in (other, run):
        broken.config.unlink() if damaged is None else broken.config.write_text(damaged)
        for runs in ((run, other), (other, run)):
            server = ViewServer(runs, lambda *_: b"", render_study)
            if broken is run:
                with pytest.raises(StoreError, match="config"):
                    server._render_study()
            else:
                shown = html.unescape(server._render_study().decode())
                assert f">{run.root}<" in shown and shown.count(f"{other.config}: ") == 1 and words in shown


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ({}, IDS),
        ({"outcome": "failure"}, [IDS[3]]),
        ({"failure": "browser_crashed", "words": "gone"}, [IDS[3]]),
        ({"verdict": "no"}, [IDS[1]]),
        ({"reward": "1.0", "site": "kettle.test"}, [IDS[0]]),
        ({"task": HOSTILE}, [IDS[2]]),
        ({"words": "' OR 1=1 --"}, []),
        ({"where": "steps = 0"}, [IDS[4]]),
    ],
)
def test_filters(run, query, wanted):
    with open_index(run) as index:
        table = EpisodeTable(index)
        where, values = table.read_filter(query)
        assert [row["id"] for row in table.list_page(where, values, 0)] == wanted
        assert table.count(where, values) == len(wanted)


@pytest.mark.parametrize(
    ("size", "small"), [((1280, 800), (320, 200)), ((40, 32), (40, 32)), ((40, 6400), (2, LARGEST))]
)
def test_an_image_is_made_small_and_never_larger(size, small):
    with Image.open(io.BytesIO(make_thumbnail(png(3, *size)))) as image:
        assert (image.format, image.size) == ("WEBP", small)


@pytest.mark.parametrize("content", [b"", b"no image", png(1, 400, 400)[:60]], ids=["empty", "text", "torn"])
def test_what_is_no_image_is_said_to_be_none(content):
    with pytest.raises(StoreError, match="the screenshot is no image"):
        make_thumbnail(content)


@pytest.mark.parametrize(
    ("path", "host", "status"),
    [
        ("", None, 200),
        ("?page=x", None, 200),
        ("?page=99", None, 200),
        ("", "evil.test", 403),
        ("../", None, 404),
        ("episode?id=nothing", None, 400),
        ("pair?id=a", None, 400),
        ("?where=1%3D1)%3B+DROP+TABLE+episodes", None, 400),
        ("?where=nothing", None, 400),
        (f"thumbnail?id={IDS[0]}", None, 200),
        (f"thumbnail?id={IDS[2]}", None, 400),  # its image is lost
        (f"thumbnail?id={IDS[4]}", None, 404),
    ],
)
async def test_only_what_is_there_is_served(served, path, host, status):
    async with served as server, aiohttp.ClientSession() as session:
        answer = await session.get(server.url + path, headers={"Host": host} if host else {})
        assert answer.status == status
        assert "http-equiv" not in await answer.text(errors="replace") or "default-src 'none'" in await answer.text()
