"""Rules for what is listed, and how it is called, where a page says little; each as a person would see it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.environments.browser.test_observe import session, show
from webgym_cli.environments.browser.observe import list_elements
from webgym_cli.environments.browser.session import BrowserSession

pytestmark = pytest.mark.browser
__all__ = ["session"]

CASES = {
    "a field by the words before it, not by a button's": (
        "<div>Draft of a note <button>Delete</button></div><p><input></p>",
        [("button", "Delete"), ("textbox", "Draft of a note")],
    ),
    "fields in a line, each by its own words": (
        "<div>From <input size=3> to <input size=3></div>",
        [("textbox", "From"), ("textbox", "to")],
    ),
    "a field after another one has no words of its own": (
        "<div>From <input size=3><input size=3></div>",
        [("textbox", "From"), ("textbox", "")],
    ),
    "a box to tick by what comes after it": (
        "<div><label><input type=checkbox></label><button>Home</button></div>"
        "<div>Pay: <input type=radio> cash <input type=radio> card</div>",
        [("checkbox", "Home"), ("button", "Home"), ("radio", "cash"), ("radio", "card")],
    ),
    "a field in a table by what heads its row": (
        "<table><tr><td><a href='#x'>Title</a></td><td><input></td></tr>"
        "<tr><th>Age</th><td>years</td><td><input></td></tr></table>",
        [("link", "Title"), ("textbox", "Title"), ("textbox", "Age")],
    ),
    "a field that only its purpose names": (
        "<input type=search><br><input autocomplete='shipping given-name'><br><input>",
        [("searchbox", "search"), ("textbox", "given name"), ("textbox", "")],
    ),
    "an icon by its picture, not by its place": (
        "<div role=button class='tree-icon' style='width:20px;height:20px'><i class='fa fa-trash'></i></div>",
        [("button", "trash")],
    ),
    "an icon by its class, else by what it is called in tests": (
        "<button><svg class='lucide lucide-circle-play h-5' width=20 height=20></svg></button>"
        "<button data-testid='save-button'><svg class='h-5' width=20 height=20></svg></button>",
        [("button", "circle play"), ("button", "save button")],
    ),
    "classes that only lay out name nothing": (
        "<div class='flex items-center px-2' style='cursor:pointer;width:30px;height:30px'></div>"
        "<div class='items-center colour-well' style='cursor:pointer;width:30px;height:30px'></div>",
        [("generic", ""), ("generic", "colour well")],
    ),
    "what only has a tooltip, or is there to resize": (
        "<div id=a data-state=closed>CPU 3 %</div><div id=b data-state=closed aria-haspopup=menu>Menu</div>"
        "<div id=c tabindex=0 style='cursor:ns-resize;width:90px;height:20px'>=</div>"
        "<script>for (const l of [a, b, c]) l.addEventListener('click', () => {})</script>",
        [("generic", "Menu")],
    ),
    "what is clicked on what is moved": (
        "<div style='cursor:move;width:200px;padding:9px'>Ask <b style='cursor:pointer'>x</b>"
        "<i style='cursor:crosshair'>out</i><u style='cursor:move'>part</u></div>",
        [("generic", "Ask xoutpart"), ("generic", "x"), ("generic", "out")],
    ),
    "a row and the arrow before its words": (
        "<div style='cursor:pointer;width:200px'><span id=a><i style='display:inline-block;width:9px;height:9px'></i>"
        "</span>Flows<span id=b><svg width=12 height=12></svg></span></div>"
        "<script>for (const l of [a, b]) l.addEventListener('click', () => {})</script>",
        [("generic", "Flows"), ("generic", "")],
    ),
    "what dims the page, and a square of colour": (
        "<div id=a style='width:90px;height:30px;background:#8888'></div>"
        "<div id=b style='width:30px;height:30px;background:red' title=Red></div>"
        "<script>for (const l of [a, b]) l.addEventListener('click', () => {})</script>",
        [("generic", "Red")],
    ),
    "a hint over the page that a click closes": (
        "<div id=a style='position:absolute;top:90px'>Information</div><div id=b>Fold</div>"
        "<script>for (const l of [a, b]) l.addEventListener('click', () => {})</script>",
        [("generic", "Fold")],
    ),
    "items where only something far above listens": (
        "<div id=a><div><div><ul><li>Settings</li></ul></div></div></div>"
        "<script>a.addEventListener('mousedown', () => {})</script>",
        [("generic", "Settings")],
    ),
    "what is drawn on, and what lies there": (
        "<svg width=380 height=200 style='cursor:crosshair'><rect x=9 y=9 width=30 height=30 style='cursor:move'>"
        "<title>Node</title></rect></svg>",
        [("generic", "Node")],
    ),
    "what only an edge of is in sight": (
        "<div style='height:45px;overflow:auto'><div style='height:41px'></div>"
        "<a href='#x' style='display:block;height:60px'>Next</a></div>",
        [("link", "Next")],
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_what_a_person_would_take_for_it(session: BrowserSession, tmp_path: Path, case: str):
    html, expected = CASES[case]
    await show(session, tmp_path, html)
    assert [(seen.element.role, seen.element.name) for seen in await list_elements(session)] == expected
