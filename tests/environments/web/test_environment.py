"""The open web: what each odd thing that pages do looks like to an episode."""

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.environments.visits import SmallWeb, Visit, small_web
from webgym_cli.environments.browser import frames
from webgym_cli.environments.browser import session as session_module
from webgym_cli.environments.browser.cdp import CDPConnection
from webgym_cli.environments.browser.frames import SILENT_FRAME
from webgym_cli.environments.browser.observe import MAX_ELEMENTS
from webgym_cli.environments.browser.session import BrowserSession
from webgym_cli.environments.web.settling import PageSettler
from webgym_cli.errors import BoundaryError
from webgym_cli.records.action import ActionName
from webgym_cli.records.failure import FailureKind

pytestmark = pytest.mark.browser

LAB = "http://lab.test"
ODD = "http://odd.test"


NOT_DOWNLOADED = "The page offered the file report.txt, which was not downloaded"


async def test_a_popup_becomes_the_page_and_gives_its_opener_back(visit: Visit):
    await visit.open(f"{LAB}/popup")
    for opener in ("Open a window", "Open in a new tab"):
        view = await visit.click(opener)
        assert view.url.startswith(f"{LAB}/popup-child?by=") and view.title == "Popup"
        view = await visit.back()
        assert (view.url, view.title, visit.error) == (f"{LAB}/popup", "Popups", None)
    await visit.click("Open a window")
    assert ((await visit.click("Close this window")).url, visit.error) == (f"{LAB}/popup", None)
    assert "opened" in await visit.text()


@pytest.mark.parametrize(
    ("path", "title", "notices"),
    [
        ("/popup?auto=1", "Popup", ()),
        ("/download?auto=1", "Downloads", (NOT_DOWNLOADED,)),
        (
            "/dialogs?auto=1",
            "Dialogs",
            ("The page opened a dialog, which was accepted: alert: A message before anything else",),
        ),
        ("/spinner", "Loading without end", ()),
        ("/slow?seconds=1.5", "A slow page", ()),
    ],
)
async def test_what_a_page_does_at_once_is_seen_and_told_once(visit: Visit, path: str, title: str, notices: tuple):
    view = await visit.open(f"{LAB}{path}")
    assert (view.title, view.notices) == (title, notices)
    assert ("alert closed" in await visit.text()) == path.startswith("/dialogs")
    assert (await visit.wait()).notices == ()


async def test_popups_have_popups_and_the_last_is_the_page(visit: Visit):
    await visit.show("/nest", "<title>n</title><a href='/nest' target=_blank>deeper</a>")
    for _ in range(3):
        await visit.click("deeper")
    assert len(visit.session.pages) == 4
    for _ in range(3):
        await visit.back()
        assert visit.error is None
    assert len(visit.session.pages) == 1
    await visit.back()
    assert visit.error == "there is no page to go back to"


async def test_a_storm_of_popups_is_bounded(visit: Visit, local_web: SmallWeb):
    local_web.odd.pages["/leaf"] = "<title>leaf</title>leaf"
    await visit.show(
        "/storm",
        "<title>storm</title><button onclick=\"for (let i = 0; i < 20; i++) window.open('/leaf')\">Rage</button>",
    )
    # The click lasts until the page has opened all of them, and ten pages load at once: on a busy machine longer than
    # these tests allow an action and a navigation, whose page then has no title yet.
    visit.session.options = replace(visit.session.options, action_timeout=60, navigation_timeout=60)
    view = await visit.click("Rage")
    assert view.title in ("leaf", "storm")
    assert len(visit.session.pages) <= 10
    view = await visit.wait()
    assert view.png.startswith(b"\x89PNG")


async def test_a_slow_popup_or_page_within_the_deadline(visit: Visit):
    await visit.show("/opener", f"<title>o</title><a href='{LAB}/slow?seconds=1' target=_blank>slow</a>")
    assert ((await visit.click("slow")).title, visit.error) == ("A slow page", None)
    assert ((await visit.navigate(f"{LAB}/slow?seconds=1")).title, visit.error) == ("A slow page", None)


async def test_dialogs_are_accepted_and_told_once(visit: Visit):
    await visit.open(f"{LAB}/dialogs")
    assert visit.view.notices == ()
    for name, text, left in (
        ("Alert", "alert: A message from the page", "alert closed"),
        ("Confirm", "confirm: Do you agree?", "confirm true"),
        ("Prompt", "prompt: Your name?", "prompt nobody"),
    ):
        assert (await visit.click(name)).notices == (f"The page opened a dialog, which was accepted: {text}",)
        assert left in await visit.text()
    assert (await visit.wait()).notices == ()


async def test_a_guarded_page_is_left_by_the_second_try(visit: Visit):
    await visit.open(f"{LAB}/dialogs")
    await visit.click("Guard this page")
    for _ in range(2):
        view = await visit.click("Leave")
        assert (view.url, "it was not left" in visit.error, view.notices) == (f"{LAB}/dialogs", True, ())
        assert "Leave" in visit.names
        await visit.wait()  # something else between: the next try is a first one
    await visit.click("Leave")
    view = await visit.click("Leave")
    assert (view.url, visit.error) == (f"{LAB}/", None)
    assert [notice for notice in view.notices if "beforeunload" in notice]


@pytest.mark.parametrize(
    ("leave", "how"),
    [(ActionName.NAVIGATE, {"url": f"{LAB}/late"}), (ActionName.GO_BACK, {}), (ActionName.RELOAD, {})],
)
async def test_edits_are_not_lost_whatever_leaves_a_guarded_page(visit: Visit, leave: ActionName, how: dict):
    await visit.open(f"{LAB}/history")
    await visit.navigate(f"{LAB}/dialogs")
    await visit.click("Guard this page")
    await visit.act(leave, **how)
    assert (visit.view.url, "it was not left" in visit.error) == (f"{LAB}/dialogs", True)
    await visit.act(leave, **how)
    assert visit.error is None and "guarded" not in await visit.text()


async def test_a_page_that_asks_for_a_file_says_so(visit: Visit):
    await visit.show("/file", "<title>f</title><input type=file aria-label=Picture>")
    assert (await visit.click("Picture")).notices == ("The page asks for a file; it was given none",)
    assert (await visit.wait()).notices == ()


async def test_a_page_of_endless_dialogs_does_not_hold_the_episode(visit: Visit):
    await visit.show("/alerts", "<title>a</title><button onclick='for (;;) alert(1)'>Nag</button>")
    with pytest.raises(BoundaryError) as failure:
        await visit.click("Nag")
    assert failure.value.kind is FailureKind.PAGE_TIMEOUT
    assert len(visit.session.dialogs.answered) <= 25


def written(pool, text: str) -> list[Path]:
    """Return the files with this text that the browser may have written."""
    folders = [Path.home() / "Downloads"]
    for pid in pool.browsers.processes():
        for argument in psutil.Process(pid).cmdline():
            if argument.startswith("--user-data-dir="):
                profile = Path(argument.partition("=")[2])
                folders += [profile, *profile.parent.glob("playwright-artifacts-*")]
    paths = [path for folder in folders if folder.is_dir() for path in folder.rglob("*") if path.is_file()]
    return [path for path in [*paths, *Path.cwd().glob("*.txt")] if text.encode() in path.read_bytes()]


async def test_a_download_is_refused_and_told_and_the_episode_goes_on(visit: Visit, local_web: SmallWeb):
    await visit.open(f"{LAB}/download")
    view = await visit.click("Download the report")
    assert (view.url, view.notices, visit.error) == (f"{LAB}/download", (NOT_DOWNLOADED,), None)
    view = await visit.navigate(f"{LAB}/file.txt")
    assert (view.url, view.notices) == (f"{LAB}/download", (NOT_DOWNLOADED,))
    assert f"{LAB}/file.txt can't be loaded" in visit.error
    assert (await visit.click("Download the report")).notices == (NOT_DOWNLOADED,)
    assert written(local_web.pool, "A downloaded file.") == []


@pytest.mark.parametrize(
    "opener",
    [
        "<a href='/paper.pdf' target=_blank>Get</a>",
        "<a href='/paper.pdf' target=_blank rel=opener>Get</a>",
        "<form action='/paper.pdf' method=post target=_blank><button>Get</button></form>",
        "<button onclick=\"window.open('/paper.pdf', '', 'noopener')\">Get</button>",
        "<button onclick=\"setTimeout((w) => { w.location = '/paper.pdf' }, 100, window.open())\">Get</button>",
        "<button onclick=\"window.open('/paper.pdf'); window.open('/away?to=/paper.pdf')\">Get</button>",
    ],
)
async def test_a_tab_that_opens_for_a_file_closes_and_the_page_before_is_shown(
    visit: Visit, local_web: SmallWeb, opener: str
):
    local_web.odd.pages["/papers"] = f"<title>p</title>{opener}"
    local_web.odd.pages["/later"] = "<title>later</title>a later tab"
    await visit.open(f"{ODD}/papers")
    await visit.act(ActionName.NEW_TAB, url=f"{ODD}/later")
    await visit.act(ActionName.SWITCH_TAB, tab=0)
    for _ in range(2):
        view = await visit.click("Get")
        assert (view.url, visit.error, len(view.tabs)) == (f"{ODD}/papers", None, 2)
        assert set(view.notices) == {"The page offered the file paper.pdf, which was not downloaded"}


@pytest.mark.parametrize("script", ["window.close()", "onload = () => setTimeout(() => window.close(), 50)"])
async def test_a_popup_that_closes_while_it_loads_is_no_failure(visit: Visit, local_web: SmallWeb, script: str):
    local_web.odd.pages["/brief"] = f"<title>brief</title><script>{script}</script>"
    await visit.show("/opener", "<title>o</title><button onclick=\"window.open('/brief')\">Open</button>")
    for _ in range(3):
        view = await visit.click("Open")
        view = await visit.wait()
        assert (view.url, visit.error, len(visit.session.pages)) == (f"{ODD}/opener", None, 1)


async def test_a_popup_without_a_document_is_waited_for_once(visit: Visit, monkeypatch):
    monkeypatch.setattr(session_module, "_POPUP_TIMEOUT", 0.3)
    await visit.show("/call", "<title>c</title><a href='tel:1' target=_blank>Call</a><button>b</button>")
    assert ((await visit.click("Call")).title, visit.error) == ("c", None)
    monkeypatch.setattr(session_module, "_POPUP_TIMEOUT", 1000.0)  # longer than the test may take
    assert (await visit.click("b")).title == "c"


async def test_a_page_that_never_finishes_loading_is_seen_and_not_waited_for_twice(visit: Visit):
    view = await visit.open(f"{LAB}/endless")
    assert view.title == "A page that never finishes" and "Back to the laboratory" in visit.names
    assert await visit.ask("() => document.readyState") != "complete"
    first = await visit.ask("() => performance.now()")
    await visit.wait()
    assert (await visit.ask("() => performance.now()")) - first < 3000
    assert (await visit.click("Back to the laboratory")).url == f"{LAB}/"


async def test_a_document_that_never_ends_is_seen_as_far_as_it_came(visit: Visit):
    view = await visit.open(f"{ODD}/stream")
    assert view.title == "Half" and visit.names == ["Here"]
    await visit.click("Here")
    assert visit.error is None


async def test_what_does_not_answer_in_time_is_the_policy_s_experience(visit: Visit):
    links = f"<title>links</title><a href='{LAB}/slow?seconds=60'>slow</a> <button>b</button>"
    await visit.show("/links", links)
    assert ((await visit.click("slow")).title, visit.error) == ("links", "the page did not load within 3 s")
    began = time.monotonic()
    view = await visit.navigate(f"{LAB}/slow?seconds=8")
    assert time.monotonic() - began < 6, "it waited for the same page twice"
    assert "can't be loaded" in visit.error
    assert (view.title, view.url) == ("links", f"{ODD}/links")
    assert ((await visit.click("b")).title, visit.error) == ("links", None)


async def test_handlers_that_a_framework_keeps_for_its_root_are_known(visit: Visit):
    kept = {"a": "__reactProps$x: { onDoubleClick() {} }", "b": "$$contextmenu() {}", "c": "__click() {}"}
    kept["d"] = "__reactProps$x: { onMouseEnter() {} }, __reactFiber$x: { onClick: 1 }"
    kept["e"] = "__reactProps$x: { onScroll() {}, onClick: undefined }"
    kept["f"] = "__reactEventHandlers$x: { onClick() {} }"  # of React 16
    kept["g"] = "$$mouseover() {}"
    texts = "<form name=host></form>" + "".join(f"<p id={name}>{name}</p>" for name in kept)
    scripts = "; ".join(f"Object.assign({name}, {{ {fields} }})" for name, fields in kept.items())
    shadow = (
        "const root = s.attachShadow({ mode: 'open' }); root.innerHTML = '<b>deep</b>'; root.firstChild.__click = alert"
    )
    await visit.show("/kept", f"<title>k</title><p id=s></p>{texts}<script>{scripts}; {shadow}</script>")
    assert visit.names == ["deep", "a", "b", "c", "f", "d", "g"]  # what only the mouse over it reaches is last


async def test_what_a_press_is_handled_of_is_listed_unless_it_only_keeps_the_focus(visit: Visit):
    box = "style='width:40px;height:20px'"
    page = f"""<div class=held>Bern</div><div class=held title=shade {box.replace("20px", "20px;background:red")}></div>
    <div class=held><button>Go</button></div><button><b class=held>In</b></button><p class=held>Text</p>
    <div class=held title=nothing {box}><i></i></div><label><b class=held>Lab</b><input></label>
    <div class=held>Tip <button onclick=1 title=Shut></button></div><section class=held>Part</section>
    <p><u class=held><b>Rome</b> <i>IT</i></u><u class=held><b>Oslo</b> <i>NO</i></u></p>
    <p><u class=held><b>Bold</b> <i>Italic</i></u></p>
    <div class=held id=way>Way</div><input aria-labelledby=way><script>
    for (const one of document.querySelectorAll('.held')) one.__reactProps$a = {{ onMouseDown() {{}} }}</script>"""
    await visit.show("/held", f"<title>h</title>{page}")
    assert visit.names == ["Bern", "shade", "Go", "In", "Lab", "Shut", "Rome IT", "Oslo NO", "Way"]


async def test_radios_with_a_label_in_their_class_name_no_field_after_them(visit: Visit):
    script = "customElements.define('x-r', class extends HTMLElement { i = this.attachInternals().role = 'radio' })"
    radios = "<x-r class='x-label-start x-on'>Air</x-r><x-r class=x-label-start>Sea</x-r>"
    await visit.show("/radios", f"<p>{radios}</p><p><input aria-label=Find></p><script>{script}</script>")
    assert visit.names == ["Air", "Sea", "Find"]


UNDO = "r.innerHTML = '<button>Undo</button>'"
LATE = {
    "message": f"setTimeout(() => {{ {UNDO} }}, 1200)",
    "answer": f"fetch('/slow-data').then(() => setTimeout(() => {{ {UNDO} }}, 700))",
    "second message": f"r.textContent = 'Saving'; setTimeout(() => {{ {UNDO} }}, 700)",
    "attribute": "setTimeout(() => { r.nextSibling.hidden = false }, 600)",
    "chain": f"setTimeout(() => setTimeout(() => {{ {UNDO} }}, 250), 250)",
    "shadow": f"setTimeout((r) => {{ {UNDO} }}, 500, r.attachShadow({{ mode: 'open' }}))",
    "frame": f"setTimeout((r) => {{ {UNDO} }}, 500, f.contentDocument.body)",
    "dialog": f"setTimeout(() => {{ alert('Sure?'); {UNDO} }}, 500)",
    "timer": f"setTimeout(() => {{ {UNDO} }}, 500)",
    "reply": f"fetch('/slow-data').then(() => {{ {UNDO} }})",
}
FRAMED = ("timer", "reply")


@pytest.mark.parametrize("case", [case for case in LATE if case not in FRAMED])
async def test_what_a_click_shows_late_is_told(visit: Visit, local_web: SmallWeb, case: str):
    local_web.odd.slow_seconds = 0.3
    local_web.pool.max_idle_wait, usual = 3.0, local_web.pool.max_idle_wait
    page = f'<button onclick="{LATE[case]}">Save</button><div id=r></div><p hidden><button>Undo</button></p>'
    await visit.show("/toast", f"<title>t</title>{page}<iframe id=f srcdoc='<p>x'></iframe>")
    local_web.pool.max_idle_wait = usual
    await visit.click("Save")
    assert "Undo" in visit.names


@pytest.mark.parametrize("case", FRAMED)
async def test_what_a_click_shows_late_in_a_frame_of_another_origin_is_told(visit, local_web, case):
    local_web.odd.slow_seconds = 0.3
    copy = "<button onclick=\"v.select(); document.execCommand('copy')\">Copy</button><input id=v aria-label=V value=a>"
    local_web.odd.pages["/inner"] = f'<button onclick="{LATE[case]}">Save</button>{copy}<div id=r></div>'
    await visit.show("/outer", "<title>o</title><iframe src='http://odd.example/inner'></iframe>")
    await visit.click("Save")
    assert visit.names == ["Save", "Copy", "V", "Undo"]
    await visit.click("Copy")
    assert visit.session.pages.clipboard == {"text/plain": "a"}


async def test_late_content_comes_with_waiting_and_a_blank_page_is_what_there_is_to_see(visit: Visit):
    await visit.open(f"{LAB}/late")
    await visit.wait(2)
    await visit.click("Late button")
    assert "pressed" in visit.names
    view = await visit.navigate(f"{LAB}/blank")
    assert (view.url, view.elements, visit.error) == (f"{LAB}/blank", (), None)
    assert (await visit.back()).title == "Late content"


async def test_a_form_that_takes_a_second_to_answer(visit: Visit):
    form = "<form method=post action=/slow-form><input name=a aria-label=a><button>Send</button>"
    await visit.show("/form", f"<title>form</title>{form}")
    view = await visit.click("Send")
    assert (view.title, visit.names, visit.error) == ("Thanks", ["Done"], None)
    await visit.back()
    assert (await visit.act(ActionName.TYPE, element_id=visit.find("a"), text="x\n")).title == "Thanks"


SPINNER = "<style>@keyframes t { to { rotate: 1turn } }</style><p id=s style='animation:t 1s infinite;width:9em'>wait"
BUSY = [SPINNER, "<div id=s role=progressbar>wait</div>", "<div id=s></div>"]
BARE = ["<b id=s>Acme</b>", "<x-app id=s>Acme</x-app>"]


@pytest.mark.parametrize(("splash", "delay"), [*((busy, 1300) for busy in BUSY), *((bare, 350) for bare in BARE)])
async def test_a_page_that_is_busy_or_without_any_control_is_waited_for(visit: Visit, splash: str, delay: int):
    later = f"setTimeout(() => {{ s.outerHTML = '<button>Ready</button>' }}, {delay})"
    await visit.show("/splash", f"<title>s</title>{splash}<script>{later}</script>")
    assert visit.names == ["Ready"]


async def test_a_page_that_stays_busy_is_waited_for_once_and_one_with_controls_not_at_all(
    visit: Visit, local_web: SmallWeb, monkeypatch: pytest.MonkeyPatch
):
    local_web.odd.pages["/turning"] = f"<title>t</title>{SPINNER}"
    local_web.odd.pages["/both"] = f"<title>b</title>{SPINNER}<button>Go</button>"
    waited, wait = [], PageSettler._await_splash

    async def note(settler: PageSettler, session: BrowserSession, splash: str) -> None:
        waited.append(session.url)
        await wait(settler, session, splash)

    monkeypatch.setattr(PageSettler, "_await_splash", note)
    await visit.open(f"{ODD}/turning")
    for path in ("/turning", "/both"):
        await visit.navigate(f"{ODD}{path}")
    assert waited == [f"{ODD}/turning"]


async def test_an_answer_by_websocket_is_waited_for(visit: Visit):
    await visit.show(
        "/talk",
        "<title>talk</title><button>Ask</button><p id=p></p><script>const w = new WebSocket(`ws://${location.host}/later`);"
        "w.onmessage = (e) => { p.innerHTML = '<button>' + e.data + '</button>' };"
        "document.querySelector('button').onclick = () => w.send('Answer')</script>",
    )
    await visit.click("Ask")
    assert visit.names == ["Ask", "Answer"]


async def test_heavy_pages_are_observed_within_bounds(monkeypatch):
    domains = set()
    call = CDPConnection.call

    async def noted(self, method, params=None, session=""):
        domains.add(method.partition(".")[0])
        return await call(self, method, params, session)

    monkeypatch.setattr(CDPConnection, "call", noted)
    async with small_web("browser.navigation_timeout=60", "browser.action_timeout=60") as web:
        visit = web.visit()
        assert 0 < len((await visit.open(f"{LAB}/heavy?nodes=100000")).elements) <= MAX_ELEMENTS
        await visit.act(ActionName.SCROLL, direction="down")
        assert 0 < len(visit.view.elements) <= MAX_ELEMENTS
        await visit.environment.close()
    assert domains <= {"Runtime", "Page", "Input", "Target", "Network", "DOMDebugger"}


async def test_the_list_stops_at_its_limits(visit: Visit):
    many = "".join(f"<button style='width:20px;height:10px;padding:0'>{n}</button>" for n in range(500))
    banner = "<div style='position:fixed;bottom:0;left:0'><button>Accept</button></div>"
    view = await visit.show("/many", f"<title>many</title><div style='font-size:6px'>{many}</div>{banner}")
    assert len(view.elements) == MAX_ELEMENTS and visit.names[-1] == "Accept"
    assert view.notices == ("301 more elements are in sight, but not marked",)
    fixed = "<button style='position:fixed;top:0;left:0'>{}</button>"
    early, late = fixed.format("early"), fixed.format("too late")
    await visit.show("/deep", f"<title>deep</title>{early}{'<i></i>' * 30_000}{late}")
    assert visit.names == ["too late"]  # it lies over the early one


async def test_an_observation_tells_how_far_the_page_is(visit: Visit):
    script = "console.error('a'); console.log('b'); setTimeout(() => { throw 1; })"
    far = "<p style='height: 3000px'></p><button>Far</button>"
    state = (await visit.show("/state.html", f"<button>Go</button>{far}<script>{script}</script>")).state
    assert (state.outside, state.scrolls[0].above, state.scrolls[0].below > 2) == (1, 0, True)
    assert (state.loading, state.pending, state.console_errors, state.status) == ("settled", 0, 2, 200)
    assert (await visit.wait()).state.console_errors == 0
    missing = (await visit.navigate("http://odd.test/none")).state
    assert missing.status == 404
    ticking = "setInterval(() => { document.body.firstChild.textContent = performance.now(); }, 5)"
    assert (await visit.show("/tick.html", f"<button>0</button><script>{ticking}</script>")).state.loading == "moving"
    waiting = "<button>Go</button><script>fetch('/silent')</script>"
    late = (await visit.show("/late.html", waiting)).state
    assert (late.loading, late.pending) == ("timed_out", 1)


async def test_a_silent_frame_is_noted_and_asked_but_once_from_then_on(visit: Visit, monkeypatch: pytest.MonkeyPatch):
    looks = []

    async def hang(session, document, room):
        looks.append(room)
        await asyncio.sleep(60)

    answer = frames._look_into
    monkeypatch.setattr(frames, "_FRAME_SECONDS", 0.1)
    monkeypatch.setattr(frames, "_look_into", hang)
    view = await visit.show("/framed.html", "<button>Go</button><iframe sandbox srcdoc='<button>In</button>'></iframe>")
    assert visit.names == ["Go"] and view.notices == (SILENT_FRAME,)
    assert len(looks) == 3  # twice in the first look, once in the one after the picture
    monkeypatch.setattr(frames, "_look_into", answer)
    view = await visit.wait()
    assert visit.names == ["Go", "In"] and view.notices == ()
