"""Each action beyond the basic ones on one page of our own, in both modes."""

import asyncio
import html
import io
import json
import math
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from webgym_cli.config.load import load
from webgym_cli.environments.base import RawObservation
from webgym_cli.environments.browser import actions
from webgym_cli.environments.browser.actions import list_tabs, normalise_point, perform_action, point_at_elements
from webgym_cli.environments.browser.field_actions import upload_files
from webgym_cli.environments.browser.frames import WAIT_UNTIL_IDLE
from webgym_cli.environments.browser.keys import combine_keys
from webgym_cli.environments.browser.observe import list_elements, observe_script, read_script
from webgym_cli.environments.browser.options import SessionOptions
from webgym_cli.environments.browser.pool import BrowserPool
from webgym_cli.environments.browser.session import BrowserSession
from webgym_cli.environments.web.zoom import zoom_into
from webgym_cli.errors import BoundaryError
from webgym_cli.record.recording_file import read_recording
from webgym_cli.record.replay import Replay
from webgym_cli.records.action import Action, ActionName, InteractionMode
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.webrl import WebRLAction, WebRLActionName

pytestmark = pytest.mark.browser

SIZE = (600, 400)
MARKS, POINTS = InteractionMode.SET_OF_MARKS, InteractionMode.COORDINATES
PAGE = """<!doctype html><title>Hands</title>
<style>body { margin: 8px } #pane { width: 120px; height: 60px; overflow: auto }
#wide { width: 900px; height: 500px } #far { height: 2000px } [draggable] { display: inline-block }</style>
<button id="b">Press</button> <input aria-label="Name" value="old"> <textarea aria-label="Notes">a</textarea>
<select aria-label="City"><option>Oslo</option><option>Rome (Italy)</option></select>
<x-pick></x-pick><iframe srcdoc="<select aria-label='Framed'><option>One<option>Two</select>" height="40"></iframe>
<label><input type="file" aria-label="File" multiple></label>
<div id="from" draggable="true" role="button">Card</div> <div id="to" role="button">Place</div>
<input type="range" aria-label="Volume" value="0" style="width: 100px">
<div id="pane"><div id="wide" role="button">Wide</div></div><div id="far"></div>
<script>
const log = window.log = [];
const heard = (e) => log.push([e.type, e.button, e.detail, e.shiftKey, e.ctrlKey].join());
for (const type of ["click", "dblclick", "auxclick", "contextmenu"]) b.addEventListener(type, heard);
document.addEventListener("keydown", (e) => log.push("key " + (e.ctrlKey ? "^" : "") + e.key));
to.ondragover = (e) => e.preventDefault();
to.ondrop = () => log.push("dropped");
from.ondragstart = (e) => e.dataTransfer.setData("text", "card");
customElements.define("x-pick", class extends HTMLElement { constructor() { super();
  this.attachShadow({ mode: "open" }).innerHTML =
    "<select aria-label='Shaded'><option>A</option><option>B</option></select>"; } });
</script>"""


@pytest.fixture
async def session(browsers: BrowserPool, tmp_path: Path) -> AsyncIterator[BrowserSession]:
    (tmp_path / "hands.html").write_text(PAGE)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "cv.txt").write_text("my life")
    (tmp_path / "files" / "more.txt").write_text("more")
    (tmp_path / "secret.txt").write_text("mine")
    (tmp_path / "files" / "link.txt").symlink_to(tmp_path / "secret.txt")
    scripts = {"init_scripts": (read_script("stand_ins"),), "isolated_script": observe_script()}
    options = SessionOptions(width=SIZE[0], height=SIZE[1], upload_folder=tmp_path / "files", **scripts)
    browser_session = await browsers.session(options)
    await browser_session.goto((tmp_path / "hands.html").as_uri())
    yield browser_session
    await browser_session.close()


async def perform(session: BrowserSession, action) -> str | None:
    return await perform_action(session, action, lambda url: "not there" if "forbidden" in url else None)


async def act(session: BrowserSession, mode: InteractionMode, name: ActionName, target: str, **fields) -> str | None:
    """Act on a named element; `to` names another one."""
    seen = {one.element.name: one for one in reversed(await list_elements(session))}
    size = session.options.width, session.options.height
    for field, at in (("", target), ("to_", fields.pop("to", None))):
        if at is not None and mode is MARKS:
            fields[f"{field}element_id"] = seen[at].element.id
        elif at is not None:
            fields[f"{field}coordinate"] = normalise_point(seen[at].point, size)
    return await perform(session, Action(name=name, **fields))


async def ask(session: BrowserSession, expression: str):
    return await session.page.evaluate(f"() => {expression}")


async def test_recorded_values_of_several_options_are_chosen_by_their_labels(session: BrowserSession, tmp_path: Path):
    options = "<option value=1>Small<option value=2>Large, blue<option value=3>Wide"
    (tmp_path / "sizes.html").write_text(f"<select multiple aria-label=Sizes>{options}</select>")
    await session.goto((tmp_path / "sizes.html").as_uri())
    line = {"name": "select", "selector": "select", "options": ["1", "2"], "pageGuid": "p", "signals": []}
    (tmp_path / "codegen.jsonl").write_text(json.dumps(line))
    marks = ("context_config.interaction_mode=set_of_marks", "context_config.prompt_version=full")
    action = await Replay(read_recording(tmp_path / "codegen.jsonl"), load(overrides=marks)).next(session)
    assert action is not None and action.text == "Small\nLarge, blue"
    assert await perform(session, action) is None
    chosen = "Array.from(document.querySelector('select').selectedOptions, (option) => option.value)"
    assert await ask(session, chosen) == ["1", "2"]


@pytest.mark.parametrize("mode", InteractionMode)
async def test_clicks_of_all_kinds(session: BrowserSession, mode: InteractionMode):
    for fields in ({"button": "right"}, {"button": "middle"}, {"clicks": 2}, {"modifiers": ("shift", "ctrl")}):
        assert await act(session, mode, ActionName.CLICK, "Press", **fields) is None
    assert await ask(session, "log.filter((line) => !line.startsWith('key'))") == [
        *("contextmenu,2,0,false,false", "auxclick,2,1,false,false", "auxclick,1,1,false,false"),
        *("click,0,1,false,false", "click,0,2,false,false", "dblclick,0,2,false,false", "click,0,1,true,true"),
    ]
    assert "Shift" in await act(session, mode, ActionName.CLICK, "Press", modifiers=("a",))
    await ask(session, "log.splice(0)")
    await ask(
        session,
        "{ b.onmousedown = (e) => { log.push(e.timeStamp - b.last < 20 ? 'at once' : 'later');"
        " b.last = e.timeStamp; }; }",
    )
    assert await perform(session, Action(name=ActionName.CLICK, here=True, clicks=3)) is None
    assert (await ask(session, "log")).count("at once") == 0
    assert "click,0,3,false,false" in await ask(session, "log")


@pytest.mark.parametrize("mode", ["open", "closed", None])
async def test_roles_and_states_in_the_internals_of_components(session: BrowserSession, tmp_path: Path, mode: str):
    hostile = "WeakMap.prototype.get = String.prototype.toLowerCase = () => 1; Object.prototype.evil = 1;"
    own = "{ role: 'switch', ariaLabel: 'Dark', ariaChecked: 'false', ariaReadOnly: 'true' }"
    init = f"super(); let i = Object.assign(this.attachInternals(), {own}); this.onclick = () => i.ariaChecked = 'true'"
    script = f"{hostile} customElements.define('x-a', class extends HTMLElement {{ constructor() {{ {init} }} }})"
    box = "style='display:block;height:30px'"
    parts = f"<x-a {box}>x</x-a><x-a {box} role=button>Go</x-a>"
    root = f"p.attachShadow({{ mode: '{mode}' }}).innerHTML = \"{parts}\""
    around = f"<x-b id=p></x-b><script>customElements.define('x-b', class extends HTMLElement {{}}); {root}</script>"
    page = f"<script>{script}</script>{around if mode else parts}"
    (tmp_path / "own.html").write_text(page)
    await session.goto((tmp_path / "own.html").as_uri())
    assert len(await list_elements(session)) == 2
    assert await perform(session, Action(name=ActionName.CLICK, element_id=0)) is None
    (switch, button) = (one.element for one in await list_elements(session))
    assert (switch.role, switch.name, switch.value, switch.states) == ("switch", "Dark", "checked", ("readonly",))
    assert button.role == "button"


@pytest.mark.parametrize("mode", InteractionMode)
async def test_a_long_press_holds_the_button(session: BrowserSession, mode: InteractionMode):
    await ask(session, "{ b.onpointerdown = (e) => { b.down = e.timeStamp; }; }")
    await ask(session, "{ b.onpointerup = (e) => log.push(e.timeStamp - b.down > 300); }")
    assert await act(session, mode, ActionName.CLICK, "Press", seconds=0.4) is None
    assert (await ask(session, "log"))[-2:] == [True, "click,0,1,false,false"]


@pytest.mark.parametrize("mode", InteractionMode)
async def test_typing_appends_submits_and_goes_to_the_focus(session: BrowserSession, mode: InteractionMode):
    assert await act(session, mode, ActionName.TYPE, "Name", text="er", append=True) is None
    assert await ask(session, "document.querySelector('input').value") == "older"
    assert await perform(session, Action(name=ActionName.TYPE, here=True, text="!\n", append=True)) is None
    assert await ask(session, "[document.querySelector('input').value, log.at(-1)]") == ["older!", "key Enter"]
    assert await perform(session, Action(name=ActionName.TYPE, here=True, text="new")) is None
    assert await ask(session, "document.querySelector('input').value") == "new"
    assert await act(session, mode, ActionName.TYPE, "Name", text="x", submit=True) is None
    assert await ask(session, "[document.querySelector('input').value, log.at(-1)]") == ["x", "key Enter"]


async def test_enter_waits_for_suggestions_of_a_field_between_tags(session: BrowserSession, tmp_path: Path):
    field = (
        "<p onclick='f.focus()' style='width:300px;height:30px;border:1px solid;display:flex'><b tabindex=0 "
        "style='width:200px'>red</b><input id=f role=combobox aria-label=Name style='width:90px;border:0'></p><script>"
        "let shown; f.oninput = () => setTimeout(() => { shown = f.value }, 250);"
        "f.onkeydown = ({ key }) => { if (key === 'Enter') document.title = shown }</script>"
    )
    (tmp_path / "tags.html").write_text(field)
    await session.goto((tmp_path / "tags.html").as_uri())
    assert await act(session, MARKS, ActionName.TYPE, "Name", text="blue\n") is None
    assert await ask(session, "document.title") == "blue"
    await ask(session, "setInterval(() => { document.body.append('.') }, 20)")
    assert await act(session, MARKS, ActionName.TYPE, "Name", text="green\n") is None
    began = await ask(session, "performance.now()")
    await session.evaluate(WAIT_UNTIL_IDLE, [900, {}])
    assert await ask(session, f"performance.now() - {began}") > 800  # that page is not known as restless yet


async def test_keys_alone_and_together(session: BrowserSession):
    await act(session, MARKS, ActionName.CLICK, "Notes")
    for keys in (("ctrl", "a"), ("Delete",), ("b",), ("Enter",), ("ctrl+Home",), ("escape",), ("page_down",)):
        assert await perform(session, Action(name=ActionName.KEY, keys=keys)) is None
    assert await ask(session, "document.querySelector('textarea').value") == "b\n"
    assert {"key ^a", "key ^Home", "key Escape", "key PageDown"} <= set(await ask(session, "log"))
    assert "no key 'hyper'" in await perform(session, Action(name=ActionName.KEY, keys=("hyper",)))
    assert await act(session, MARKS, ActionName.KEY, "Volume", keys=("ArrowRight",)) is None
    assert await ask(session, "document.querySelector('[type=range]').value") == "1"


def test_keys_have_many_names():
    assert [combine_keys(names) for names in (["ctrl", "+"], ["Control++"], ["cmd", "SHIFT", "z"], ["f5"], [" "])] == [
        *("Control++", "Control++", "Meta+Shift+z", "F5", " ")
    ]


@pytest.mark.parametrize("mode", InteractionMode)
async def test_options_are_selected_also_in_shadows_and_frames(session: BrowserSession, mode: InteractionMode):
    for name, text in (("City", "italy"), ("Shaded", "B"), ("Framed", "Two")):
        assert await act(session, mode, ActionName.SELECT_OPTION, name, text=text) is None
    chosen = "[document, document.querySelector('x-pick').shadowRoot, document.querySelector('iframe').contentDocument]"
    assert await ask(session, f"{chosen}.map((root) => root.querySelector('select').selectedIndex)") == [1, 1, 1]
    assert "Oslo" in await act(session, mode, ActionName.SELECT_OPTION, "City", text="Paris")
    assert "no list" in await act(session, mode, ActionName.SELECT_OPTION, "Press", text="x")


@pytest.mark.parametrize("mode", InteractionMode)
async def test_scrolling_an_element_in_four_directions(session: BrowserSession, mode: InteractionMode):
    ways = (("down", "scrollTop", 40), ("right", "scrollLeft", 60), ("up", "scrollTop", 0), ("left", "scrollLeft", 0))
    for direction, side, expected in ways:
        assert await act(session, mode, ActionName.SCROLL, "Wide", direction=direction, amount=100) is None
        for _ in range(100):
            if await ask(session, f"pane.{side}") == expected:
                break
            await asyncio.sleep(0.02)
        assert (await ask(session, f"pane.{side}"), await ask(session, "scrollY")) == (expected, 0)


@pytest.mark.parametrize("mode", InteractionMode)
async def test_dragging(session: BrowserSession, mode: InteractionMode):
    assert await act(session, mode, ActionName.DRAG, "Card", to="Place") is None
    assert "dropped" in await ask(session, "log")
    assert await act(session, mode, ActionName.HOVER, "Volume") is None
    assert await perform(session, Action(name=ActionName.DRAG, here=True, to_coordinate=(990, 300))) is None
    assert await ask(session, "Number(document.querySelector('[type=range]').value)") > 50
    assert "no element 99" in await act(session, MARKS, ActionName.DRAG, "Card", to_element_id=99)


ZONE = """() => {
  const zone = document.body.appendChild(document.createElement("div"));
  zone.style = "position:fixed;inset:0 auto auto 0;width:80px;height:40px;background:#eee";
  for (const type of ["dragover", "drop"]) zone.addEventListener(type, (event) => event.preventDefault());
  zone.addEventListener("drop", (event) => { document.title = event.dataTransfer.files[0].name; });
}"""


PICKERS = {
    "file": """window.picked = showOpenFilePicker({ types: [] }).then(async ([handle]) => {
      const saved = await showSaveFilePicker({ suggestedName: 'cv.txt' }), text = await (await handle.getFile()).text();
      await new Blob([text]).stream().pipeTo(await saved.createWritable());
      return [saved.name, await (await saved.getFile()).text(), handle instanceof FileSystemFileHandle];
    })""",
    "folder": """window.picked = showDirectoryPicker().then(async (folder) => {
      for await (const [name] of folder) {
        const target = await folder.getFileHandle('new.txt', { create: true }), stream = await target.createWritable();
        await stream.write(await (await (await folder.getFileHandle(name)).getFile()).text());
        await stream.close();
        return [name, await (await target.getFile()).text(), folder instanceof FileSystemDirectoryHandle];
      }
    })""",
}


async def test_files_are_dropped_where_a_click_asks_for_none(session: BrowserSession):
    session.options = replace(session.options, action_timeout=2.0)
    await session.evaluate(ZONE)
    action = Action(name=ActionName.UPLOAD_FILE, here=True, text="cv.txt")
    assert await upload_files(session, action, (40, 20)) is None
    assert await ask(session, "document.title") == "cv.txt"


@pytest.mark.parametrize("kind", PICKERS)
async def test_a_picker_of_a_script_gets_the_file(session: BrowserSession, kind: str):
    session.options = replace(session.options, action_timeout=4.0)
    await session.evaluate("(script) => { b.setAttribute('onclick', script); }", PICKERS[kind])
    assert await act(session, MARKS, ActionName.CLICK, "Press") is None
    # Else this click's chooser, which comes late under load, would get the file.
    while not session.pages.file_requests:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    assert await act(session, MARKS, ActionName.UPLOAD_FILE, "Press", text="cv.txt") is None
    assert await ask(session, "picked") == ["cv.txt", "my life", True]


@pytest.mark.parametrize("mode", InteractionMode)
async def test_files_come_from_the_task_s_folder_only(session: BrowserSession, mode: InteractionMode, tmp_path: Path):
    names = "Array.from(document.querySelector('[type=file]').files, (file) => file.name)"
    assert await act(session, mode, ActionName.UPLOAD_FILE, "File", text="cv.txt") is None
    assert await ask(session, names) == ["cv.txt"]
    assert await ask(session, "document.querySelector('[type=file]').files[0].text()") == "my life"
    assert await act(session, mode, ActionName.UPLOAD_FILE, "File", text="cv.txt\nmore.txt") is None
    for outside in ("../secret.txt", str(tmp_path / "secret.txt"), "link.txt", "none.txt", ".", ""):
        refused = await act(session, mode, ActionName.UPLOAD_FILE, "File", text=outside)
        assert refused is not None and "cv.txt" in refused
    assert await ask(session, names) == ["cv.txt", "more.txt"]
    session.options = replace(session.options, upload_folder=None)
    assert await act(session, mode, ActionName.UPLOAD_FILE, "File", text="cv.txt") == "the task has no files"


async def test_a_folder_is_given_where_a_page_asks_for_one(session: BrowserSession, tmp_path: Path):
    file, folder = "document.querySelector('[type=file]')", tmp_path / "files" / "photos" / "old"
    folder.mkdir(parents=True)
    (folder / "a.jpg").touch()
    (folder.parent / "b.jpg").touch()
    await session.evaluate(f"() => {{ {file}.webkitdirectory = true; }}")
    for part in ("photos/b.jpg", "cv.txt\nmore.txt\nphotos/b.jpg\nphotos/old/a.jpg"):  # the link leads outside
        refused = await act(session, MARKS, ActionName.UPLOAD_FILE, "File", text=part)
        assert refused == "a folder is given there: name all files of one"
    assert await act(session, MARKS, ActionName.UPLOAD_FILE, "File", text="photos/b.jpg\nphotos/old/a.jpg") is None
    paths = f"Array.from({file}.files, (one) => one.webkitRelativePath).sort()"
    assert await ask(session, paths) == ["photos/b.jpg", "photos/old/a.jpg"]


async def test_what_a_page_copied_it_can_paste_on_its_next_page(session: BrowserSession):
    item = "navigator.clipboard.read().then(([one]) => one.getType('text/plain')).then((all) => all.text())"
    await session.evaluate("() => { b.setAttribute('onclick', \"navigator.clipboard.writeText('a b')\"); }")
    assert await ask(session, "navigator.clipboard.readText()") == ""
    await act(session, MARKS, ActionName.CLICK, "Press")
    assert await ask(session, item) == "a b"
    copied = (await session.evaluate(WAIT_UNTIL_IDLE, [100, {}]))["copied"]
    await session.reload()
    assert await ask(session, "navigator.clipboard.readText()") == ""
    await session.evaluate(WAIT_UNTIL_IDLE, [100, copied])
    assert await ask(session, "navigator.clipboard.readText()") == "a b"


HOSTILE = [
    *({"name": "key", "keys": keys} for keys in (("é",), ("\0",), ("ctrl", "é"), ("中",), ("\x7f",))),
    *({"name": "click", "modifiers": (key,)} for key in ("é", "", "ctrl+a")),
    *({"name": "upload_file", "text": name} for name in ("\0", "a" * 300, "a\0b\ncv.txt", "../" * 2000, "a/" * 2000)),
    *({"name": "navigate", "url": url} for url in ("", "\0", "http://[", "http://" + "a" * 300, "nothing", "x:y")),
    *({"name": "select_option", "text": text} for text in ("", "\0", "x" * 100_000)),
    {"name": "switch_tab", "tab": 10**30},
    {"name": "new_tab", "url": "\0"},
    {"name": "accept_dialog", "text": "x"},
]
TARGETS = {"click": "Press", "upload_file": "File", "select_option": "City"}


@pytest.mark.parametrize("fields", HOSTILE, ids=lambda fields: ascii(fields)[:60].replace("\\", "/"))
async def test_what_the_driver_or_the_disk_refuses_is_told_to_the_policy(session: BrowserSession, fields):
    """Whatever an executor raises is the action's fault, and the page can be acted on afterwards."""
    numbers = {
        element_snapshot.element.name: element_snapshot.element.id for element_snapshot in await list_elements(session)
    }
    if target := TARGETS.get(fields["name"]):
        fields = {**fields, "element_id": numbers[target]}
    assert await perform(session, Action(**fields))
    while len(session.pages) > 1:
        await perform(session, Action(name=ActionName.CLOSE_TAB))
    await list_elements(session)  # an error page may still be loading
    assert await ask(session, "1 + 1") == 2


async def test_names_of_files_that_are_no_text_and_what_asks_for_no_file_are_told(session: BrowserSession):
    (session.options.upload_folder / "odd\udcff.txt").write_text("x")
    assert "cv.txt" in await act(session, MARKS, ActionName.UPLOAD_FILE, "File", text="none.txt")
    pages = list(session.pages.tabs)
    assert "takes a file" in await act(session, MARKS, ActionName.UPLOAD_FILE, "Press", text="cv.txt")
    await session.evaluate("() => new Promise((done) => setTimeout(done, 300))")
    assert session.pages.tabs == pages  # the browser did not open the file itself


async def test_an_exception_of_an_executor_is_told_and_one_of_the_boundary_is_raised(session, monkeypatch):
    for error in (KeyError("k"), RecursionError(), OSError("o"), BoundaryError(FailureKind.BROWSER_CRASHED, "gone")):

        async def fail(*given, error=error):
            raise error

        monkeypatch.setitem(actions._EXECUTORS, ActionName.RELOAD, fail)
        if isinstance(error, BoundaryError):
            with pytest.raises(BoundaryError):
                await perform(session, Action(name=ActionName.RELOAD))
        else:
            assert type(error).__name__ in await perform(session, Action(name=ActionName.RELOAD))


async def test_tabs_history_and_reloading(session: BrowserSession):
    first = session.url
    tab, back, forward = (Action(name=ActionName(name)) for name in ("close_tab", "go_back", "go_forward"))
    assert "only tab" in await perform(session, tab) and list_tabs(session, {}) == ()
    assert "not there" in await perform(session, Action(name=ActionName.NEW_TAB, url="http://forbidden.test"))
    assert await perform(session, Action(name=ActionName.NEW_TAB, url=f"{first}?two")) is None
    listed = list_tabs(session, {session.page: "Two"})
    assert [(one.url, one.title, one.current) for one in listed] == [(first, "", False), (f"{first}?two", "Two", True)]
    assert "numbered 0 to 1" in await perform(session, Action(name=ActionName.SWITCH_TAB, tab=2))
    assert await perform(session, WebRLAction(name=WebRLActionName.SWITCH_TAB, tab=0)) is None and session.url == first
    assert await perform(session, Action(name=ActionName.CLOSE_TAB, tab=1)) is None
    assert len(session.pages.tabs) == 1 and session.url == first
    assert "forward" in await perform(session, forward)
    assert await perform(session, Action(name=ActionName.NAVIGATE, url=f"{first}?three")) is None
    assert await perform(session, back) is None
    assert await perform(session, WebRLAction(name=WebRLActionName.GO_FORWARD)) is None
    assert session.url == f"{first}?three"
    await ask(session, "(window.kept = 1)")
    assert await perform(session, Action(name=ActionName.RELOAD)) is None
    assert await ask(session, "window.kept") is None


async def test_there_is_a_most_of_tabs_and_no_page_locks_the_mouse(session: BrowserSession):
    assert await ask(session, "document.body.requestPointerLock().catch(({ name }) => name)") == "NotAllowedError"
    for _ in range(9):
        assert await perform(session, Action(name=ActionName.NEW_TAB)) is None
    assert "10 tabs" in await perform(session, Action(name=ActionName.NEW_TAB))


async def test_zooming_shows_a_region(session: BrowserSession):
    elements = tuple(seen.element for seen in await list_elements(session))
    out = io.BytesIO()
    picture = Image.new("RGB", SIZE, "white")
    picture.paste((255, 0, 0), (0, 0, 300, 200))
    picture.save(out, "PNG")
    view = RawObservation(url="", title="", png=out.getvalue(), elements=elements)
    corners = Action(name=ActionName.ZOOM, coordinate=(500, 500), to_coordinate=(100, 100))
    zoomed, error = await zoom_into(view, corners, SIZE)
    with Image.open(io.BytesIO(zoomed.png)) as seen:
        assert (seen.size, seen.getpixel((5, 5)), seen.getpixel((595, 395))) == (SIZE, (255, 0, 0), (255, 0, 0))
    assert error is None and len(zoomed.notices) == 1
    marked, error = await zoom_into(view, Action(name=ActionName.ZOOM, element_id=0), SIZE)
    assert error is None and marked.png != view.png
    for nowhere in (Action(name=ActionName.ZOOM, element_id=99), Action(name=ActionName.ZOOM)):
        assert await zoom_into(view, nowhere, SIZE) == (view, "there is no such region")


CANVAS = """<body style="margin: 0"><canvas width="200" height="100" style="margin: 40px 0 0 50px"></canvas><script>
window.log = [];
const canvas = document.querySelector("canvas");
for (const kind of ["mousedown", "mouseup", "wheel"]) canvas.addEventListener(kind, (event) => {
  event.preventDefault();
  log.push([kind, event.offsetX, event.offsetY]);
});
</script>"""
DRAWING = CANVAS.replace('"wheel"]', '"mousemove"]')


async def show_canvas(session: BrowserSession, page: str, is_framed: bool = False):
    """Show a page with a canvas, or a frame with it; return the canvas."""
    framed = f'<iframe sandbox="allow-scripts" width="300" height="200" srcdoc="{html.escape(page)}"></iframe>'
    await session.page.set_content(framed if is_framed else page)
    return next(one for one in await list_elements(session) if one.element.role == "canvas")


# Surfaces of the same place and size: what is drawn by shapes, and a map of tiles that lets nothing through.
AREA = 'width="600" height="400" style="display: block; width: 600px; height: 400px; margin: 0"'
SURFACES = {
    "svg": f'<svg id="s" {AREA} role="img" aria-label="Plan"><rect width="300" height="200"></rect></svg>',
    "map": f'<div id="s" {AREA} aria-label="Plan"><img width="300" height="400" draggable="false" alt=""></div>',
}
SURFACE_SCRIPT = """<script>
window.log = [];
for (const kind of ["mousedown", "mouseup", "wheel"]) document.getElementById("s").addEventListener(kind, (event) => {
  event.preventDefault();
  log.push([kind, event.clientX, event.clientY]);
  document.getElementById("s").dataset.at = log.at(-1); // as a map moves, or nothing seems to have
});
</script>"""


@pytest.mark.parametrize("kind", SURFACES)
async def test_positions_on_surfaces(session: BrowserSession, kind: str):
    await session.page.set_content(f'<body style="margin: 0">{SURFACES[kind]}{SURFACE_SCRIPT}')
    surface, *_ = (one.element for one in await list_elements(session) if one.element.name == "Plan")
    at = {"element_id": surface.id}
    for fields in (
        {"name": "click", "position": (250, 250), **at},
        {"name": "drag", "position": (750, 250), "to_element_id": surface.id, "to_position": (250, 750), **at},
        {"name": "scroll", "position": (500, 1000), "direction": "up", **at},
    ):
        assert await perform(session, Action(**fields)) is None
    assert await ask(session, "log") == [
        *(["mousedown", 150, 100], ["mouseup", 150, 100]),
        *(["mousedown", 450, 100], ["mouseup", 150, 300]),
        ["wheel", 300, 399],
    ]


@pytest.mark.parametrize("is_framed", [False, True])
async def test_positions_within_a_canvas(session: BrowserSession, is_framed: bool):
    canvas = (await show_canvas(session, CANVAS, is_framed)).element
    at = {"element_id": canvas.id}
    for fields in (
        {"name": "click", "position": (400, 600), **at},
        {"name": "click", "position": (1000, 1000), **at},
        {"name": "drag", "position": (100, 500), "to_element_id": canvas.id, "to_position": (900, 500), **at},
        {"name": "scroll", "position": (250, 250), "direction": "down", **at},
    ):
        assert await perform(session, Action(**fields)) is None
    assert await session.page.frames[-1].evaluate("() => log") == [
        *(["mousedown", 80, 60], ["mouseup", 80, 60]),
        *(["mousedown", 199, 99], ["mouseup", 199, 99]),
        *(["mousedown", 20, 50], ["mouseup", 180, 50], ["wheel", 50, 25]),
    ]


PATH = {"position": (100, 500), "to_position": (900, 500), "path": ((500, 0), (500, 1000), (0, 1000))}


@pytest.mark.parametrize("is_framed", [False, True])
async def test_a_drag_passes_the_points_of_its_path(session: BrowserSession, is_framed: bool):
    canvas = await show_canvas(session, DRAWING, is_framed)
    number = canvas.element.id
    drag = Action(name="drag", element_id=number, to_element_id=number, **PATH)
    by_point = point_at_elements(drag, [canvas] * (number + 1), (session.options.width, session.options.height))
    assert by_point.element_id is by_point.position is by_point.to_position is None
    for action in (drag, by_point):
        assert await perform(session, action) is None
        log = await session.page.frames[-1].evaluate("() => log.splice(0)")
        assert [kind for kind, *_ in log if kind != "mousemove"] == ["mousedown", "mouseup"]
        passed = [(x, y) for _, x, y in log]
        wanted = [(20, 50), (100, 0), (100, 99), (0, 99), (180, 50)]
        near = [next(i for i, one in enumerate(passed) if math.dist(one, to) <= 2) for to in wanted]
        assert near == sorted(near) and len(passed) > 20


async def test_a_long_path_takes_few_moves_and_passes_each_point(session: BrowserSession):
    canvas = (await show_canvas(session, DRAWING)).element
    path = tuple((20.0 * number, 1000.0 * (number % 2)) for number in range(50))
    ends = {"element_id": canvas.id, "to_element_id": canvas.id, "position": (0, 0), "to_position": (500, 500)}
    assert await perform(session, Action(name="drag", path=path, **ends)) is None
    log = [(x, y) for _, x, y in await session.page.evaluate("() => log")]
    assert len(log) < 120
    width, height = canvas.box[2:]
    near = [min(math.dist(one, (x * width / 1000, y * height / 1000)) for one in log) for x, y in path]
    assert max(near) <= 2


async def test_a_covered_position_is_refused(session: BrowserSession):
    cover = '<div style="position: absolute; left: 50px; top: 40px; width: 20px; height: 20px"></div>'
    canvas = (await show_canvas(session, f"{CANVAS}{cover}")).element
    error = await perform(session, Action(name="click", element_id=canvas.id, position=(50, 100)))
    assert error == f"element {canvas.id} is covered or out of reach at that position"
    assert await ask(session, "log") == []
