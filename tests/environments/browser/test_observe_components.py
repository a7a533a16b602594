"""What component libraries draw: which of their parts is the control, and what it is called."""

from pathlib import Path

import pytest

from tests.environments.browser.test_observe import read_controls, session, show
from webgym_cli.environments.browser.observe import list_elements
from webgym_cli.environments.browser.session import BrowserSession

pytestmark = pytest.mark.browser
__all__ = ["session"]

UNSEEN = "position:absolute;opacity:0;width:13px;height:13px"
ICON = "display:inline-block;width:16px;height:16px"
BOX = "display:inline-block;width:160px;height:30px;border:1px solid"
STAR = f"<b tabindex=0 class='C' style='{ICON}'></b>"
CODE = "<input style='width:30px;height:32px'>"
DAYS = [str(day) for day in range(10, 25)]


def name_day(month: str, day: str) -> str:
    around = " ".join((month, *(other for other in DAYS if other != day)))
    return f"generic '{day}' (in {around[:39]}…)"


CASES = {
    "boxes of one code, and a field beside one that is no part of it": (
        f"<p>Code</p><p>{CODE * 3}</p><label>Zip <input maxlength=3></label><input maxlength=9>",
        "textbox 'Code' (1 of 3); textbox 'Code' (2 of 3); textbox 'Code' (3 of 3); textbox 'Zip'; textbox ''",
    ),
    "fields after one of another width, a wide one, and two; a part without words in a tall box": (
        f"<p>Code</p><p>{CODE}{CODE.replace('30', '44')}</p><label>Name <input></label><input>"
        "<div>From <input maxlength=4> to <input maxlength=4></div><input maxlength=4>"
        f"<div style='height:90px'><p><input aria-label=Size></p><button style='{ICON}'></button></div>",
        "textbox 'Code'; textbox '' (1 of 3); textbox 'Name'; textbox '' (2 of 3); textbox 'From'; textbox 'to'; "
        "textbox '' (3 of 3); textbox 'Size'; button ''",
    ),
    "parts without words in a field's frame, and of what has a label before it": (
        f"<p><label>Size <input value=2></label><button style='{ICON}'></button></p><label>Volume</label><div style="
        f"'position:relative;height:20px'><i>.</i><i id=t style='{ICON};position:absolute;left:90px'></i></div>"
        "<script>t.addEventListener('mousedown', () => {})</script>",
        "textbox 'Size' = '2'; button 'Size'; generic 'Volume'",
    ),
    "a tab with a cross of its own": (
        "<div id=t style='width:90px'>Beta <b id=x>×</b></div><script>for (const part of [t, x]) part.addEventListener("
        "'mouseup', () => {})</script>",
        "generic 'Beta ×'; generic '×'",
    ),
    "a small icon, fields that listen to drops, a cell with a button": (
        f"<p style='cursor:pointer'>Ann <i id=x title=delete style='{ICON};width:7px;height:11px'></i></p>"
        "<div onclick=1><textarea id=b aria-label=Note style='width:90px'></textarea></div><div onclick=1>"
        "<input id=c aria-label=Link></div><div role=grid><div role=row aria-label=News><div role=gridcell tabindex=0>"
        "News<button>x</button></div></div></div><script>x.addEventListener('click', () => {});"
        "for (const one of [b, c]) one.addEventListener('drop', () => {})</script>",
        "paragraph 'Ann'; generic 'delete'; textbox 'Note'; textbox 'Link'; button 'x'; gridcell 'News'",
    ),
    "a node of a flow editor with a field, a list beside words in its frame": (
        "<style>.n:hover { cursor: move }</style><div onmousedown=1><div class=n style='position:absolute;top:9px;"
        "width:160px'><b>Ask</b><p><input aria-label=Question></p></div></div><p tabindex=0 style='margin-top:99px;"
        "width:200px'>Page size: <b id=l role=combobox aria-label=Size tabindex=0>20</b></p>"
        "<script>l.addEventListener('click', () => {})</script>",
        "generic 'Ask Question'; textbox 'Question'; combobox 'Size' = '20'",
    ),
    "days of a calendar with things in them": (
        "<div onmousedown=1 style='height:280px'><table role=grid><tr><td role=gridcell style='width:60px;height:60px'>"
        "<i style='cursor:pointer'>Lunch</i> <i style='cursor:pointer'>Tea</i></table></div>",
        "generic 'Lunch'; generic 'Tea'",
    ),
    "a transparent list over its picture": (
        "<label for=r>Range</label><div style='position:relative;height:30px'><select id=r style='opacity:0;"
        "position:absolute;inset:0;z-index:2;width:160px'><option>Today<option>Week</select><div>Today</div></div>",
        "combobox 'Range' = 'Today' (options: Today, Week)",
    ),
    "handles beside the hidden fields of a range": (
        "<div tabindex=-1 onclick=1 style='display:flex;gap:90px;height:24px'>"
        + "".join(
            f"<div style='width:1px'><input type=range aria-label={name} value={n} style='{UNSEEN};width:1px'>"
            "<div style='cursor:col-resize;width:12px;height:12px'></div></div>"
            for name, n in (("From", 2), ("To", 6))
        )
        + "</div>",
        "slider 'From' = '2'; slider 'To' = '6'",
    ),
    "the box and the range that a form sends for a component's own": (
        f"<label>Gift <span role=checkbox aria-checked=false tabindex=0 style='{BOX}'></span>"
        f"<input type=checkbox aria-hidden=true tabindex=-1 style='{UNSEEN}'></label><div><label for=r>Price</label>"
        "</div><div style='position:relative;height:30px'><label>0</label><input type=range id=r aria-hidden=true "
        "style='position:absolute;opacity:0.3;z-index:1'><div role=slider aria-valuenow=20 tabindex=0 "
        "style='position:absolute;pointer-events:none;top:0;left:40px;width:16px;height:16px'></div></div>",
        "checkbox 'Gift' (unchecked); slider 'Price' = '20'",
    ),
    "what stands between the parts of a date": (
        "<div onmousedown=1><span role=spinbutton aria-label=Day tabindex=0>5</span><span>/</span>"
        "<span role=spinbutton aria-label=Month tabindex=0>7</span></div>",
        "spinbutton 'Day'; spinbutton 'Month'",
    ),
    "a widget that a finger's press drags": (
        f"<div id=w style='{BOX}'>Sales</div><script>w.addEventListener('touchstart', () => {{}}, {{ passive: false }})"
        "</script>",
        "generic 'Sales'",
    ),
    "boxes of its own in a label": (
        f"<label><span role=radio aria-checked=false tabindex=0 style='{BOX}'></span><input type=radio aria-hidden="
        f"true tabindex=-1 style='{UNSEEN}'>cash</label>",
        "radio 'cash' (unchecked)",
    ),
    "a label that reaches nothing": (
        "<label for=none style='cursor:pointer'>Severity</label> <button>Low</button>",
        "button 'Low'",
    ),
    "a column on which cards are dropped, by its own word": (
        f"<div data-drop-target-for-element=true style='{BOX}'>Todo</div>",
        "generic 'Todo'",
    ),
    "handles that a style sheet draws": (
        "<style>i::before { content: ''; position: absolute; width: 12px; height: 12px; margin: -6px }</style>"
        "<div style='position:relative;height:20px'><i tabindex=0 style='position:absolute;top:9px;left:40px'><input "
        "type=range readonly tabindex=-1 aria-label=Zoom aria-valuenow=50 style='position:absolute;clip:rect(0,0,0,0);"
        "width:100%;height:100%'></i></div>",
        "slider 'Zoom' = '50'",
    ),
    "a switch in a wider frame that does nothing": (
        "<div style='cursor:pointer;width:400px'><button role=switch aria-checked=false aria-label=Live style='width:"
        "40px'></button></div>",
        "switch 'Live' (unchecked)",
    ),
    "a date that its field's title repeats": (
        "<div><div><label>Born</label></div><div><input title=2026-05-17 value=2026-05-17></div></div>",
        "textbox 'Born' = '2026-05-17'",
    ),
    "a label behind its field, and around a field with its button": (
        "<div style='position:relative'><div><input readonly value=Rome></div><label>City</label></div>"
        "<label>Accent <button>v</button><input></label>",
        "textbox 'City' = 'Rome' (readonly); button 'Accent'; textbox 'Accent'",
    ),
    "a slider beside a button with a label of its own": (
        "<div><button><span class=label--pressed>Pause</span></button><div><input type=range aria-label=Seek></div>",
        "button 'Pause'; slider 'Seek' = '50'",
    ),
    "boxes of rows under the box for all": (
        "<table><tr><th><input type=checkbox aria-label='Select all'></th><th>Name</th></tr>"
        "<tr><td><input type=checkbox></td><td>Ann</td></tr><tr><td><input type=checkbox></td><td>Bob</td></table>",
        "checkbox 'Select all' (unchecked); checkbox 'Ann' (unchecked); checkbox 'Bob' (unchecked)",
    ),
    "equal boxes whose label tells nothing": (
        "<table>"
        + "".join(
            f"<tr><td><label for=b{n}><span>Select</span></label><span>Select</span><input type=checkbox id=b{n}>"
            f"</td><td>{n}</td></tr>"
            for n in ("o1", "o2")
        )
        + "</table>",
        "checkbox 'Select' (unchecked) (in Select o1); checkbox 'Select' (unchecked) (in Select o2)",
    ),
    "icons are neither a value nor a name where there is a title": (
        "<button aria-label='Move up'><svg role=img aria-label=FormUp width=9 height=9></svg></button>"
        "<ul><li title='Next page' style='display:inline-block'><button><span role=img aria-label=right>&gt;</span>"
        "</button></li></ul><img onclick=1 src='data:image/gif;base64,R0lGODlhAQABAAAAACw=' width=9>",
        "button 'Move up'; button 'Next page'; image ''",
    ),
    "an item of a list without its buttons": (
        "<ul><li tabindex=0 style='cursor:pointer'>Alpha<button aria-label='Alpha up'>^</button></li></ul>",
        "listitem 'Alpha'; button 'Alpha up'",
    ),
    "the days of a calendar that only react to the mouse": (
        "<style>.day:not(.off):hover { cursor: pointer }</style><div id=c><div><span class=day>Mon</span> <span "
        "class='day off'>Tue</span></div></div><script>c.addEventListener('click', () => {})</script>",
        "generic 'Mon'",
    ),
    "what opens a menu by the right button": (
        "<p id=m data-state=closed>Card</p><script>m.addEventListener('contextmenu', () => {})</script>",
        "paragraph 'Card'",
    ),
    "the hidden field of a tree": (
        f"<div role=tree style='{BOX};background:#eee'><div><input aria-label='for readers' style='width:0;height:"
        "0;opacity:0;border:0;padding:0'></div><div role=treeitem tabindex=0>Parent</div></div>",
        "treeitem 'Parent'",
    ),
    "a text that is only read aloud": (
        f"<div style='{BOX}'><input role=combobox aria-label=Filter><p style='position:absolute;width:1px;height:1px;"
        "overflow:hidden;clip-path:inset(50%)'>Use the arrow keys</p></div>",
        "combobox 'Filter'",
    ),
    "a drawing under the surface that takes its clicks": (
        "<div style='position:relative;width:400px'><canvas width=400 height=200 title=Plan></canvas><div id=o "
        "style='position:absolute;inset:0'><i style='cursor:move;display:block;width:9px;height:9px'></i></div></div>"
        "<script>o.addEventListener('mousedown', () => {})</script>",
        "generic ''; canvas 'Plan'",
    ),
    "a combobox around the field that takes its text": (
        f"<div role=combobox aria-expanded=false aria-label=Fruit style='{BOX}'><input value=Pear aria-label=input "
        "style='width:150px'></div>",
        "combobox 'Fruit' = 'Pear'",
    ),
    "what a button shows beside its state, where its label is another": (
        "<button aria-label='Open menu' aria-expanded=false>Actions</button>",
        "button 'Open menu' = 'Actions, collapsed'",
    ),
    "a field whose wrappers have only what a framework leaves beside them": (
        "<div id=f><div><label>Many</label></div></div><script>let at = f;for (let n = 0; n < 9; n++) {at.append("
        "document.createTextNode(''), document.createComment(''));at = at.appendChild(document.createElement('div'))}"
        "at.innerHTML = '<input type=search>'</script>",
        "searchbox 'Many'",
    ),
    "a label around a field with its open calendar, which gives the field another name": (
        "<label style='position:relative;display:block;height:20px'>Start <input aria-label='Use the arrow keys'><div "
        "style='position:absolute;top:30px'><p>May 2026</p></div></label>",
        "textbox 'Start: Use the arrow keys'",
    ),
    "a part of a shadow root without a parent": (
        "<div id=h></div><script>h.attachShadow({mode: 'open'}).innerHTML = '<svg tabindex=0></svg><p>x'</script>",
        "image ''",
    ),
    "buttons that are labels with a hidden box": (
        f"<label><input type=radio name=s style='{UNSEEN}'><span style='cursor:pointer;padding:9px'>S</span></label>"
        f"<label><input type=checkbox checked style='{UNSEEN}'><span style='cursor:pointer'>Box</span></label>",
        "radio 'S' (unchecked); checkbox 'Box' = 'checked'",
    ),
    "a tree's item with a handle, a box and its words": (
        "<div role=treeitem style='width:200px'><span role=img aria-label=holder>=</span>"
        "<span role=checkbox aria-label='Select Fruit' tabindex=0>o</span><span onclick=1 style='cursor:pointer'>Fruit"
        "</span></div>",
        "treeitem 'Fruit'; checkbox 'Select Fruit' (unchecked)",
    ),
    "a field deep in the row of its label, and what is none": (
        "<div><div><label>City</label></div><div><div><div><div><div><div><div><div><input type=search></div></div>"
        "</div></div></div></div></div></div></div><div><div><label>Colour</label></div><div><div><div "
        f"style='{BOX};cursor:pointer'><i class=x-icon onclick=1 style='display:block;height:26px'></i></div></div>"
        "</div></div>",
        "searchbox 'City'; generic 'Colour'",
    ),
    "a field with an icon that opens it": (
        f"<label for=d>Born</label><div style='{BOX}'><span><i class=el-icon onmousedown=1 style='display:inline-block;"
        "width:14px;height:14px'></i></span><input id=d style='width:120px'></div>",
        "textbox 'Born'",
    ),
    "a list behind a field without keys": (
        "<input readonly aria-haspopup=listbox aria-label=Place value=Rome>",
        "combobox 'Place' = 'Rome'",
    ),
    "a calendar's heads are not clicked, its days are": (
        "<table onclick=1><thead><tr><th>Mo<th>Tu</tr></thead><tr><td style='cursor:pointer'>1"
        "<td style='cursor:pointer'>2</table>",
        "cell '1'; cell '2'",
    ),
    "things that are moved on a surface that is moved": (
        "<div style='cursor:grab;width:300px;height:90px' title=Plane><div id=n role=group tabindex=0 "
        "style='width:60px'>Ask</div><p>Work</p></div><script>n.addEventListener('mousedown', () => {})</script>",
        "generic 'Ask Work'; group 'Ask'",
    ),
    "an open branch, disclosure and popover": (
        "<ul role=tree><li role=treeitem aria-expanded=true aria-selected=true>Fruit<ul role=group>"
        "<li role=treeitem>Pear</li></ul></li></ul><details open><summary>More</summary></details>"
        "<button popovertarget=p>Menu</button><div popover id=p>x</div><div inert><button>Never</button></div>",
        "treeitem 'Fruit' = 'expanded' (selected); treeitem 'Pear'; button 'More' = 'expanded'; "
        "button 'Menu' = 'collapsed'",
    ),
    "the areas of a picture": (
        "<img width=90 height=90 usemap=#m src='data:image/svg+xml,%3Csvg xmlns=%22http://www.w3.org/2000/svg%22/%3E'>"
        "<map name=m><area href='#a' alt=Left coords='0,0,40,90'><area href='#b' alt=Right shape=circle "
        "coords='65,45,20'></map>",
        "link 'Left'; link 'Right'",
    ),
    "a spreadsheet without roles": (
        "<table style='user-select:none'><thead><tr><td></td><td>City</td></tr></thead>"
        "<tr><td>1</td><td>Oslo</td></tr><tr><td>2</td><td></td></tr></table>",
        "cell 'row 1, column 1' = '1'; cell 'row 1, column City' = 'Oslo'; cell 'row 2, column 1' = '2'; "
        "cell 'row 2, column City'",
    ),
    "labels that no element links": (
        "<div><label>City</label><div style='cursor:pointer;position:relative'>Oslo"
        "<div style='position:absolute;top:30px'><p>Rome</p></div></div></div>"
        "<div><label>Tags</label><p><b>red</b><input name=t></p></div>"
        "<div><input type=radio name=w><label>Air</label></div><label><input type=radio name=s value=1></label>",
        "generic 'City' = 'Oslo'; textbox 'Tags'; radio 'Air' (unchecked); radio '1' (unchecked)",
    ),
    "two fields in a row with one label": (
        "<div><div><label>Stay</label></div><p><span><input placeholder=Start></span>"
        "<span><input placeholder=End></span></p></div>",
        "textbox 'Start'; textbox 'End'",
    ),
    "a label that moves the focus into its field": (
        "<h5 id=h>Name</h5><input aria-labelledby=h list=d><datalist id=d><option>Ann</datalist>"
        "<script>h.addEventListener('click', () => {})</script>",
        "combobox 'Name' (options: Ann)",
    ),
    "a button that is a label with a box behind it": (
        "<input type=checkbox id=c style='position:absolute;clip:rect(0,0,0,0);pointer-events:none'>"
        "<label for=c style='padding:20px'>Bold</label>",
        "checkbox 'Bold' (unchecked)",
    ),
    "the two fields of a range of dates": (
        "<div role=group aria-label=Stay>"
        + "".join(
            f"<div style='border:1px solid;width:200px;height:40px' onclick=1><span contenteditable role=spinbutton "
            f"aria-label='day, {end}'>DD</span>."
            f"<span contenteditable role=spinbutton aria-label='month, {end}'>MM</span></div>"
            for end in ("Start", "End")
        )
        + "</div>",
        "group 'Start' = 'DD.MM'; group 'End' = 'DD.MM'",
    ),
    "a grid whose header is drawn apart, with a control beside a cell's text": (
        "<div role=grid onmousedown=1><table><thead><tr><th role=columnheader aria-colindex=2 aria-sort=none>City"
        "<button aria-label=' ' style='width:14px;height:14px'></button></th></tr></thead></table><table>"
        "<tr role=row aria-rowindex=4><td role=gridcell aria-colindex=1><input type=checkbox aria-label=Paid></td>"
        "<td role=gridcell aria-colindex=2>Oslo <b style='cursor:pointer'>v</b></td></tr></table></div>",
        "columnheader 'City'; button 'City'; checkbox 'Paid' (unchecked); generic 'v'; "
        "gridcell 'row 4, column City' = 'Oslo v'",
    ),
    "a row whose cells are listed, and cells that only lay out": (
        "<div role=grid onmousedown=1><div role=row style='cursor:pointer' onclick=1><div role=gridcell>Ann</div></div>"
        "<table role=presentation><tr><td>6am</td></tr></table></div>",
        "gridcell 'row 1, column 1' = 'Ann'",
    ),
    "a box by its label's name": (
        "<label aria-label='Select this row'><input type=checkbox></label><button aria-label=Expand>v</button>",
        "checkbox 'Select this row' (unchecked); button 'Expand'",
    ),
    "a row with a hidden box hides no control": (
        f"<div id=r><label><input type=checkbox style='{UNSEEN}'><i style='padding:9px'>Row</i></label></div>"
        "<script>r.addEventListener('mouseenter', () => {})</script>",
        "checkbox 'Row' (unchecked)",
    ),
    "short texts of a popup, numbers of a wheel, a text of lines": (
        "<div onclick=1 style='position:absolute;top:90px'><div>anna</div><div>bert</div></div>"
        "<div onclick=1><div>00</div><div>05</div><div>10</div></div>"
        "<div onclick=1 style='width:90px'><p>One</p><p>Two</p><p>Three</p></div>",
        "generic 'anna'; generic 'bert'; generic '00'; generic '05'; generic '10'; generic 'One Two Three'",
    ),
    "bars between panes": (
        "<div style='display:flex;height:200px'><div>A</div><div title=Bar style='cursor:col-resize;width:6px'>"
        "</div><div>B</div><b style='cursor:col-resize;width:6px;height:30px'></b>"
        "<div role=separator tabindex=0 aria-label=Keys "
        "aria-valuenow=50 style='width:6px'></div></div>",
        "generic 'Bar'; separator 'Keys' = '50'",
    ),
    "the boxes of a code, a transparent range": (
        "<div role=group aria-label=Code><input maxlength=1><input maxlength=1></div><label for=v>Volume</label>"
        "<div style='position:relative'><input id=v type=range style='opacity:0;width:200px'></div>",
        "textbox 'Code' (1 of 2); textbox 'Code' (2 of 2); slider 'Volume' = '50'",
    ),
    "a list in two hidden fields, a label that is another's": (
        f"<label for=c>City</label><div onclick=1 style='{BOX};cursor:pointer'><div style='{UNSEEN}'><input id=c "
        f"readonly aria-haspopup=listbox></div><div style='{UNSEEN}'><select tabindex=-1><option>x</select></div>"
        "<span>Oslo</span></div><input id=k type=checkbox><label for=k>Agree</label><input>",
        "combobox 'City' = 'Oslo'; checkbox 'Agree' (unchecked); textbox ''",
    ),
    "labels of what is a field only to the eye": (
        "<label for=x>Speed</label><b id=x role=combobox tabindex=0>Slow</b><div><label>Food</label>"
        "<div><div tabindex=0 "
        f"style='{BOX}'><i class=x-placeholder style='color:#ccc'>Pick one</i></div></div></div><p>a<label>Deep</label>"
        "<input></p><div><i tabindex=0>Help</i></div><label for=h>Place</label><div role=combobox tabindex=0 "
        "style='width:99px'><select id=h hidden tabindex=-1></select>Oslo</div>",
        "combobox 'Speed' = 'Slow'; generic 'Food'; textbox 'Deep'; generic 'Help'; combobox 'Place' = 'Oslo'",
    ),
    "rows with an expander or a box, stars in a frame": (
        f"<div onclick=1 style='width:300px'><b style='cursor:pointer;{ICON}'><svg width=9 height=9>"
        "<title>Open</title></svg></b>Docs</div>"
        f"<div onclick=1 style='cursor:pointer;width:300px'><b role=checkbox aria-label=Pick tabindex=0 style='{ICON}'>"
        f"</b>Pear</div><div style='cursor:pointer;width:90px'><i onclick=1 style='{ICON}'></i>"
        f"<i onclick=1 style='{ICON}'></i></div><div role=treeitem aria-label=Plan style='width:200px'>"
        "<b role=button aria-label=Expand>+</b><i onclick=1>Plan</i></div>",
        "generic 'Docs'; generic 'Open'; generic 'Pear'; checkbox 'Pick' (unchecked); generic '' (1 of 2); "
        "generic '' (2 of 2); treeitem 'Plan'; button 'Expand'",
    ),
    "cells that listen in a row that is clicked": (
        "<table><tr style='cursor:pointer'><td onclick=1><div role=checkbox aria-label=Pick><input type=checkbox "
        "aria-label=Pick></div></td><td onclick=1>Ann</td></tr></table>",
        "row 'Ann'; checkbox 'Pick' (unchecked)",
    ),
    "equal names by what is beside them": (
        "<ul><li>Anna <button>Edit</button></li><li>Bob <button>Edit</button></li></ul><table role=grid><tr><th>Do</tr>"
        "<tr><td><button>Go</button></td></tr><tr><td><button>Go</button></td></tr></table>",
        "button 'Edit' (in Anna); button 'Edit' (in Bob); button 'Go' (in row 1, column Do); "
        "button 'Go' (in row 2, column Do)",
    ),
    "the days of a calendar, and cells of a row with a name, by their place": (
        "<table><tr><th>Mo<th>Tu</tr><tr><td onclick=1>1<td onclick=1>2</tr>"
        "<tr><td onclick=1>8<td onclick=1>1</tr></table>"
        "<table><tr><td>Ann<td onclick=1>free</tr><tr><td>Bob<td onclick=1>free</tr></table>",
        "cell '1' (in row 1, column Mo); cell '2'; cell '8'; cell '1' (in row 2, column Tu); cell 'free' (in Ann); "
        "cell 'free' (in Bob)",
    ),
    "a list's frame with its field, and a button that shows the choice": (
        "<div><label>City</label><div><div role=combobox tabindex=0><input tabindex=-1 placeholder='Pick one'></div>"
        "</div></div><button aria-label=Town aria-haspopup=listbox aria-expanded=false>Oslo</button>"
        "<i tabindex=0 aria-label=edit>Old title</i>",
        "combobox 'City'; button 'Town' = 'Oslo'; generic 'edit' = 'Old title'",
    ),
    "the buttons of a field, stars, a label by its class": (
        "<div><label>Seats</label><p><button><i class='x-icon-minus'></i></button><input value=2><button>"
        "<i class='x-icon-plus'></i></button></p></div><div><label>Score</label><ul>"
        f"<b onclick=1 style='{ICON}'></b><b onclick=1 style='{ICON}'></b></ul></div><div><div class=item-label>Born"
        "</div><p><input placeholder='Pick a day'></p></div>",
        "button 'minus'; textbox 'Seats' = '2'; button 'plus'; generic 'Score' (1 of 2); generic 'Score' (2 of 2); "
        "textbox 'Born'",
    ),
    "a box for all rows; a tree's item with a box of its own": (
        "<table><tr><th><p><input type=checkbox></p><th>Name</tr></table><div role=treeitem style='width:200px'>"
        "<b role=button tabindex=0 aria-label='expand'>+</b><label><input type=checkbox></label>Fruit</div>",
        "checkbox 'select all' (unchecked); treeitem 'Fruit'; button 'expand'; checkbox 'Fruit' (unchecked)",
    ),
    "rows that can be chosen, in a header that is moved": (
        "<div onclick=1 style='cursor:default;width:200px'><div ondragover='event.preventDefault()' ondrop=1>"
        "<b role=columnheader aria-sort=none>Name</b><b role=columnheader aria-sort=none>Age</b></div></div>"
        "<div role=treegrid><div role=row tabindex=0 aria-selected=false><div role=gridcell>Ann</div></div></div>",
        "columnheader 'Name'; columnheader 'Age'; generic 'Name Age'; gridcell 'row 1, column 1' = 'Ann'",
    ),
    "cells under the headers over them, whatever else the head rows have": (
        "<div role=grid><div role=row><div role=gridcell style='display:inline-block;width:90px'><input type=checkbox "
        "aria-label=All></div><div role=columnheader style='display:inline-block;width:90px'>Name</div></div><div "
        "role=row><div role=gridcell style='display:inline-block;width:90px'><input type=checkbox aria-label=One></div>"
        "<div role=gridcell tabindex=0 style='display:inline-block;width:90px'>Ann</div></div></div><table role=grid>"
        "<thead><tr><th rowspan=2>City<th colspan=2>Days<tr><th>Open<th>Shut</thead>"
        "<tr><td>Oslo<td tabindex=0>Mo<td tabindex=0>Su</table><table role=grid><thead style='display:none'><tr><th>A"
        "<th>B</thead><tr><td>1<td tabindex=0>x</table>",
        "checkbox 'All' (unchecked); checkbox 'One' (unchecked); gridcell 'row 1, column Name' = 'Ann'; "
        "gridcell 'row 1, column Open' = 'Mo'; gridcell 'row 1, column Shut' = 'Su'; "
        "gridcell 'row 1, column B' = 'x'",
    ),
    "controls behind the faces of their components, and options that label no field": (
        "<div style='cursor:pointer;width:90px;position:relative' onclick=1><button role=tab aria-selected=true style='"
        "pointer-events:none;width:90px;height:30px'>Day</button></div><div role=listitem onclick=1 style='cursor:"
        "pointer;width:300px'>City <button aria-label=City aria-haspopup=dialog aria-expanded=false "
        "style='position:absolute;"
        "clip:rect(0,0,0,0);opacity:0'></button></div><div><div><b class=label>Aa</b><b class=label>Bb</b></div><input "
        "aria-label=Find></div><input type=checkbox id=m checked aria-label=All><script>m.indeterminate=true</script>",
        "tab 'Day' = 'selected'; button 'City' = 'collapsed'; textbox 'Find'; checkbox 'All' (mixed)",
    ),
    "a closed list with its chosen option, a name of a list behind it, a year beside a month": (
        "<div><label>City</label><div role=combobox tabindex=0 aria-expanded=false style='width:99px'><div "
        "role=listbox><div role=option aria-selected=true "
        "tabindex=0>Oslo</div></div></div></div><div><label>Size</label><select "
        "tabindex=-1 style='position:absolute;width:1px;height:1px;opacity:0'><option>S</select><div role=combobox "
        "tabindex=0 aria-label=Combobox style='width:99px'>S</div></div><div onclick=1 style='cursor:pointer;"
        "width:200px'><select tabindex=-1 aria-label=Month><option>May</select><input aria-label=Year "
        "style='width:40px'></div>",
        "combobox 'City' = 'Oslo'; combobox 'Size: Combobox' = 'S'; generic 'MonthYear'; "
        "combobox 'Month' = 'May' (options: May); textbox 'Year'",
    ),
    "what is moved by scripts that listen to the whole page": (
        "<div style='touch-action:none;width:90px;height:40px'><b style='touch-action:none'>Card</b></div>"
        "<div style='touch-action:manipulation;width:90px;height:40px'>Text</div>",
        "generic 'Card'",
    ),
    "no label of a panel that is not shown": (
        "<div><div hidden><label>Name</label></div><div><p><input></p></div></div>"
        "<div><div><label hidden>Age</label></div><div><p><input></p></div></div>",
        "textbox '' (1 of 2); textbox '' (2 of 2)",
    ),
    "a component's own words for its field and its heads": (
        "<div><label>Born *</label><p><input aria-label='Select date'></p></div><div><label>City</label><p><input "
        "aria-label='Your city'></p></div><p role=checkbox tabindex=0><i class=box-label>Agree</i></p>"
        "<p>Volume <b role=slider tabindex=0 style='display:inline-block;width:20px;height:20px'></b>"
        "<i style='display:inline-block;cursor:pointer;width:90px;height:9px'></i></p>"
        "<table role=grid><tr><th><b aria-label='Not sorted'>Name</b></tr>"
        "<tr><td tabindex=0>Ann</tr></table>",
        "textbox 'Born *: Select date'; textbox 'Your city'; checkbox 'Agree' (unchecked); slider 'Volume'; "
        "gridcell 'row 1, column Name' = 'Ann'",
    ),
    "the parts of a component, a label in its slot, a grid that listens": (
        "<x-f label=City onclick=1 style='display:block;width:300px'><label slot=l for=k>Agree</label><input id=k "
        "type=checkbox slot=b></x-f><script>customElements.define('x-f', class extends HTMLElement {"
        "connectedCallback() { this.attachShadow({ mode: 'open' }).innerHTML = `<slot name=b>"
        "</slot><b style='cursor:pointer'><slot name=l>"
        "</slot></b><i part='button clear-button' style='cursor:pointer;padding:9px'></i><div role=grid>"
        "<div role=row><span role=columnheader aria-sort=none>Name</span></div><div role=row><span "
        "role=gridcell tabindex=-1>Ann</span>"
        "</div></div>` } })</script>",
        "generic 'Agree: clear button'; columnheader 'Name'; checkbox 'Agree' (unchecked); "
        "gridcell 'row 1, column Name' = 'Ann'",
    ),
    "what the frame of a list shows beside its label and crosses": (
        "<style>div { width: 160px }</style><div role=combobox aria-label=City aria-expanded=false tabindex=0><p>City"
        "</p><p>Oslo</p></div><div role=combobox aria-label=Tags aria-expanded=false tabindex=0><b><u>×</u>Go</b> "
        "<b><u>×</u>C++</b> <b>3×4</b></div><div role=combobox aria-label=Zoom aria-expanded=false tabindex=0>×2</div>"
        "<div role=combobox aria-label=Sign aria-expanded=false tabindex=0><u>×</u></div>"
        "<div role=combobox aria-label=Size aria-expanded=false tabindex=0>Size 2</div><i id=l>Who</i>"
        "<button aria-haspopup=listbox aria-labelledby='l v'><b id=v>Ann</b></button>"
        "<div role=combobox aria-label=Area tabindex=0><b>3</b> <u>×</u> <b>4</b></div>"
        "<div role=combobox aria-label='Go C' tabindex=0><p><b>Go</b> <b>C</b></p></div>",
        "combobox 'City' = 'Oslo'; combobox 'Tags' = 'Go C++ 3×4'; combobox 'Zoom' = '×2'; "
        "combobox 'Sign' = '×'; combobox 'Size' = 'Size 2'; button 'Who' = 'Ann'; "
        "combobox 'Area' = '3 × 4'; combobox 'Go C' = 'Go C'",
    ),
    "disabled components and buttons that only keep a place": (
        "<style>button { border: 0; background: none; width: 30px; height: 30px; cursor: pointer } #i::before {"
        "content: '+' } #j::after { content: '-' }</style><x-d disabled style='padding:9px'>Save</x-d>"
        "<button disabled></button><button disabled title=Undo></button><button disabled id=i></button>"
        "<button disabled id=j></button><button disabled aria-label=Redo></button>"
        "<button disabled class=icon-box style='border:1px solid'></button><button "
        "disabled class=icon-pen style='background-image:linear-gradient(red,red)'></button><button class=icon-cut>"
        "</button><x-l><label slot=l id=l>Kind</label><p slot=b role=button "
        "aria-haspopup=listbox aria-labelledby=l tabindex=0>Red</p></x-l><script>const part = (name, html) => "
        "customElements.define(name, class extends HTMLElement { static formAssociated = true; constructor() { super();"
        "this.attachInternals(); this.addEventListener('click', () => {});"
        "this.attachShadow({ mode: 'open' }).innerHTML = html } });"
        "part('x-d', `<button disabled style='pointer-events:none'><slot></slot></button>`);"
        "part('x-l', `<i onclick=1 style='padding:5px'><slot name=l></slot></i><slot name=b></slot>`)</script>",
        "button 'Save' (disabled); button 'Undo' (disabled); button '+' (disabled); button '-' (disabled); "
        "button 'Redo' (disabled); button 'box' (disabled); button 'pen' (disabled); button 'cut'; "
        "button 'Kind' = 'Red'",
    ),
    "the heads of a calendar whose days get the focus": (
        "<table role=grid onclick=1><tr><th role=columnheader>Mo<th role=columnheader>Tu<th role=columnheader "
        "tabindex=-1>We<tr><td tabindex=0>4<td tabindex=-1>5<td tabindex=-1>6</table>",
        "columnheader 'We'; gridcell 'row 1, column Mo' = '4'; gridcell 'row 1, column Tu' = '5'; "
        "gridcell 'row 1, column We' = '6'",
    ),
    "a list in its field, icons by a setting, an editor below a toolbar": (
        "<style>.o:hover { background: red } .o, p { display: block }</style><div style='cursor:pointer;width:160px'>"
        "<p>Pick</p><div style='position:absolute;top:50px;width:160px;display:flex'><b class=o>Red</b><b class=o>Blue"
        "</b><b>Old</b><section><b class=o>Pink</b><b class=o>Grey</b></section><u>"
        "<b class=o>New</b><b>Tip</b></u></div></div><div style='position:absolute;left:200px;top:0'><div style='"
        "cursor:pointer;width:90px'><i><u><b class=o>One</b><b class=o>Two</b></u></i></div></div>"
        f"<div style='margin-top:90px'><button uk-icon='icon: heart; ratio: 2' style='{ICON}'></button><button "
        f"show-icon=true style='{ICON}'></button><button icon=true no-icon=no class=icon-trash style='{ICON}'></button>"
        f"<button has-icon=1 class=icon-save style='{ICON}'></button><button end-icon=right x-icon=/a.svg style='"
        f"{ICON}'></button><button end-icon=more class=icon-copy style='{ICON}'></button></div>"
        "<div role=toolbar><button>Bold</button><p class=label>Colours</p><label>Sizes</label>"
        "</div><p contenteditable role=textbox aria-label=Text>Hi <a href=#x>there</a></p>",
        "generic 'Pick'; generic 'Red'; generic 'Blue'; generic 'Pink'; generic 'Grey'; generic 'One Two'; "
        "button 'heart'; button '' (1 of 2); button 'trash'; "
        "button 'save'; button '' (2 of 2); button 'copy'; button 'Bold'; "
        "textbox 'Text' = 'Hi there'; link 'there'",
    ),
    "a field in a shadow tree by the label of its host": (
        "<x-a label=City></x-a><x-a aria-label=Street></x-a><x-a title=Zip></x-a><script>customElements.define('x-a', "
        "class extends HTMLElement { connectedCallback() { this.attachShadow({ mode: 'open' }).innerHTML = `<input>` } "
        "})</script>",
        "textbox 'City'; textbox 'Street'; textbox 'Zip'",
    ),
    "cells under two rows of headers, beside a header of their own": (
        "<table role=grid><tr><th><th colspan=2>2023</tr><tr><th><th>Q1<th>Q2</tr><tr><th tabindex=0>Ann"
        "<td tabindex=0>10<td tabindex=0>20</tr></table>",
        "rowheader 'Ann'; gridcell 'row Ann, column Q1' = '10'; gridcell 'row Ann, column Q2' = '20'",
    ),
    "what hides an open popover": (
        "<button popovertarget=p>Info</button><div id=p popover=manual><button popovertarget=p popovertargetaction="
        "hide>Close</button></div><script>p.showPopover()</script>",
        "button 'Info' = 'expanded'; button 'Close'",
    ),
    "equal names by what is beside all of them": (
        "<div><div>Ann <i style='cursor:pointer'>+</i> <i style='cursor:pointer'>+</i></div>"
        "<div>Bob <i style='cursor:pointer'>+</i></div></div>",
        "generic '+' (in Ann) (1 of 2); generic '+' (in Ann) (2 of 2); generic '+' (in Bob)",
    ),
    "how a column is sorted, whose header takes drops": (
        "<table><tr><th aria-sort=ascending onclick=1 ondragover=1><div>Name</div><th aria-sort=descending><button>Size"
        "</button></table>",
        "columnheader 'Name' (sorted ascending); button 'Size' (sorted descending)",
    ),
    "lists that are called as what is chosen in them": (
        "<label for=a>City</label><div><b id=a role=combobox tabindex=0 aria-label=Rome>Rome</b></div>"
        "<div><label>Pet</label><p role=combobox tabindex=0 aria-labelledby=v><b id=v>Cat</b></p></div>"
        "<label><b>5</b><input role=combobox aria-label=Rows value=5></label>",
        "combobox 'City' = 'Rome'; combobox 'Pet' = 'Cat'; combobox 'Rows' = '5'",
    ),
    "an icon behind a field that listens itself": (
        f"<label for=p>Secret</label><div style='{BOX}'><input id=p style='width:120px'>"
        f"<svg class=x-icon-eye style='{ICON}' onclick=1><rect width=9 height=9 /></svg></div>",
        "textbox 'Secret'; image 'eye'",
    ),
    "icons by a ligature, and by what they are beside a class for all icons": (
        "<button><i aria-hidden=true>arrow_back</i></button>"
        f"<button class=x-button-icon-only><svg class=x-icon-plus style='{ICON}'></svg></button>"
        f"<i class='n-tree-switcher n-base-icon' style='{ICON};cursor:pointer'></i>",
        "button 'arrow back'; button 'plus'; generic 'tree switcher'",
    ),
    "a list whose rows are of one cell": (
        "<div role=grid><div role=row aria-label=One aria-selected=true><div role=gridcell>Drag One</div></div></div>",
        "gridcell 'One' = 'Drag One' (selected)",
    ),
    "a slider beside another field's words": (
        "<div><b role=radio tabindex=0>fast</b><div role=slider tabindex=0 style='width:9px;height:9px'></div></div>",
        "radio 'fast' (unchecked); slider ''",
    ),
    "an empty field below tabs": (
        "<div><div role=tablist><b role=tab>Ann</b></div><div><input role=combobox aria-label=Pet></div></div>",
        "tab 'Ann'; combobox 'Pet'",
    ),
    "buttons without words by the class that the other has not, or by the class around": (
        f"<p><button class='x-btn x-spin-up' style='{ICON}'></button><button class='x-btn x-spin-down' style='{ICON}'>"
        f"</button></p><p class=x-font-colour><button class=x-picker-label style='{ICON}'></button></p>",
        "button 'spin up'; button 'spin down'; button 'font colour'",
    ),
    "a grid that owns the table of its heads, which have buttons": (
        "<table id=h><tr><th>Name <button>Filter</button></table><div role=grid aria-owns='h b'><table id=b "
        "role=presentation><tr><td role=gridcell tabindex=0>Ann</table></div>",
        "button 'Filter'; gridcell 'row 1, column Name' = 'Ann'",
    ),
    "labels of sliders, chosen words and lists before another field": (
        f"<div><div><label>Size</label><b role=slider tabindex=0 style='{BOX}'></b></div><div><input></div></div>"
        f"<label>Towns</label><p><a class=label style='cursor:pointer'>Oslo</a> <input></p><p><b class=label><i "
        f"role=listbox aria-label=Way aria-expanded=false style='{BOX};cursor:pointer'>air</i></b>"
        "<input placeholder=Act></p>",
        "slider 'Size'; textbox ''; link 'Oslo'; textbox 'Towns'; listbox 'Way' = 'air'; textbox 'Act'",
    ),
    "labels of fields that stand after a list or a slider, and of a link that is only its words": (
        f"<div><label>Phone</label><p><b role=listbox tabindex=0 aria-label=Land style='{BOX};cursor:pointer'>+47</b>"
        f"<input type=tel></p></div><div><label>Cost</label><p><b><i role=slider tabindex=0 style='{BOX}'></i></b><b>"
        "<input></b></p></div><p><a class=label>City</a> <input></p><p><b role=listbox tabindex=0 aria-label=Unit "
        f"style='{BOX};cursor:pointer'>kg</b><input></p>",
        "listbox 'Land'; textbox 'Phone'; slider 'Cost'; textbox 'Cost'; textbox 'City'; listbox 'Unit'; textbox ''",
    ),
    "stars with a place of their own, a box that is read-only, a part of what has a title": (
        "<div title=Rate>"
        + "".join(
            f"<b role=radio class='{name}' aria-checked=false aria-posinset={n} aria-setsize=2 style='{ICON}'></b>"
            for n, name in enumerate(("active icon", "icon"), 1)
        )
        + "</div><label>Gift <input type=checkbox readonly></label><p title=Oslo><i onclick=1>×</i>Oslo</p>",
        "radio '' (unchecked) (1 of 2); radio '' (unchecked) (2 of 2); checkbox 'Gift' (unchecked); generic '×'",
    ),
    "a picture in the box that it fills, and one called as the part that it is": (
        "<p style='width:40px;height:40px;cursor:pointer'><svg id=s style='width:36px;height:36px'></svg></p>"
        "<div id=h></div><div id=k><input aria-label=From><input aria-label=To></div><div id=m><input aria-label=City>"
        "<input aria-label=Town hidden></div><script>s.addEventListener('click', () => {});"
        "h.attachShadow({ mode: 'open' }).innerHTML = "
        f"`<i part='base clear-button' onclick=1 style='{ICON}'></i>`; for (const one of [k, m]) one.attachShadow({{ "
        f"mode: 'open' }}).innerHTML = `<slot></slot><i part=clear onclick=1 style='{ICON}'></i>`</script>",
        "paragraph ''; generic 'clear button'; generic 'clear'; textbox 'From'; textbox 'To'; "
        "generic 'City: clear'; textbox 'City'",
    ),
    "buttons, rows and cells without a box around them in their shadow roots": (
        "<span></span><span class=star-box></span><span></span><span></span><span></span><script>const parts = ["
        f"`<button style='{ICON}'></button>`, `<b onclick=1 style='{ICON}'></b>`, '<p role=row><b role=gridcell "
        "tabindex=0>Ann</b></p>', '<p role=gridcell><button></button><button>Edit</button><button>Edit</button></p>',"
        "'<b role=spinbutton contenteditable aria-label=Day>1</b>'];"
        "for (const one of document.querySelectorAll('span')) one.attachShadow({ mode: 'open' }).innerHTML = "
        "parts.shift()</script>",
        "button '' (1 of 2); generic 'star box'; gridcell 'row 1, column 1' = 'Ann'; button '' (2 of 2); "
        "button 'Edit' (1 of 2); button 'Edit' (2 of 2); spinbutton 'Day' = '1'",
    ),
    "what opens the tree in its frame, the arrow of a list, what is between parts of a date": (
        f"<div id=d style='{BOX}'><input role=combobox aria-label=Fish style='{UNSEEN}'>Cod <b role=button "
        f"aria-haspopup=tree style='{ICON}'></b></div><p style='font-size:12px'><i aria-hidden=true>/</i><i>?</i></p>"
        "<script>for (const one of document.querySelectorAll('i')) one.addEventListener('pointerenter', () => {});"
        "d.addEventListener('click', () => {})</script><p role=listbox aria-label=Way aria-expanded=false "
        f"style='{BOX};cursor:pointer'>air <u class='caret icon' onclick=1 style='{ICON}'></u></p>",
        "combobox 'Fish' = 'Cod'; listbox 'Way' = 'air'; generic '?' (shows more on hover)",
    ),
    "a disabled button in what only shows its tip, and one that a hidden tip names": (
        "<span onclick=1 style='display:inline-block'><button disabled style='pointer-events:none'>Back</button></span>"
        "<button aria-labelledby=tip>x</button><i id=tip style='visibility:hidden'><b>Show password</b></i>"
        "<button aria-labelledby=code>Go</button><b id=code style='display:none'><i><style>b {}</style></i></b>"
        "<button aria-labelledby=icon>Up</button><b id=icon><i aria-hidden=true>arrow_upward</i></b>",
        "button 'Back' (disabled); button 'Show password'; button 'Go'; button 'Up'",
    ),
    "stars of two classes after one label; what is chosen by its class alone; a button of two parts": (
        f"<div><label>Stars</label><p>{STAR.replace('C', 'star star-selected')}{STAR.replace('C', 'star')}</p></div>"
        "<div onclick=1 class=t-active>One</div><div onclick=1 class='not-active inactive'>Two</div>"
        "<div onclick=1 class='non-active un-checked'>Three</div>"
        "<button>Save</button><button aria-haspopup=menu></button><button>Off</button><button aria-expanded=false>"
        "</button><button style='margin-right:9px'>Home</button><button aria-haspopup=menu></button>",
        "generic 'Stars' = 'selected' (1 of 2); generic 'Stars' (2 of 2); generic 'One' = 'selected'; generic 'Two'; "
        "generic 'Three'; button 'Save'; button 'Save: menu'; button 'Off'; button '' = 'collapsed' (1 of 2); "
        "button 'Home'; button '' (2 of 2)",
    ),
    "fields that open a list: by their own role, and in a button": (
        f"<p style='{BOX};overflow:hidden'><input role=listbox aria-label=File readonly aria-expanded=false style='"
        f"{UNSEEN}'>Music</p><button aria-haspopup=listbox><input inert readonly aria-label=City value=Oslo></button>",
        "listbox 'File' = 'Music'; combobox 'City' = 'Oslo'",
    ),
    "an empty box for drops beside the page's one field; the cross of a chip in a field": (
        "<main><input aria-label=Find><div id=done style='border:1px solid;height:60px;width:150px'></div></main>"
        f"<p style='{BOX}'><b>red <i onclick=1 class=tag-remove style='{ICON}'></i></b><input aria-label=Tags></p>"
        "<script>done.addEventListener('dragover', () => {})</script>",
        "textbox 'Find'; generic 'tag remove'; textbox 'Tags'; generic 'done'",
    ),
    "the fields of a range in a frame that is clicked, too": (
        f"<style>input {{ width:70px;height:20px }}</style><div onclick=1 style='{BOX}'>"
        "<input onclick=1 placeholder=From>-<input onclick=1 placeholder=To></div>",
        "textbox 'From'; textbox 'To'",
    ),
    "a list for drops of a library, and what has no name but its id": (
        f"<div cdkdroplist style='height:60px'><p>Item</p></div><div cdkdroplistgroup>Rest</div>"
        f"<div id=app onclick=1 style='{ICON}'><b></b></div>",
        "generic ''; generic 'Item'",
    ),
    "classes with a library's letter before them, of a picture and of equal buttons after one label": (
        "<svg class='p-icon p-row-handle' width=16 height=16 onclick=1><rect width=16 height=16 /></svg>"
        f"<div><label>Amount</label><p><button class='p-step p-step-up' style='{ICON}'></button><button class='p-step "
        f"p-step-down' style='{ICON}'></button></p></div>",
        "image 'row handle'; button 'Amount: step up'; button 'Amount: step down'",
    ),
    "a combobox without a name around its field and its button": (
        "<div role=combobox aria-expanded=false style='width:250px'><input placeholder=Fruit><button title=All></div>"
        "<div role=combobox style='width:250px'><input type=hidden name=secret>Pick</div>",
        "combobox 'Fruit' = 'collapsed'; button 'All'; combobox '' = 'Pick'",
    ),
    "what closes a tab or a chip; a picture that does what the button or box around it does": (
        f"<style>i {{ {ICON} }} div,button {{ width:120px }}</style>"
        "<button>Save <i onclick=1 class=icon-save></i></button>"
        "<button>Delete <i onclick=1 class=icon-delete></i></button>"
        "<div role=tab tabindex=0>Beta <i onclick=1 class=tab-close></i></div>"
        "<div role=option>red <i onclick=1 class=chip-close></i></div>"
        "<div role=checkbox tabindex=0>Gift <i onclick=1></i></div>"
        "<div role=button aria-haspopup=menu tabindex=0>More <i onclick=1></i></div>",
        "button 'Save'; button 'Delete'; tab 'Beta'; generic 'tab close'; option 'red'; generic 'chip close'; "
        "checkbox 'Gift' (unchecked); button 'More'",
    ),
    "transparent parts of a date outermost in a component, by the component's label": (
        "<p><label>Due</label><x-d style='display:inline-block;border:1px solid;width:150px;height:24px'></x-d></p>"
        "<script>document.querySelector('x-d').attachShadow({ mode: 'open' }).innerHTML = ['month', 'day'].map((part) "
        "=> `<i role=spinbutton contenteditable tabindex=0 aria-label=${part} style='opacity:0'>11</i>`).join('/')"
        "</script>",
        "group 'Due' = '11/11'",
    ),
    "a box to tick beside one that has a name": (
        f"<p>Seats <b role=checkbox tabindex=0 aria-label=A1 style='{ICON}'></b><b role=checkbox tabindex=0 "
        f"style='{ICON}'></b></p>",
        "checkbox 'A1' (unchecked); checkbox 'Seats' (unchecked)",
    ),
    "a component's label of a field that is none to the browser": (
        "<style>x-label { cursor:pointer }</style><x-label for=f>Name</x-label><x-f id=f><template shadowrootmode=open>"
        "<input aria-label=Name></template></x-f>",
        "textbox 'Name'",
    ),
    "tooltips whose words are hidden, and what contains a picture or words that are pressed": (
        f"<button aria-labelledby=t style='{ICON}'></button><p id=t aria-hidden=true><b style='visibility:hidden'>Star"
        f"</b></p><div role=tab tabindex=0>Beta <b role=button aria-label=Close style='{ICON}'><i "
        "aria-hidden=true>cancel</i></b></div>"
        "<div onclick=1 style='cursor:pointer'>Card <button>Buy</button></div>",
        "button 'Star'; tab 'Beta'; button 'Close'; generic 'Card Buy'; button 'Buy'",
    ),
    "a transparent field with a label for readers of the screen, over a picture and over nothing": (
        "<style>div { position:relative;width:48px;height:48px } input { position:absolute;inset:0;width:48px;"
        "opacity:0 } label { position:absolute;width:1px;height:1px;overflow:hidden }</style><div><label for=a>Find"
        "</label><svg width=16 height=16><circle r=8 /></svg><input id=a></div>"
        "<div><label for=b>Gone</label><input id=b></div>",
        "textbox 'Find'",
    ),
    "the field of an editor of tags by the label of the field that it replaces": (
        f"<label for=a>Words</label><p style='{BOX}'><b contenteditable=false>red</b><b contenteditable "
        "aria-label=Tags style='display:inline-block;width:60px;height:20px'></b></p><input id=a "
        "style='transform:scale(0)'>",
        "textbox 'Words: Tags'",
    ),
    "a list that shows what is chosen by a button": (
        "<p><label>City</label><div role=combobox aria-haspopup=listbox aria-expanded=false onclick=1 style='"
        "width:250px'><button>Oslo</button></div></p>",
        "combobox 'City' = 'Oslo'",
    ),
    "what is drawn over an empty field, or is pale, a unit or its label; a list whose words have a label": (
        "<style>div { position:relative;width:200px } u { position:absolute;inset:0;pointer-events:none }</style>"
        "<label for=a>Town</label><div><input id=a><u>Lima</u></div><label for=b>City</label><div><input id=b>"
        "<u style='color:#bbb'>Pick</u></div><label for=c>Cost</label><div><input id=c><u style='right:160px'>$</u>"
        f"</div><div><u>Name</u><input aria-label=Name></div><div tabindex=0 style='{BOX};cursor:pointer'>"
        "<b role=combobox aria-label=Rows aria-expanded=false>10</b></div>",
        "textbox 'Town' = 'Lima'; textbox 'City'; textbox 'Cost'; textbox 'Name'; combobox 'Rows' = '10'",
    ),
    "the arrow of a split button, stars of which one is active, pictures in labels with a tip": (
        f"<style>b {{ {ICON} }}</style><button class='x-button'>Save</button><button class='x-button x-button-only' "
        "aria-haspopup=true><b></b></button><div><label>Score</label><ul><b class='rate-item on' onclick=1></b>"
        "<b class=rate-item onclick=1></b></ul></div><label title=Small><input type=radio name=size> <b></b></label>",
        "button 'Save'; button 'Save: menu'; generic 'Score' (1 of 2); generic 'Score' (2 of 2); "
        "radio 'Small' (unchecked)",
    ),
    "a cell with a picture of a box, a tree's item that is a button, rows with boxes, cells in one line": (
        f"<style>p {{ {ICON} }}</style><div role=grid><div role=row><p role=gridcell tabindex=0 aria-checked=true></p>"
        "<p role=gridcell tabindex=0 aria-checked=false></p></div></div><ul role=tree><li role=treeitem aria-expanded="
        "true><b role=button tabindex=0>Docs</b><ul role=group><li role=treeitem tabindex=0>Work</li></ul></li></ul>"
        "<div><input type=checkbox aria-label='Row unselected'><b role=cell>Ann</b><b role=cell>20</b> <button>Edit"
        "</button></div><div><b role=cell>Ben</b><button>Edit</button></div>",
        "treeitem 'Docs' = 'expanded'; treeitem 'Work'; checkbox 'Row unselected' (unchecked); button 'Edit' "
        "(in Ann 20); button 'Edit' (in Ben); gridcell 'row 1, column 1' = 'checked'; gridcell 'row 1, column 2' "
        "(unchecked)",
    ),
    "days of two months": (
        "<style>b { cursor:pointer }</style>"
        + "".join(f"<div><p>{month}</p><div><b>{'</b> <b>'.join(DAYS)}</b></div></div>" for month in ("May", "July")),
        "; ".join(name_day(month, day) for month in ("May", "July") for day in DAYS),
    ),
    "the frame of a list, its placeholder and its arrow": (
        f"<div tabindex=0 onclick=1 style='{BOX};overflow:hidden'><div style='height:30px;cursor:pointer'><input "
        "aria-hidden=true style='display:none'></div>Pick</div>",
        "generic ''",
    ),
    "a window's title bar with its button, and a header of columns that are moved": (
        "<div style='touch-action:none;width:200px'>Notes <button aria-label=Close>×</button></div>"
        "<div style='touch-action:none;width:200px'><b style='cursor:pointer'>Name</b> <b style='cursor:pointer'>Age"
        "</b></div>",
        "generic 'Notes'; button 'Close'; generic 'Name'; generic 'Age'",
    ),
    "empty places of a schedule, and a veil": (
        "<div class=day-slot onclick=1 style='border-left:1px solid;height:30px'></div>"
        "<div class=day-veil onclick=1 style='height:30px'></div>",
        "generic 'day slot'",
    ),
    "cells under headers with a row of fields below them": (
        "<table role=grid><thead><tr><th>Name<th>Age<tr><td><input aria-label='name filter'><td><input aria-label="
        "'age filter'></thead><tr><td tabindex=0>Ann<td tabindex=0>7</table>",
        "textbox 'name filter'; textbox 'age filter'; gridcell 'row 1, column Name' = 'Ann'; "
        "gridcell 'row 1, column Age' = '7'",
    ),
    "a list that is labelled by its chosen option": (
        "<label for=s>Speed</label><b id=s role=combobox tabindex=0 aria-labelledby=o>Slow</b><ul hidden>"
        "<li role=option id=o>Slow</ul>",
        "combobox 'Speed' = 'Slow'",
    ),
    "a field in a dialog that has a label before it": (
        "<div><b class=x-label>Orders</b></div><div><div role=alertdialog><input placeholder=City></div></div>",
        "textbox 'City'",
    ),
    "sliders that are called as their value, and by their track": (
        "<div>Volume <input type=range value=30 aria-label=30 aria-valuetext=30></div><div title=Opacity style='height:"
        f"20px'><b><i role=slider tabindex=0 aria-valuenow=5 style='{ICON}'></i></b></div>",
        "slider 'Volume' = '30'; slider 'Opacity' = '5'",
    ),
    "a field that lies over the list of its label": (
        "<label>Tags</label><div style='position:relative;width:200px'><b role=combobox aria-label=Tags tabindex=0 "
        "style='position:absolute;inset:0'></b><div style='position:relative;padding:4px;background:#fff'><input "
        "style='width:14px'></div></div>",
        "textbox 'Tags'",
    ),
    "switches with a label beside the name of their state": (
        "<label for=a>Live</label><label><input type=checkbox role=switch id=a aria-label=Close></label>"
        f"<label for=b>Mute</label><b role=switch id=b tabindex=0 aria-label='Toggle it' style='{ICON}'></b>"
        "<label>7<input type=radio aria-label=Draw></label>",
        "switch 'Live: Close' (unchecked); switch 'Mute: Toggle it' (unchecked); radio 'Draw' (unchecked)",
    ),
    "parts without words: a cross in a box with a class, a handle beside a field; a board of buttons": (
        f"<div class=modal-header>Rename<button class=btn-close style='{ICON}'></button></div><p><input "
        f"aria-label=Size><b role=button style='{ICON};cursor:ew-resize'></b></p><div class=draw-board style='width:"
        "200px;height:90px;cursor:crosshair'><svg width=90 height=30><g role=button aria-label=Turn><rect width=20 "
        "height=20 /></g><g role=button aria-label=Cut><rect x=40 width=20 height=20 /></g></svg></div>",
        "button 'close'; textbox 'Size'; button 'resize'; generic 'draw board'; button 'Turn'; button 'Cut'",
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_what_a_component_is(session: BrowserSession, tmp_path: Path, case: str):
    html, expected = CASES[case]
    await show(session, tmp_path, html)
    assert await read_controls(session, whole=True) == expected


@pytest.mark.parametrize(
    ("item", "most"),
    [
        ("<p role=treeitem style='cursor:pointer;width:300px'><b style='width:60px' onclick=1>docs</b></p>", (100, 99)),
        (
            "<div role=treeitem aria-expanded=true aria-label=docs><p style='height:40px;margin:0'>docs</p><div "
            "role=group style='padding:30px'></div></div>",
            (400, 48),
        ),
    ],
)
async def test_an_item_is_clicked_at_its_words(session: BrowserSession, tmp_path: Path, item: str, most: tuple):
    await show(session, tmp_path, item)
    [seen] = await list_elements(session)
    assert (seen.element.name, seen.point[0] < most[0], seen.point[1] < most[1]) == ("docs", True, True)
