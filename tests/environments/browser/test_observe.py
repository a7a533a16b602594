"""What is listed of a page: what a person would take for a control, once, where it is seen, by its name."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from webgym_cli.environments.browser import frames
from webgym_cli.environments.browser.actions import locate_element
from webgym_cli.environments.browser.mouse import click
from webgym_cli.environments.browser.observe import list_elements, observe_script
from webgym_cli.environments.browser.options import SessionOptions
from webgym_cli.environments.browser.pool import BrowserPool
from webgym_cli.environments.browser.session import BrowserSession

pytestmark = pytest.mark.browser

HIDDEN = "position:absolute;width:1px;height:1px;overflow:hidden;clip:rect(0 0 0 0);opacity:0"
SURFACE = "<div id=m "
LISTEN = "<script>for (const type of [{}]) m.addEventListener(type, () => {{}})</script>"
CASES = {
    "a checkbox that its label stands for": (
        "<input type=checkbox id=a style='display:none'><label for=a>Dark</label>",
        "checkbox 'Dark'",
    ),
    "a clipped radio in its label": (
        f"<label><input type=radio style='{HIDDEN}'><span>Small</span></label>",
        "radio 'Small'",
    ),
    "a switch drawn over its input": (
        "<label style='position:relative;cursor:pointer'><input type=checkbox role=switch style='opacity:0'>"
        "<i style='position:absolute;inset:0;background:red'></i>Wifi</label>",
        "switch 'Wifi'",
    ),
    "a transparent file input": (
        "<div>Drop<input type=file aria-label=Upload style='opacity:0;width:90px;height:20px'></div>",
        "file 'Upload'",
    ),
    "a label for a hidden file input": (
        "<label style='cursor:pointer'>Upload a file<input type=file hidden></label>",
        "file 'Upload a file'",
    ),
    "a listener that nothing shows": (
        "<div id=l>Fold</div><script>l.addEventListener('click', () => {})</script>",
        "generic 'Fold'",
    ),
    "a list that handles its items' clicks": (
        "<ul id=l><li>a.txt</li><li>b.txt</li></ul><script>l.addEventListener('dblclick', () => {})</script>",
        "listitem 'a.txt'; listitem 'b.txt'",
    ),
    "headings that sort": (
        "<table id=l><tr><th>Name</th><th aria-sort=none>Size</th></tr></table>",
        "columnheader 'Size'",
    ),
    "a container that listens is no control": (
        "<div id=l><p>text</p><button>Go</button></div><script>l.addEventListener('click', () => {})</script>",
        "button 'Go'",
    ),
    "a field without formatting": ("<div contenteditable=plaintext-only aria-label=Note>x</div>", "textbox 'Note'"),
    "an editor whose field is hidden": (
        "<div role=code class=editor style='width:200px;height:50px'>let x"
        "<textarea aria-label=Code style='width:1px;height:1px'></textarea></div>",
        "textbox 'Code'",
    ),
    "media controls": ("<video controls aria-label=Film width=300 height=100></video>", "video 'Film'"),
    "a button of slotted content": (
        "<my-b>Save<template shadowrootmode=open><button><slot></slot></button></template></my-b>",
        "button 'Save'",
    ),
    "a component that is a control itself": (
        "<my-c tabindex=0 role=button style='display:inline-block'>Like<template shadowrootmode=open>"
        "<span style='cursor:pointer'><slot></slot></span></template></my-c>",
        "button 'Like'",
    ),
    "a link in the row of a tree": (
        "<div role=treeitem style='width:300px'><a href='#x'>Deep</a></div>",
        "link 'Deep'",
    ),
    "a label and what it names": ("<label>City <input></label>", "textbox 'City'"),
    "names as the specification has them": (
        "<button aria-labelledby='p q'>x</button><i id=p>One</i> <i id=q hidden>two</i>"
        "<button><img alt=Home></button><button><svg width=9 height=9><title>Mail</title></svg></button>"
        "<input type=submit><button><i class='fa fa-trash' style='display:block;width:9px;height:9px'></i></button>"
        "<div role=button>a<script>1</script><div>b</div><b hidden>no</b></div>",
        "button 'One two'; button 'Home'; button 'Mail'; button 'Submit'; button 'trash'; button 'a b'",
    ),
    "what changes under the mouse where the listener is above": (
        "<style>.head:hover { background: red } .node:hover { cursor: move }</style><div onmousedown='1'>"
        "<div class=head>Sort</div><div class=node style='width:90px'><b>Ask</b></div><div>Plain</div></div>"
        "<div class=head>No listener</div>",
        "generic 'Sort'; generic 'Ask'",
    ),
    "what changes with the thing that it is a part of": (
        "<style>.item:hover { cursor: move } .port:hover { background: red }</style>"
        "<div class=item onmousedown='1' style='width:90px'><i class=port>in</i> Node</div>",
        "generic 'in Node'",
    ),
    "what is dragged or connected": (
        "<div style='cursor:grab;width:50px'>Lane</div>"
        "<div class='output_1' style='cursor:crosshair;width:9px;height:9px'></div><div style='cursor:help'>Hint</div>",
        "generic 'Lane'; generic 'output 1'",
    ),
    "what lies between panes": (
        "<div onmousedown='1' style='width:5px;height:90px'></div><div onclick='1' style='width:40px'>Go</div>",
        "generic 'Go'",
    ),
    "an option with a checkbox that nobody sees": (
        "<div role=listbox><div role=option style='width:200px'><label>Open <input type=checkbox hidden></label>"
        "</div></div>",
        "option 'Open'",
    ),
    "a column's head with a filter in it, and fields in its cells": (
        "<table><thead><tr><th aria-sort=none>Age<br><input></th></tr></thead><tr><td><input></td></tr></table>",
        "columnheader 'Age'; textbox 'Age'; textbox 'Age'",
    ),
    "a cell only where it can be acted on": (
        "<div role=grid><div role=row><span role=gridcell>1</span><span role=gridcell tabindex=0>2</span></div></div>",
        "gridcell 'row 1, column 2'",
    ),
    "a map of the window's size with a button on it": (
        SURFACE + "style='position:absolute;inset:0'><button>+</button></div>" + LISTEN.format("'mousedown', 'wheel'"),
        "button '+'; generic '+'",
    ),
    "a board that is grabbed": (SURFACE + "style='height:300px;cursor:grab'>Lane</div>", "generic 'Lane'"),
    "an area that is pressed": (SURFACE + "style='height:300px'></div>" + LISTEN.format("'pointerdown'"), "generic ''"),
    "a drawing of the window's size": (
        "<svg id=m width=390 height=290><circle r=9 cx=99 cy=99 style='cursor:pointer' /></svg>"
        + LISTEN.format("'click'"),
        "generic ''; image ''",
    ),
    "a small chart that the wheel enlarges, not a picture": (
        "<svg id=m aria-label=Chart width=100 height=60></svg><svg aria-label=Logo width=100 height=60></svg>"
        + LISTEN.format("'wheel'"),
        "image 'Chart'",
    ),
    "a page that listens as a whole is no surface": (
        SURFACE + "style='height:300px'><p>text</p><button>Go</button></div>" + LISTEN.format("'click', 'mousedown'"),
        "button 'Go'",
    ),
    "a backdrop is no surface": (
        SURFACE + "style='position:fixed;inset:0'></div>" + LISTEN.format("'mousedown', 'click'"),
        "",
    ),
    "what is hovered by a listener or shows a menu beside it": (
        "<style>.menu { display: none } .row:hover + .menu { display: block }</style>"
        "<div id=m style='width:90px'>Chart</div><div class=row>More</div><div class=menu><button>Copy</button></div>"
        + LISTEN.format("'mouseenter'"),
        "generic 'More'; generic 'Chart'",
    ),
    "the empty column of a board, and no other box": (
        "<div><section class=c><h4>To do</h4><p aria-roledescription=sortable tabindex=0>Write</p></section>"
        "<section class=c><h4>Done</h4><i style='display:block;height:60px'></i></section>"
        "<section><h4>Help</h4></section></div><div style='height:60px'>Text</div>",
        "paragraph 'Write'; generic 'Done'",
    ),
    "cells of a table whose tips show cut texts are not listed": (
        "<table><tr><td id=m>Anna</table><button>Next</button>" + LISTEN.format("'mouseenter'"),
        "button 'Next'",
    ),
    "what is hovered around a control": (
        SURFACE + "style='width:90px'>Card <button>Buy</button></div>" + LISTEN.format("'pointerenter'"),
        "button 'Buy'",
    ),
    "what lies under a dialog": (
        "<iframe srcdoc='<button>Under</button>' width=200 height=60></iframe>"
        "<dialog id=d style='position:fixed;inset:0;width:390px;height:280px'><button>Over</button></dialog>"
        "<script>d.showModal()</script>",
        "button 'Over'",
    ),
}


@pytest.fixture(scope="module")
async def session(browsers: BrowserPool) -> AsyncIterator[BrowserSession]:
    browser_session = await browsers.session(SessionOptions(width=400, height=300, isolated_script=observe_script()))
    yield browser_session
    await browser_session.close()


async def show(session: BrowserSession, folder: Path, html: str) -> None:
    (folder / "page.html").write_text(f"<!doctype html><body>{html}")
    await session.goto((folder / "page.html").as_uri())
    await session.page.wait_for_load_state()


async def read_controls(session: BrowserSession, *, whole: bool = False) -> str:
    """Return what is listed, each by its role and name; `whole`: with a value that is not "", and each state, too."""
    texts = []
    for element in (seen.element for seen in await list_elements(session)):
        text = f"{element.role} '{element.name}'"
        if whole and element.value != "":
            text += f" = '{element.value}'"
        if whole:
            text += "".join(f" ({state})" for state in element.states)
        texts.append(text)
    return "; ".join(texts)


HOSTILE = """<script>const Map = 1, Node = 2, Set = 3; let performance = null; class WeakMap {}; window.Reflect = null;
Element.prototype.matches = () => { throw 1 }; Element.prototype.getBoundingClientRect = () => null;
Array.prototype.map = Array.prototype.filter = () => []; Document.prototype.elementFromPoint = () => null;
Object.defineProperty(Element.prototype, "shadowRoot", { get() { throw 2 } }); String.prototype.trim = () => "";
window.requestAnimationFrame = window.setTimeout = () => {}; EventTarget.prototype.addEventListener = null;</script>"""


async def test_a_page_s_scripts_and_ours_are_strangers(session: BrowserSession, tmp_path: Path):
    inner = HOSTILE.replace('"', "&quot;") + "<b id=i>Inside</b><script>i.onclick = () => i.textContent = 1</script>"
    framed = f'<iframe sandbox=allow-scripts srcdoc="{inner}" width=200 height=60></iframe>'
    html = f"{HOSTILE}<div id=d>Part</div><script>d.onclick = () => d.textContent = 'hit'</script><br>{framed}"
    await show(session, tmp_path, html)
    for names in (["Part", "Inside"], ["hit", "1"]):
        assert [seen.element.name for seen in await list_elements(session)] == names
        for number in (0, 1):
            await click(session, (await locate_element(session, number))[0])
    assert await session.evaluate("() => typeof webgym + typeof window[Symbol.for('webgym')]") == "undefinedobject"


@pytest.mark.parametrize("case", CASES)
async def test_what_is_listed(session: BrowserSession, tmp_path: Path, case: str):
    html, expected = CASES[case]
    await show(session, tmp_path, html)
    assert await read_controls(session) == expected


async def test_a_thousand_sortable_rows_are_compared_at_once(session: BrowserSession, tmp_path: Path):
    row = "<li style='height:50px'><button aria-roledescription=sortable>Row</button>"
    await show(session, tmp_path, f"<ul>{row * 1000}<li style='height:50px'></ul>")
    async with asyncio.timeout(10):  # one by one it took longer than a look may
        assert len(await list_elements(session)) == 6


async def test_a_frame_that_the_page_cannot_read_is_listed_and_clicked(session: BrowserSession, tmp_path: Path):
    inner = "<button onclick=this.textContent=1>Inside</button>"
    framed = f"<iframe sandbox=allow-scripts srcdoc='{inner}' width=200 height=60></iframe>"
    cover = "<div style='position:fixed;top:0;right:0;width:150px;height:100px;background:red'></div>"
    hidden = (
        "<iframe sandbox srcdoc='<button>Covered</button>' style='position:absolute;right:0;top:0' width=90></iframe>"
    )
    await show(session, tmp_path, f"<button>Out</button>{framed}{hidden}{cover}")
    assert [seen.element.name for seen in await list_elements(session)] == ["Out", "Inside"]
    await click(session, (await locate_element(session, 1))[0])
    assert [seen.element.name for seen in await list_elements(session)] == ["Out", "1"]


@pytest.mark.parametrize("seconds, names", [(0.6, ["Out", "Inside"]), (60, ["Out"])])
async def test_a_slow_frame_is_waited_for_and_a_silent_one_is_noted(browsers, tmp_path, monkeypatch, seconds, names):
    async def find_slowly(session: BrowserSession, frame: str = "") -> None:
        await asyncio.sleep(seconds)

    monkeypatch.setattr(frames, "find_listeners", find_slowly)
    monkeypatch.setattr(frames, "_FRAME_SECONDS", 0.3)
    options = SessionOptions(width=400, height=300, action_timeout=4, isolated_script=observe_script())
    session = await browsers.session(options)
    framed = "<iframe sandbox=allow-scripts srcdoc='<button>Inside</button>'></iframe>"
    try:
        await show(session, tmp_path, f"<button>Out</button>{framed}")
        for _ in range(2):
            assert [seen.element.name for seen in await list_elements(session)] == names
            assert len(session.silent) == 2 - len(names)
    finally:
        await session.close()


async def test_a_hidden_input_is_clicked_by_its_label(session: BrowserSession, tmp_path: Path):
    await show(session, tmp_path, CASES["a checkbox that its label stands for"][0])
    (seen,) = await list_elements(session)
    assert seen.element.value == "" and seen.element.box[2] > 10
    await click(session, (await locate_element(session, 0))[0])
    assert (await list_elements(session))[0].element.value == "checked"


async def test_a_list_full_of_options_is_clicked_at_its_edge_and_a_line_where_it_is_drawn(session, tmp_path):
    options = "".join(f"<option>{number}</option>" for number in range(9))
    line = "<svg width=200 height=100 style='display:block'><path d='M5 5 Q 5 95 190 95' fill=none stroke=red"
    await show(
        session,
        tmp_path,
        "<select multiple size=4 style='width:200px;padding:6px' onclick='document.title = event.target.localName'>"
        f"{options}</select>"
        f"{line} stroke-width=3 style='cursor:pointer' onclick=\"document.title = 'line'\"></path></svg>",
    )
    listed = await list_elements(session)
    for number, hit in ((0, "select"), (len(listed) - 1, "line")):
        await click(session, (await locate_element(session, number))[0])
        assert await session.evaluate("() => document.title") == hit


async def test_a_drawn_group_is_clicked_on_the_shape_that_listens(session: BrowserSession, tmp_path: Path):
    """As a node of a flow editor: its group has the name, its shapes have the listeners, and the rest does nothing."""
    shape = "height=30 style='cursor:move' onmousedown=\"document.title = 'node'\""
    await show(
        session,
        tmp_path,
        "<svg width=400 height=200 style='cursor:crosshair'><g style='cursor:move'><rect x=9 y=9 width=20 height=30 />"
        f"<rect x=12 y=15 width=12 height=12 style='cursor:pointer' onclick='0' /><rect x=30 y=9 width=100 {shape} />"
        "<text x=60 y=28 style='pointer-events:none'>clock</text></g></svg>",
    )
    (group,) = [seen.element.id for seen in await list_elements(session) if seen.element.name == "clock"]
    await click(session, (await locate_element(session, group))[0])
    assert await session.evaluate("() => document.title") == "node"


async def test_a_framework_s_root_is_nothing_to_click(session: BrowserSession, tmp_path: Path):
    listens = "for (let n = 0; n < 40; n++) r.addEventListener(n ? 'e' + n : 'click', () => {}); r.onclick = () => {}"
    await show(
        session,
        tmp_path,
        f"<div id=r style='width:90px'>Root <b id=b>Part</b></div><script>{listens};b.onclick = () => {{}}</script>",
    )
    assert [seen.element.name for seen in await list_elements(session)] == ["Part"]


async def test_what_lies_over_the_page_is_listed_first(session: BrowserSession, tmp_path: Path):
    many = "".join(f"<button>{number}</button>" for number in range(20))
    await show(session, tmp_path, f"{many}<div style='position:fixed;bottom:0'><button>Accept</button></div>")
    names = [seen.element.name for seen in await list_elements(session, limit=3)]
    assert names == ["0", "1", "Accept"]
