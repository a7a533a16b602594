"""Actions and observations on a small page of our own, in both modes."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.environments.browser.test_executors import act
from tests.environments.browser.test_observe import read_controls
from webgym_cli.environments.browser import mouse
from webgym_cli.environments.browser.actions import close_tab, perform_action, show_tab
from webgym_cli.environments.browser.address_rules import AddressRules
from webgym_cli.environments.browser.field_actions import press_keys, type_text, upload_files
from webgym_cli.environments.browser.observe import ElementSnapshot, list_elements, observe_script
from webgym_cli.environments.browser.options import SessionOptions
from webgym_cli.environments.browser.pool import BrowserPool
from webgym_cli.environments.browser.session import BrowserSession
from webgym_cli.errors import BoundaryError
from webgym_cli.records.action import Action, ActionName, InteractionMode
from webgym_cli.records.failure import FailureKind

pytestmark = pytest.mark.browser

SIZE = (400, 300)
RULES = AddressRules.of(["127.0.0.1"])
PAGE = """<!doctype html><title>Form</title>
<style>body { margin: 8px } div.below { margin-top: 600px }</style>
<form id="form" onsubmit="event.preventDefault(); document.title = 'sent ' + this.q.value">
  <label>Query <input name="q" value="old"></label>
  <label><input type="checkbox" id="c"> Agree</label>
  <select aria-label="City"><option>Oslo</option><option>Rome</option></select>
  <input type="date" aria-label="Day"><input type="password" aria-label="Secret">
  <textarea aria-label="Notes">x</textarea> <input type="submit" value="Send">
</form>
<button onclick="document.title = confirm('Sure?')">Ask</button>
<a href="#" onclick="window.open(location.pathname.replace('form', 'other')); return false">Open</a>
<span id="pointer" style="cursor: pointer" onclick="document.title = 'span'"><b>Deep</b> text</span>
<a href="#x"><button type="button">Inner</button></a>
<button style="visibility: hidden">Unseen</button>
<button style="position: absolute; left: 300px; top: 250px; z-index: 1">Under</button>
<div style="position: absolute; left: 290px; top: 240px; width: 110px; height: 60px; z-index: 2"></div>
<em id="hover" onmouseover="document.title = 'hovered'" onclick="0">Hover</em>
<div class="below"><button>Below</button></div>
"""


@pytest.fixture
async def session(browsers: BrowserPool, tmp_path: Path) -> AsyncIterator[BrowserSession]:
    (tmp_path / "form.html").write_text(PAGE)
    (tmp_path / "other.html").write_text("<title>Other</title><button>There</button>")
    browser_session = await browsers.session(
        SessionOptions(width=SIZE[0], height=SIZE[1], isolated_script=observe_script(), upload_folder=tmp_path)
    )
    await browser_session.goto((tmp_path / "form.html").as_uri())
    yield browser_session
    await browser_session.close()


async def find(session: BrowserSession, name: str) -> ElementSnapshot:
    return next(seen for seen in await list_elements(session) if seen.element.name == name)


async def test_what_is_listed(session: BrowserSession):
    assert await read_controls(session) == (
        "textbox 'Query'; checkbox 'Agree'; combobox 'City'; date 'Day'; password 'Secret'; textbox 'Notes'; "
        "button 'Send'; button 'Ask'; link 'Open'; generic 'Deep text'; button 'Inner'; generic 'Hover'"
    )
    seen = [one.element for one in await list_elements(session)]
    assert [element.id for element in seen] == list(range(len(seen)))
    assert [element.value for element in seen[:3]] == ["old", "", "Oslo"]
    assert [one.element.id for one in await list_elements(session, limit=3)] == [0, 1, 2]


@pytest.mark.parametrize("mode", InteractionMode)
async def test_typing(session: BrowserSession, mode: InteractionMode):
    assert await act(session, mode, ActionName.TYPE, "Query", text="new words") is None
    assert (await find(session, "Query")).element.value == "new words"
    assert await session.evaluate("() => document.title") == "Form"
    assert await act(session, mode, ActionName.TYPE, "Query", text="") is None
    assert (await find(session, "Query")).element.value == ""
    assert await act(session, mode, ActionName.TYPE, "Query", text="go\n") is None
    assert await session.evaluate("() => document.title") == "sent go"
    assert await act(session, mode, ActionName.TYPE, "Notes", text="two\nlines " + "long " * 30) is None
    assert (await session.evaluate("() => document.querySelector('textarea').value")).startswith("two\nlines long")
    assert await act(session, mode, ActionName.TYPE, "Secret", text="abc") is None
    assert (await find(session, "Secret")).element.value == "•••"


@pytest.mark.parametrize("mode", InteractionMode)
async def test_choosing_and_dates(session: BrowserSession, mode: InteractionMode):
    assert await act(session, mode, ActionName.TYPE, "City", text="rome") is None
    assert (await find(session, "City")).element.value == "Rome"
    refused = await act(session, mode, ActionName.TYPE, "City", text="Paris")
    assert refused is not None and "Oslo, Rome" in refused
    assert await act(session, mode, ActionName.TYPE, "Day", text="2020-02-03") is None
    assert (await find(session, "Day")).element.value == "2020-02-03"
    refused = await act(session, mode, ActionName.TYPE, "Day", text="3rd of May")
    assert refused is not None and "YYYY-MM-DD" in refused


@pytest.mark.parametrize("mode", InteractionMode)
async def test_clicking_hovering_dialogs(session: BrowserSession, mode: InteractionMode):
    assert await act(session, mode, ActionName.CLICK, "Agree") is None
    assert (await find(session, "Agree")).element.value == "checked"
    assert await act(session, mode, ActionName.HOVER, "Hover") is None
    assert await session.evaluate("() => document.title") == "hovered"
    assert await act(session, mode, ActionName.CLICK, "Deep text") is None
    assert await session.evaluate("() => document.title") == "span"
    assert await act(session, mode, ActionName.CLICK, "Ask") is None
    assert await session.evaluate("() => document.title") == "true"
    assert session.dialogs.answered == ["confirm: Sure?"] and not session.is_pristine


CALLS = {
    "traffic": lambda session: session.traffic(),
    "screenshot": lambda session: session.screenshot(),
    "evaluate": lambda session: session.evaluate("() => 1"),
    "stop": lambda session: session.stop_loading(),
    "popups": lambda session: session.wait_for_popups(),
    "click": lambda session: mouse.click(session, (5, 5)),
    "wheel": lambda session: mouse.wheel(session, (5, 5), 0, 9),
    "drag": lambda session: mouse.drag(session, (5, 5), (9, 9)),
    "move": lambda session: session.move(5, 5),
    "key": lambda session: press_keys(session, Action(name=ActionName.KEY, keys=("Enter",)), None),
    "text": lambda session: type_text(session, Action(name=ActionName.TYPE, text="t", here=True), None),
    "enter": lambda session: type_text(session, Action(name=ActionName.TYPE, text="\n", here=True), None),
    "upload": lambda session: upload_files(
        session, Action(name=ActionName.UPLOAD_FILE, text="form.html", here=True), None
    ),
    "goto": lambda session: session.goto(session.pages.tabs[0].url),  # the page before it, if the end is known by then
    "reload": lambda session: session.reload(),
    "back": lambda session: session.go_back(),
    "forward": lambda session: session.go_forward(),
    "tab": lambda session: show_tab(session, 1),
    "close": lambda session: close_tab(session, 1),
}


@pytest.mark.parametrize("first", [False, True], ids=["known", "unknown"])
@pytest.mark.parametrize("call", CALLS)
async def test_a_page_that_closes_under_a_call_leaves_the_page_before_it(session, call, first):
    await session.evaluate("() => { open('other.html') }")
    await session.wait_for_popups()
    page, popup = session.pages.tabs
    target = (await session._context.new_cdp_session(popup)).send("Target.getTargetInfo")
    if first:
        session.pages.connections.clear()
    await session._direct.call("Target.closeTarget", {"targetId": (await target)["targetInfo"]["targetId"]})
    try:
        await CALLS[call](session)
    except BoundaryError as error:
        assert error.kind is FailureKind.PAGE_ERROR and call not in ("traffic", "screenshot", "evaluate", "popups")
    assert await session.evaluate("() => document.title") == "Form"
    assert (session.page, session.pages.tabs) == (page, [page])


async def refusal(session: BrowserSession, action: Action) -> str | None:
    return await perform_action(session, action, RULES.refuse_url)


async def test_an_element_out_of_sight_is_scrolled_to_and_a_gone_one_is_told(session: BrowserSession):
    click = Action(name=ActionName.CLICK, element_id=(await find(session, "Ask")).element.id)
    await session.evaluate("() => window.scrollTo(0, 10000)")
    assert await refusal(session, click) is None
    assert session.dialogs.answered
    await session.evaluate("() => document.querySelector('body > button').remove()")
    assert "no longer" in (await refusal(session, click) or "")


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        (Action(name=ActionName.CLICK, element_id=77), "no element 77"),
        (Action(name=ActionName.NAVIGATE, url="file:///etc/passwd"), "only http and https"),
        (Action(name=ActionName.NAVIGATE, url="http://[::1"), "not an address"),
        (Action(name=ActionName.NAVIGATE, url="http://127.0.0.1:9/"), "can't be loaded"),
    ],
)
async def test_refusals(session: BrowserSession, action: Action, reason: str):
    await list_elements(session)
    assert reason in (await refusal(session, action) or "")
