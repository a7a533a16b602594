"""Rules for what is listed, and how it is called, where a page says little; each as a person would see it."""

from pathlib import Path

import pytest

from tests.environments.browser.test_observe import read_controls, session, show
from webgym_cli.environments.browser.frames import ACT_JS
from webgym_cli.environments.browser.mouse import click
from webgym_cli.environments.browser.observe import list_elements
from webgym_cli.environments.browser.session import BrowserSession

pytestmark = pytest.mark.browser
__all__ = ["session"]

OVER = "position:absolute;inset:0;background:#fff"
LISTENS = "<script>for (const one of document.querySelectorAll('.m')) one.addEventListener('{}', () => {{}})</script>"
UNSHOWN = "<button hidden>Go</button>"
CASES = {
    "a field by the words before it, not by a button's": (
        "<div>Draft of a note <button>Delete</button></div><p><input></p>",
        "button 'Delete'; textbox 'Draft of a note'",
    ),
    "fields in a line, each by its own words": (
        "<div>From <input size=3> to <input size=3></div>",
        "textbox 'From'; textbox 'to'",
    ),
    "a field after another one has no words of its own": (
        "<div>From <input size=3><input size=3></div>",
        "textbox 'From'; textbox ''",
    ),
    "a box to tick by what comes after it": (
        "<div><label><input type=checkbox></label><button>Home</button></div>"
        "<div>Pay: <input type=radio> cash <input type=radio> card</div>",
        "checkbox 'Home'; button 'Home'; radio 'cash'; radio 'card'",
    ),
    "a field in a table by what heads its row": (
        "<table><tr><td><a href='#x'>Title</a></td><td><input></td></tr>"
        "<tr><th>Age</th><td>years</td><td><input></td></tr></table>",
        "link 'Title'; textbox 'Title'; textbox 'Age'",
    ),
    "a field that only its purpose names": (
        "<input type=search><br><input autocomplete='shipping given-name'><br><input>",
        "searchbox 'search'; textbox 'given name'; textbox ''",
    ),
    "an icon by its picture, not by its place": (
        "<div role=button class='tree-icon' style='width:20px;height:20px'><i class='fa fa-trash'></i></div>",
        "button 'trash'",
    ),
    "an icon by its class that says what it shows, not how it is drawn": (
        "<button><i class='fa-solid fa-2x fa-times'></i></button><button><i class='fa-brands fa-light-switch'></i>"
        "</button><button><i class='k-icon k-svg-icon k-svg-i-pin'></i></button>",
        "button 'times'; button 'light switch'; button 'pin'",
    ),
    "an icon by its class, else by what it is called in tests": (
        "<button><svg class='lucide lucide-circle-play h-5' width=20 height=20></svg></button>"
        "<button data-testid='save-button'><svg class='h-5' width=20 height=20></svg></button>",
        "button 'circle play'; button 'save button'",
    ),
    "classes that only lay out name nothing": (
        "<div class='flex items-center px-2' style='cursor:pointer;width:30px;height:30px'></div>"
        "<div class='items-center colour-well' style='cursor:pointer;width:30px;height:30px'></div>",
        "generic ''; generic 'colour well'",
    ),
    "what only has a tooltip, or is there to resize": (
        "<div id=a data-state=closed>CPU 3 %</div><div id=b data-state=closed aria-haspopup=menu>Menu</div>"
        "<div id=c tabindex=0 style='cursor:ns-resize;width:90px;height:20px'>=</div>"
        "<script>for (const l of [a, b, c]) l.addEventListener('click', () => {})</script>",
        "generic 'Menu'",
    ),
    "what is clicked on what is moved": (
        "<div style='cursor:move;width:200px;padding:9px'>Ask <b style='cursor:pointer'>x</b>"
        "<i style='cursor:crosshair'>out</i><u style='cursor:move'>part</u></div>",
        "generic 'Ask xoutpart'; generic 'x'; generic 'out'",
    ),
    "a row and the arrow before its words": (
        "<div style='cursor:pointer;width:200px'><span id=a><i style='display:inline-block;width:9px;height:9px'></i>"
        "</span>Flows<span id=b><svg width=12 height=12></svg></span></div>"
        "<script>for (const l of [a, b]) l.addEventListener('click', () => {})</script>",
        "generic 'Flows'; generic ''",
    ),
    "what dims the page, and a square of colour": (
        "<div id=a style='width:90px;height:30px;background:#8888'></div>"
        "<div id=b style='width:30px;height:30px;background:red' title=Red></div>"
        "<script>for (const l of [a, b]) l.addEventListener('click', () => {})</script>",
        "generic 'Red'",
    ),
    "a hint over the page that a click closes": (
        "<div id=a style='position:absolute;top:90px'>Information</div><div id=b>Fold</div>"
        "<script>for (const l of [a, b]) l.addEventListener('click', () => {})</script>",
        "generic 'Fold'",
    ),
    "items where only something far above listens": (
        "<div id=a><div><div><ul><li>Settings</li></ul></div></div></div>"
        "<script>a.addEventListener('mousedown', () => {})</script>",
        "generic 'Settings'",
    ),
    "what is drawn on, and what lies there": (
        "<svg width=380 height=200 style='cursor:crosshair'><rect x=9 y=9 width=30 height=30 style='cursor:move'>"
        "<title>Node</title></rect></svg>",
        "generic 'Node'",
    ),
    "what only an edge of is in sight": (
        "<div style='height:45px;overflow:auto'><div style='height:41px'></div>"
        "<a href='#x' style='display:block;height:60px'>Next</a></div>",
        "link 'Next'",
    ),
    "what a later box hides, and what is beside it": (
        f"<div style='position:relative;width:99px'><button>Under</button><i style='{OVER}'></i></div>"
        "<button>Free</button>",
        "button 'Free'",
    ),
    "what is above a later box": (
        "<div style='position:relative;z-index:2;width:50px'><button>Over</button></div>"
        "<div style='position:absolute;inset:0;z-index:1;background:#fff'></div>",
        "button 'Over'",
    ),
    "a layer within a context is not above another one": (
        "<div style='position:relative;z-index:1'><button style='position:absolute;z-index:99'>Deep</button></div>"
        "<div style='position:absolute;inset:0;z-index:2;background:#fff'><button style='margin:60px'>Top</button>",
        "button 'Top'",
    ),
    "what lies below its context": (
        "<div style='position:relative;z-index:0;width:99px;height:40px'><button style='position:absolute;z-index:-1'>"
        "Deep</button><p style='margin:0;height:40px;background:#fff'></p></div>",
        "",
    ),
    "a picture that lets clicks through": (
        f"<div style='position:relative;width:99px'><button>Go</button><i style='{OVER};pointer-events:none'></i>",
        "button 'Go'",
    ),
    "what a modal dialog makes inert": (
        "<button>Behind</button><dialog id=d><button>Yes</button></dialog><script>d.showModal()</script>",
        "button 'Yes'",
    ),
    "what leaves a clipping box that does not hold it": (
        "<div style='overflow:hidden;height:9px'><button style='position:absolute;top:80px'>Out</button></div>"
        "<div style='overflow:hidden;height:9px;position:relative'><button style='margin-top:30px'>Cut</button></div>"
        "<div style='overflow:hidden;height:9px'><a href='#x' style='position:fixed;top:120px'>Fixed</a></div>",
        "button 'Out'; link 'Fixed'",
    ),
    "rows of which the one under the mouse shows its actions": (
        "<ul id=m><li>Ann <button hidden>Mute</button></li><li>Bob <button hidden>Mute</button></li></ul>"
        "<script>m.addEventListener('mouseover', () => {})</script>",
        "listitem 'Ann'; listitem 'Bob'",
    ),
    "a name without what is transparent": (
        "<style>.c:hover u { opacity:1 }</style><div class=c style='width:90px'>Photo<u style='opacity:0'> <button>"
        "Like</button></u></div>",
        "generic 'Photo'",
    ),
    "a block of the page that is moved": (
        "<div id=m style='position:absolute;width:60px;height:60px;background:#00f;touch-action:none'></div>"
        "<script>m.addEventListener('pointerdown', () => {})</script>",
        "generic ''",
    ),
    "cards of a column that listens: equal ones, or what is not selected as text": (
        "<div class=m><h3>Todo</h3><p style='border:1px solid'>Fix</p><p style='border:1px solid'>Mend</p></div>"
        "<div class=m><h3>Done</h3><p style='border:1px solid;user-select:none'>Ask</p></div>"
        f"{LISTENS.format('pointerdown')}",
        "paragraph 'Fix'; paragraph 'Mend'; paragraph 'Ask'",
    ),
    "texts and cells in what listens to the pointer": (
        "<style>.m * { border-bottom:1px solid }</style><div class=m style='width:90px'><h1>Shop</h1><p>Open</p>"
        "<div>Note</div></div>"
        f"<table class=m><tr><td>Ann<td>Bob</table>{LISTENS.format('pointerdown')}",
        "generic 'Shop Open Note'; table 'Ann Bob'",
    ),
    "the words on a backdrop": (
        "<div><div class=m style='position:fixed;inset:0;background:#0008'><p style='background:#fff'>Loading</p>"
        f"<p style='background:#fff'>Wait</p></div></div>{LISTENS.format('mousedown')}",
        "",
    ),
    "rows whose headers are hidden below a copy of them": (
        "<table class=m><tr><th tabindex=-1 style='visibility:hidden'>1<td>Ann<tr><th tabindex=-1 style='visibility:"
        f"hidden'>2<td>Bob</table>{LISTENS.format('mouseover')}",
        "",
    ),
    "the arrow of a list that listens itself": (
        f"<div><div role=combobox tabindex=0 style='width:60px'>Rome</div><b class=m>"
        f"<svg width=16 height=16 onclick=1></svg></b></div>{LISTENS.format('click')}",
        "combobox ''",
    ),
    "the list that the mouse enters as one": (
        f"<ul class=m><li>Ann {UNSHOWN}<li>Bob {UNSHOWN}</ul>{LISTENS.format('mouseenter')}",
        "list 'Ann Bob'",
    ),
    "sections of a page, and the one row of a table, that listen to the mouse": (
        f"<header>Shop {UNSHOWN}</header><section>Text {UNSHOWN}</section><script>document.body.addEventListener("
        f"'mouseover', () => {{}})</script><table class=m><tr><td>Ann {UNSHOWN}</table>{LISTENS.format('mouseover')}",
        "",
    ),
    "headers of rows and of columns without a head of the table": (
        "<table><tr><td><th onclick=1>Q1<th onclick=1>Q2</tr><tr><th onclick=1>Ann<td>5<td>6</tr>"
        "<tr><th onclick=1 scope=col>Bob<td>7<td>8</table>"
        "<table><tr><th onclick=1>Item<th onclick=1>Price<td></tr></table>",
        "columnheader 'Q1'; columnheader 'Q2'; rowheader 'Ann'; columnheader 'Bob'; columnheader 'Item'; "
        "columnheader 'Price'",
    ),
    "fields above a row of totals, and below one of a section": (
        "<table><tr><th>Item<th>Qty</tr><tr><td>Pen<td><input></tr><tr><th>Tools<th>none</tr>"
        "<tr><td>Saw<td><input></tr><tr><th>Total<th>5</tr></table>",
        "textbox 'Qty'; textbox 'Qty'",
    ),
    "what a clip path leaves": (
        "<button style='clip-path:inset(0 60% 0 0);width:90px'>Left</button>"
        "<button style='clip-path:inset(50%)'>None</button>",
        "button 'Left'",
    ),
    "a transparent field under the label in its place, but none that nobody sees or reaches": (
        "<div style='position:relative;height:40px'><span style='position:absolute;pointer-events:none'>Name</span>"
        "<div style='opacity:0'><input></div></div><div style='opacity:0'>Leave empty <input></div>"
        "<div>Trap <input tabindex=-1 style='opacity:0'></div>",
        "textbox 'Name'",
    ),
    "a hidden switch by its label": (
        "<button role=switch id=s style='position:absolute;width:1px;height:1px;clip-path:inset(50%)'></button>"
        "<label for=s>Live</label>",
        "switch 'Live'",
    ),
    "controls that a component gives the role of a text or a container": (
        "<input role=alert aria-label=Amount><a href='#x' role=listitem>Drafts</a><button role=listitem>Inbox</button>"
        "<a href='#y' role=tab>First</a><select role=listbox aria-label=Kind><option>a</select>",
        "textbox 'Amount'; link 'Drafts'; button 'Inbox'; tab 'First'; listbox 'Kind'",
    ),
    "a component's label of a field, and one of nothing": (
        "<style>x-l { cursor:pointer }</style><x-l for=n>Name</x-l><input id=n aria-label=Name><x-l for=x>Help</x-l>",
        "textbox 'Name'; generic 'Help'",
    ),
    "components' labels of fields of other components": (
        "<style>x-l { cursor:pointer }</style><x-l for=f>Name</x-l><x-f id=f><template shadowrootmode=open>"
        "<input aria-label=Name></template></x-f><x-l for=s onclick='1'>Live</x-l>"
        "<x-s id=s role=switch tabindex=0 aria-label=Live>on</x-s><script>customElements.define('x-f',"
        " class extends HTMLElement { static formAssociated = true })</script>",
        "textbox 'Name'; switch 'Live'",
    ),
    "components that name what they open, or that take the focus, are no labels": (
        "<style>x-b { cursor:pointer }</style><my-button for=tip tabindex=0 onclick='1'>Menu</my-button>"
        "<p id=tip>Tip</p><x-b for=menu onclick='1'>Open menu</x-b><x-m id=menu>All</x-m>"
        "<x-b for=send>Why</x-b><button id=send>Send</button>"
        "<my-button for=n tabindex=0 onclick='1'>Clear</my-button><input id=n aria-label=Number>",
        "generic 'Menu'; generic 'Open menu'; generic 'Why'; button 'Send'; generic 'Clear'; textbox 'Number'",
    ),
    "a label above a line's end; a chosen option before its field": (
        "<div><label>Stay</label><br><div><input placeholder=Any><b>!</b></div></div>"
        "<div role=option>Oslo</div><input>",
        "textbox 'Stay'; option 'Oslo'; textbox ''",
    ),
    "a tab with a label, before a field": (
        "<div><x-t id=t class=has-label>All</x-t></div><div><input></div><script>t.attachShadow({mode:'open'})"
        ".innerHTML = '<button role=tab><slot></slot></button>'</script>",
        "tab 'All'; textbox ''",
    ),
    "what is moved, by its element's own name": (
        "<x-handle style='cursor:grab;display:block;width:30px;height:30px'></x-handle>",
        "generic 'x handle'",
    ),
    "a slider's track, with a range that is cut off in the handle": (
        f"<div><div class=m style='width:200px;height:9px'></div><p style='width:12px;height:12px' tabindex=0>"
        f"<input type=range aria-label=Size style='clip:rect(0,0,0,0);position:absolute'></p></div>"
        f"{LISTENS.format('click')}",
        "slider 'Size'",
    ),
    "boxes of a code in two groups": (
        "<p>The code</p><div><div>{0}{0}</div><svg width=9 height=9></svg><div>{0}{0}</div></div>".replace(
            "{0}", "<p><input maxlength=1></p>"
        ),
        "; ".join(["textbox 'The code'"] * 4),
    ),
    "two handles of a slider": (
        f"<div><label>Price</label><div>{2 * '<p><b role=slider tabindex=0>|</b></p>'}</div></div>",
        "slider 'Price'; slider 'Price'",
    ),
    "what is disabled and lets the mouse through, unless something is over it": (
        "<style>* { pointer-events: none } html, .o { pointer-events: auto }</style><button disabled>Save</button>"
        "<a href='#n' aria-disabled=true>Next</a><a href='#x'>Not disabled</a>"
        f"<p style='position:relative;width:99px'><button disabled>Covered</button><i class=o style='{OVER}'></i></p>",
        "button 'Save'; link 'Next'",
    ),
    "what is disabled within what is clicked; what is dragged, with a corner; lines of fields; a list": (
        "<div onclick=1>Card <button disabled style='pointer-events:none'>Buy</button></div><div onmousedown=1 style="
        "'width:99px;height:90px'>Milk <i style='display:block;width:16px;height:16px;cursor:se-resize'></i></div>"
        "<input aria-label=State maxlength=2><br><input maxlength=2><ul onmouseenter=1><li>One</ul>"
        "<button><i class='close-button-icon'></i></button><button><i class='p-button-icon'></i></button>",
        "generic 'Card Buy'; button 'Buy'; generic 'Milk'; generic 'resize'; textbox 'State'; textbox ''; "
        "button 'close button'; button ''; list 'One'",
    ),
    "the corner of a box, whose press a box around it handles": (
        "<style>i { position: absolute; width: 16px; height: 16px; bottom: 0 } .x-resize-grip { cursor: se-resize }"
        ".e { right: 0; cursor: s-resize } p { position: relative; width: 200px; height: 90px }</style>"
        "<div onmousedown=1><p>"
        "<i class=x-resize-grip></i><i class=e></i></p></div>",
        "generic 'resize grip'",
    ),
    "what listens to the mouse over it, not a list of such": (
        "<p onmouseover=1>Card</p><ul onmouseover=1><li>One</ul>",
        "paragraph 'Card'",
    ),
    "boxes of rows without words; a place to drop files around a field with its name": (
        "<table><tr><th><input type=checkbox><th>N<tr><td><input type=checkbox><td>17</table>"
        "<div style='border:1px solid'>Files <input type=file></div>"
        "<script>document.querySelector('div').addEventListener('drop', () => {})</script>",
        "checkbox 'select all'; checkbox '17'; file 'Files'",
    ),
    "a field after a tree": (
        "<div role=tree><b role=treeitem>Ann</b></div><div><p contenteditable style='height:30px'></p></div>",
        "treeitem 'Ann'; textbox ''",
    ),
    "fields that only a program names, by the words that a person reads": (
        "<table><tr><th>Kind<td><select name=kind_id><option>a</select><th>State<td><input name=state_id></table>"
        "<h2>Things</h2><form><input name=@q title='[F]' placeholder=Words><button>Find</button></form>"
        "<form><input name=@q title='[F]'><button>Find</button></form><i>City</i> <form>Town <input name=t>"
        "<button>Go</button></form>In <form style='display:inline'><input name=c><button>Go</button></form>"
        "<form><b>Goods</b><br><button>Show number:</button><input name=n></form>"
        "<table><thead><tr><th>User<th>Mail<tr><td><input name=userid><td><input name=usermail></thead></table>",
        "combobox 'Kind'; textbox 'State'; textbox 'Words'; button 'Find'; textbox 'Find'; button 'Find'; "
        "textbox 'Town'; button 'Go'; textbox 'In'; button 'Go'; button 'Show number:'; textbox 'Show number:'; "
        "textbox 'User'; textbox 'Mail'",
    ),
    "a field after a sentence, by its program's name": (
        "<p>Here you write what others should read about it, in as many words as you want.</p><textarea name=wikitext>"
        "</textarea>",
        "textbox 'wikitext'",
    ),
    "siblings that are moved over each other": (
        "<button style='width:90px;height:30px;display:block'>One</button>"
        "<div style='width:200px;height:60px;margin-top:-30px;position:relative'></div><button>Two</button>",
        "button 'Two'",
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_what_a_person_would_take_for_it(session: BrowserSession, tmp_path: Path, case: str):
    html, expected = CASES[case]
    await show(session, tmp_path, html)
    assert await read_controls(session) == expected


LINKS = "<a href='#x'>Delete</a>"
REVEALING = {
    "a submenu, by its item's link": (
        f"<style>li > ul {{ display: none }} li:hover > ul {{ display: block }}</style>"
        f"<ul><li><a href='#p'>Goods</a><ul><li>{LINKS}</li></ul></li></ul>",
        "Goods",
    ),
    "a submenu of plain items": (
        "<style>li > ul { display: none } li:hover > ul { display: block }</style>"
        "<ul><li>File<ul><li onclick=1>Delete</li></ul></li></ul>",
        "File",
    ),
    "a row's actions": (
        "<style>.a { visibility: hidden } .r:hover .a { visibility: visible }</style>"
        f"<div class=r>Anna <span class=a>{LINKS}</span></div>",
        "Anna",
    ),
    "a table's": (
        "<style>td a { display: none } tr:hover a { display: inline }</style>"
        f"<table><tr><td>Bob</td><td>{LINKS}</td></tr></table>",
        "Bob",
    ),
    "where there is a mouse": (
        "<style>.x { max-height: 0; overflow: hidden } @media (hover) { .m:hover .x { max-height: 9em } }</style>"
        f"<div class=m style='width:99px'><b>Media</b><div class=x>{LINKS}</div></div>",
        "Media Delete",
    ),
    "by a script": (
        f"<div id=m>Script<div id=x hidden>{LINKS}</div></div>"
        "<script>m.addEventListener('mouseenter', () => { x.hidden = false })</script>",
        "Script",
    ),
}


@pytest.mark.parametrize("case", REVEALING)
async def test_what_shows_controls_under_the_mouse_is_listed_and_hovered(session, tmp_path, case):
    html, name = REVEALING[case]
    await show(
        session,
        tmp_path,
        f"{html}<style>.t:hover i {{ display: block }} .t i {{ display: none }}</style>"
        "<p class=t>only a tip<i>words</i></p>",
    )
    (seen,) = await list_elements(session)
    assert (seen.element.name, seen.element.states) == (name, ("shows more on hover",))
    await session.move(*seen.point)
    assert "Delete" in [seen.element.name for seen in await list_elements(session)]


FIELD = "display:inline-block;width:200px;height:30px;border:1px solid;position:relative"
UNSEEN = "opacity:0;width:4px;position:absolute;left:6px"
TOLD = {
    "selects behind their frames": (
        f"<label for=r>Region</label><div style='{FIELD};cursor:pointer'><input id=r role=combobox style='{UNSEEN}'>"
        f"<i class=icon-down>v</i></div><label for=p>Place</label><div style='{FIELD}' onmousedown=1>"
        f"<input id=p role=combobox style='{UNSEEN}'><span style='margin-left:12px'>Vienna</span><i>v</i></div>",
        "combobox 'Region'; combobox 'Place' = 'Vienna'",
    ),
    "a select that is a text": (
        "<b id=l>Age</b>"
        "<div role=combobox aria-labelledby=l aria-expanded=false tabindex=0 style='width:90px'>Ten</div>",
        "combobox 'Age' = 'Ten'",
    ),
    "a slider in its track": (
        "<div style='width:200px;height:20px;cursor:pointer'><input type=range aria-label=Volume value=30 min=0 max=50 "
        "style='opacity:0;width:10px;height:10px'></div>",
        "slider 'Volume' = '30' (0 to 50)",
    ),
    "a switch of parts": (
        "<div role=switch aria-checked=false tabindex=0><span>Live</span><span onclick=1 style='display:inline-block;"
        "width:32px;height:16px;cursor:pointer'><span style='display:inline-block;width:16px;height:16px'>"
        "</span></span></div>",
        "switch 'Live' (unchecked)",
    ),
    "a grid's cells, after all else": (
        "<table role=grid onmousedown=1><tr><th>Name<th>Age</tr><tr><td>Ann<td>7</tr></table><button>Add</button>",
        "columnheader 'Name'; columnheader 'Age'; button 'Add'; gridcell 'row 1, column Name' = 'Ann'; "
        "gridcell 'row 1, column Age' = '7'",
    ),
    "what is dragged and where it is dropped": (
        "<div draggable=true>Card</div><div id=l style='width:90px;height:60px'><div>One</div><div>Two</div>"
        "</div><script>"
        "for (const type of ['pointerdown', 'dragover']) l.addEventListener(type, () => {})</script>",
        "generic 'Card'; generic 'One'; generic 'Two'; generic 'One Two'",
    ),
    "controls that receive drops, of which a part repeats the text": (
        "<div id=l><div role=textbox contenteditable=true aria-label=Code><div>wrong = (</div></div>"
        "<div contenteditable=true aria-label=Body><p>one line</p></div><button><span>Upload here</span></button>"
        "<div role=tab tabindex=0><div>File A</div></div><div role=treeitem><span>Folder</span></div>"
        "<a href='#'><div>Inbox</div></a></div><script>for (const one of l.children)"
        " for (const type of ['mousedown', 'drop']) one.addEventListener(type, () => {})</script>",
        "textbox 'Code' = 'wrong = ('; textbox 'Body' = 'one line'; button 'Upload here'; tab 'File A'; "
        "treeitem 'Folder'; link 'Inbox'",
    ),
    "what style sheets write": (
        "<style>.a::before { content: attr(data-l) } .b::after { content: 'Delete' }"
        " .c::before { content: '\\e001' } .d::before { content: url('data:,x') '→' }"
        " .e::before { content: 'Copy' }</style>"
        "<button class=a data-l=Heading></button><button class=b></button><button class=c></button>"
        "<button class=d></button><button><i class=e></i></button>",
        "button 'Heading'; button 'Delete'; button ''; button '→'; button 'Copy'",
    ),
    "states": (
        "<fieldset disabled><button>Off</button></fieldset><input aria-label=R required readonly>"
        "<button aria-pressed=false>"
        "Tog</button><div role=checkbox aria-checked=mixed tabindex=0>Mix</div><a href='#' aria-current=page>Cur</a>"
        "<input aria-label=I aria-invalid=true aria-errormessage=e><i id=e>wrong</i><input aria-label=F required "
        "autofocus><div role=option aria-posinset=2 aria-setsize=5>Opt</div><ol><li aria-current=step><a href='#'>Step"
        "</a></ol>"
        "<p><input aria-label=J aria-invalid=true><b class=field-error>Too short</b></p>"
        "<p><input aria-label=K required><b class=field-error>Give a name</b></p><p><input aria-label=L "
        "class=is-invalid><b class=field-error>Too long</b></p>",
        "button 'Off' (disabled); textbox 'R' (readonly) (required); button 'Tog' (not pressed); "
        "checkbox 'Mix' (mixed); link 'Cur' (current); textbox 'I' (invalid: wrong); textbox 'F' (required) (focused); "
        "option 'Opt' (2 of 5); link 'Step' (current); textbox 'J' (invalid: Too short); "
        "textbox 'K' (required) (invalid: Give a name); textbox 'L' (invalid: Too long)",
    ),
    "the options of native lists": (
        "<select aria-label=S><option>A<option>B<option disabled>X<optgroup disabled><option>Y</optgroup>"
        "</select><input list=l aria-label=D><datalist id=l><option>C"
        "</datalist>",
        "combobox 'S' = 'A' (options: A, B); combobox 'D' (options: C)",
    ),
}


@pytest.mark.parametrize("case", TOLD)
async def test_what_a_control_tells(session: BrowserSession, tmp_path: Path, case: str):
    html, expected = TOLD[case]
    await show(session, tmp_path, html)
    assert await read_controls(session, whole=True) == expected


async def test_only_the_part_of_a_switch_that_listens_is_clicked(session: BrowserSession, tmp_path: Path):
    html = TOLD["a switch of parts"][0].replace("onclick=1", "onclick=document.title='on'")
    await show(session, tmp_path, html)
    (seen,) = await list_elements(session)
    await click(session, seen.point)
    assert await session.evaluate("() => document.title") == "on"


async def test_a_box_is_what_is_seen(session: BrowserSession, tmp_path: Path):
    cover = "<div style='position:fixed;left:60px;top:0;width:100px;height:90px;background:red'></div>"
    await show(
        session, tmp_path, f"<input type=range aria-label=S style='position:absolute;left:9px;width:380px'>{cover}"
    )
    (seen,) = await list_elements(session)
    left, _, width, _ = seen.element.box
    assert abs(left - 160) <= 3 and abs(left + width - 391) <= 4


async def test_the_wheel_finds_what_scrolls_in_a_shadow_root_and_a_frame(session: BrowserSession, tmp_path: Path):
    box = "<div style='width:150px;height:90px;overflow:auto'><p style='height:900px'></p></div>"
    shadow = f"<x-box><template shadowrootmode=open>{box}</template></x-box>"
    frame = f'<iframe srcdoc="{box}" width=200 height=120></iframe>'
    for html, place in (
        (shadow, (83, 53)),
        (frame, (93, 63)),
        (frame.replace("<iframe", "<iframe sandbox"), (108, 68)),
    ):
        await show(session, tmp_path, html)
        point = (await session.evaluate(f"() => {ACT_JS}.wheelAt(null, 'down')"))["point"]
        assert [round(side / 10) for side in point] == [round(side / 10) for side in place]
