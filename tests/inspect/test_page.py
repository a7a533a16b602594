"""An episode's page: complete in itself, and what others wrote is text in it. Drawn by a real Chromium."""

import re

import pytest
import pytest_asyncio

from tests.own_pages import assert_complete
from tests.records.builders import digested, png, shot, step, trajectory
from tests.records.test_judgement import ANSWERED, judgement
from webgym_cli.inspect.page import EpisodeView, render_episode_page
from webgym_cli.records.action import Action, ActionName
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.judgement import Verdict
from webgym_cli.records.task import Task
from webgym_cli.records.trajectory import Element, Observation, ParseErrorKind, PromptSpec
from webgym_cli.store.screenshots import ScreenshotStore

HOSTILE = (
    "</pre></title></style><script>document.title = 'taken'</script><img src=http://evil.test/x onerror=alert(1)>"
    "<a href=javascript:alert(1)>\"' &amp; <!-- \u202e {{ 7 * 7 }}"
)
WIDE, HIGH = 640, 384
BUTTON = Element(id=7, role="button", name=HOSTILE, box=(100, 50, 60, 20))


def sight(shade, **changes):
    values = {"url": f"http://shop.test/?{HOSTILE}", "title": HOSTILE, "screenshot": shot(shade, WIDE, HIGH)}
    return Observation.model_validate({**values, **changes})


@pytest.fixture
def store(tmp_path):
    kept = ScreenshotStore(tmp_path / "screenshots")
    for shade in range(3):
        kept.put(png(shade * 60 + 60, WIDE, HIGH))
    return kept


@pytest.fixture
def episode_view():
    typed = Action(name=ActionName.TYPE, element_id=7, text=HOSTILE)
    hostile = sight(120, elements=(BUTTON,), notices=(HOSTILE,))
    steps = (
        step(0, observation=sight(60), response=HOSTILE, action=Action(name=ActionName.CLICK, coordinate=(250, 500))),
        step(1, observation=hostile, action=typed, action_error=HOSTILE),
        step(2, observation=sight(180), action=None, parse_error=ParseErrorKind.INVALID_JSON, page_changed=None),
        step(3, observation=sight(250), action=Action(name=ActionName.ANSWER, text="42"), page_changed=None),  # lost
    )
    outcome = ANSWERED.model_copy(update={"reward": 0.0, "answer": HOSTILE})
    task = Task(id="t<b>", start_url="http://shop.test/", rubric=(HOSTILE,), reference_answer=HOSTILE)
    prompt = PromptSpec(version="full")  # the name of an action set, no member of PromptVersion
    episode = trajectory(steps=0, id="a<b>", task=task, instruction=HOSTILE, outcome=outcome, prompt=prompt)
    claims = Verdict(question=HOSTILE, passed=True, reason=HOSTILE, votes=(True, True, False))
    fact = Verdict(question="It is cheap.", passed=False, reason="It is not.", votes=(False,))
    verdict = judgement(success=False, claims=claims, facts=(fact,), models={"verdict": HOSTILE})
    earlier = judgement(models={"verdict": HOSTILE}, failure=FailureKind.JUDGE_FAILED, failure_detail=HOSTILE)
    return EpisodeView(digested(episode.model_copy(update={"steps": steps})), (earlier, verdict))


def test_nothing_foreign_is_markup_and_nothing_is_loaded(episode_view, store):
    text = render_episode_page(episode_view, store).decode()
    assert text.startswith("<!doctype html>")
    assert re.findall(r"<(script|iframe|object|embed|form|link)\b[^>]*", text) == ["link"]
    assert set(re.findall(r'(?:src|href)="([a-z]+:|#)', text)) == {"data:", "#"}
    assert "{{ 7 * 7 }}" in text
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    closed = "default-src 'none'; img-src data:; connect-src 'none'; frame-src 'none'; style-src 'sha256-"
    assert policy[1].replace("&#39;", "'").startswith(closed)


def test_a_prompt_that_was_not_sent_so_is_said_to_be_another(episode_view, store):
    assert b"rendered anew" not in render_episode_page(episode_view, store)
    first, *others = episode_view.trajectory.steps
    steps = (first.model_copy(update={"prompt_digest": "0" * 64}), *others)
    changed = EpisodeView(episode_view.trajectory.model_copy(update={"steps": steps}))
    assert render_episode_page(changed, store).count(b"rendered anew") == 1


def test_control_characters_and_halves_of_characters_are_not_written(episode_view, store):
    for text, written in (("a\x00b\x1b[2Jc\x9bd\x7fe\rf\x08", "a·b·[2Jc·d·e·f·"), ("half \ud83d", "half ?")):
        hostile = episode_view.trajectory.model_copy(update={"instruction": text})
        page = render_episode_page(EpisodeView(hostile), store).decode()
        assert written in page
        assert re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", page) is None


@pytest_asyncio.fixture
async def shown(view, episode_view, store, tmp_path):
    """The page in a browser."""
    path = tmp_path / "page.html"
    path.write_bytes(render_episode_page(episode_view, store))
    await view.goto(path.as_uri())
    return view


async def box(view, selector):
    return await view.locator(selector).first.bounding_box()


@pytest.mark.browser
@pytest.mark.parametrize("width", [375, 1280])
async def test_the_page_in_chromium(shown, width):
    await shown.set_viewport_size({"width": width, "height": 700})
    assert_complete(shown)
    assert await shown.evaluate("[...document.images].map((image) => image.naturalWidth)") == [WIDE] * 3
    assert await shown.evaluate("document.documentElement.scrollWidth") <= width
    assert await shown.title() == "a<b>"
    assert await shown.locator("h1").inner_text() == HOSTILE
    assert await shown.locator("#step-0 > .sides > div > pre").inner_text() == HOSTILE
    assert await shown.locator("script, img:not(.shot img), a:not(nav a)").count() == 0
    assert "judge_failed" in await shown.locator("header details summary").inner_text()
    assert "can't be read" in await shown.locator("#step-3 .lost").inner_text()


@pytest.mark.browser
@pytest.mark.parametrize("width", [375, 1280])
async def test_the_mark_lies_where_the_action_pointed(shown, width):
    await shown.set_viewport_size({"width": width, "height": 700})
    image, point = await box(shown, "#step-0 img"), await box(shown, "#step-0 circle")
    assert image["width"] / image["height"] == pytest.approx(WIDE / HIGH, rel=0.02)
    assert point["x"] + point["width"] / 2 == pytest.approx(image["x"] + 0.25 * image["width"], abs=1.5)
    assert point["y"] + point["height"] / 2 == pytest.approx(image["y"] + 0.5 * image["height"], abs=1.5)
    image, element = await box(shown, "#step-1 img"), await box(shown, "#step-1 rect")
    ratio = image["width"] / WIDE
    for side, (start, size) in {"x": (100, 60), "y": (50, 20)}.items():
        length = {"x": "width", "y": "height"}[side]
        assert element[side] + element[length] / 2 == pytest.approx(image[side] + (start + size / 2) * ratio, abs=1.5)
        assert size * ratio < element[length] < size * ratio + 16  # some air, and its line
    assert await shown.locator("#step-2 svg, #step-3 svg").count() == 0


@pytest.mark.browser
async def test_the_prompt_is_folded_away(shown):
    prompt = shown.locator("#step-1 details")
    assert not await prompt.locator("pre").first.is_visible()
    await prompt.locator("summary").click()
    assert await prompt.locator("pre").first.is_visible()
    assert "[screenshot of step 0]" in await prompt.inner_text()
