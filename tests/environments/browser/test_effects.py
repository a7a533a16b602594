"""What an action did not do is told: fields that don't take a text, lists that change back, scrolls at the end."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.environments.browser.test_executors import act
from tests.environments.browser.test_observe import read_controls, show
from webgym_cli.environments.browser.actions import perform_action
from webgym_cli.environments.browser.frames import ACT_JS, NOWHERE, ActScript
from webgym_cli.environments.browser.mouse import click
from webgym_cli.environments.browser.observe import list_elements, observe_script
from webgym_cli.environments.browser.options import SessionOptions
from webgym_cli.environments.browser.pool import BrowserPool
from webgym_cli.environments.browser.session import BrowserSession
from webgym_cli.records.action import Action, ActionName, InteractionMode

pytestmark = pytest.mark.browser

SIZE = (400, 300)
MARKS = InteractionMode.SET_OF_MARKS


@pytest.fixture(scope="module")
async def session(browsers: BrowserPool) -> AsyncIterator[BrowserSession]:
    browser_session = await browsers.session(
        SessionOptions(width=SIZE[0], height=SIZE[1], isolated_script=observe_script())
    )
    yield browser_session
    await browser_session.close()


async def perform(session: BrowserSession, name: ActionName, **fields) -> str | None:
    return await perform_action(session, Action(name=name, **fields), lambda url: None)


SECTIONS = """<style>.s { opacity: 0; padding: 9px } .f:focus-within .s { opacity: 1 }</style><b id=l>Born</b>
<div class=f role=group aria-labelledby=l style="width:200px;height:36px;border:1px solid"
onclick="this.querySelector('[contenteditable]').focus()"><div class=s><span contenteditable role=spinbutton
aria-label=Month>
MM</span>/<span contenteditable role=spinbutton aria-label=Day>DD</span>/<span contenteditable role=spinbutton
aria-label=Year>YYYY</span></div></div>"""


async def test_a_drag_rests_where_a_page_looks_at_intervals(session: BrowserSession, tmp_path: Path):
    watches = """<button id=a>A</button><p><button id=b>B</button></p><script>let at = 0, timer;
    a.onmousedown = () => { timer = setInterval(() => { document.title = document.elementFromPoint(...at).id }, 50) };
    onmousemove = ({ x, y }) => { at = [x, y] }; onmouseup = () => clearInterval(timer)</script>"""
    await show(session, tmp_path, watches)
    assert len(await list_elements(session)) == 2
    assert await perform(session, ActionName.DRAG, element_id=0, to_element_id=1) is None
    assert await session.evaluate("() => document.title") == "b"


async def test_an_editor_hears_that_all_of_it_is_selected_before_the_keys(session: BrowserSession, tmp_path: Path):
    editor = """<p contenteditable>Old words</p><script>document.onselectionchange = () => {
    document.title = getSelection().toString() }</script>"""
    await show(session, tmp_path, editor)
    await click(session, (30, 30))
    prepare = f"async () => [await {ACT_JS}.prepare([30, 30], ''), document.title]"
    assert (await session.evaluate(prepare))[1] == "Old words"


async def test_an_empty_editor_keeps_the_format_that_is_chosen_for_what_comes_next(session, tmp_path: Path):
    editor = """<p id=e contenteditable style="height:60px"><b>\ufeff</b></p><script>e.focus();
    getSelection().collapse(e.querySelector("b").firstChild, 1)</script>"""
    await show(session, tmp_path, editor)
    assert await perform(session, ActionName.TYPE, text="Hi", here=True) is None
    assert await session.evaluate("() => document.querySelector('b')?.textContent.trim()") == "Hi"


@pytest.mark.parametrize("text", ["2024-03-17", "03/17/2024", "3.17.2024"])
async def test_a_date_goes_into_its_sections_and_one_that_they_do_not_take_is_told(session, tmp_path, text: str):
    refuses = "<script>addEventListener('beforeinput', (event) => event.preventDefault(), true)</script>"
    await show(session, tmp_path, SECTIONS + refuses)
    assert "MM/DD/YYYY" in (await act(session, MARKS, ActionName.TYPE, "Born", text=text) or "")
    await show(session, tmp_path, SECTIONS)
    assert await read_controls(session, whole=True) == "group 'Born' = 'MM/DD/YYYY'"
    assert await act(session, MARKS, ActionName.TYPE, "Born", text=text) is None
    assert [int(one.element.value) for one in await list_elements(session)] == [3, 17, 2024]


async def test_what_fields_of_a_form_are_called_is_not_what_we_read(session: BrowserSession, tmp_path: Path):
    shadow = """const names = new Set(), all = document.createDocumentFragment();
    for (let kind = HTMLFormElement.prototype; kind !== Object.prototype; kind = Object.getPrototypeOf(kind)) {
      for (const name of Object.getOwnPropertyNames(kind)) names.add(name);
    }
    for (const name of names) all.append(Object.assign(document.createElement("input"), { type: "hidden", name }));
    f.append(all);"""
    box = "display:block;width:90px;height:30px;user-select:none"
    zone = f"<p ondragover='event.preventDefault()' ondrop=1 style='{box}'>Zone</p>"
    form = f"<form id=f><input aria-label=Name><b draggable=true style='{box}'>Thing</b>{zone}</form>"
    await show(session, tmp_path, f"{form}<script>{shadow}</script>")
    assert [one.element.name for one in await list_elements(session)] == ["Name", "Thing", "Zone"]
    assert await act(session, MARKS, ActionName.TYPE, "Name", text="new") is None
    assert "nothing moved" in (await perform(session, ActionName.DRAG, element_id=1, to_element_id=0) or "")
    assert await perform(session, ActionName.DRAG, element_id=1, to_element_id=2) is None


async def test_a_drag_without_effect_is_told(session: BrowserSession, tmp_path: Path):
    box = "display:block;width:90px;height:30px;user-select:none"
    cards = "".join(f"<b draggable=true style='{box}'>{name}</b>" for name in "AB")
    await show(session, tmp_path, f"{cards}<p ondragover='event.preventDefault()' ondrop=1 style='{box}'>Zone</p>")
    assert await perform(session, ActionName.DRAG, element_id=0, to_element_id=2) is not None
    assert [one.element.name for one in await list_elements(session)] == ["A", "B", "Zone"]
    assert await perform(session, ActionName.DRAG, element_id=0, to_element_id=2) is None
    assert "nothing moved" in (await perform(session, ActionName.DRAG, element_id=0, to_element_id=1) or "")


PLAIN = "<p aria-label=A tabindex=0 style='width:90px;height:30px;user-select:none' "
OVER = "onmouseover=\"this.classList.add('over')\" "
OUT = "onmouseout=\"this.classList.remove('over')\" "


@pytest.mark.parametrize("drawn, moves", [
    (OVER, False),
    (OVER + OUT, False),
    ("onmousedown=\"this.style.opacity = 0.5\" ", True),
    ("onmousedown=\"document.body.className = 'drags'; window.onmouseup = () => "
        "{ document.body.className = '' }\" ", False),
])  # fmt: skip
async def test_a_drag_s_effect_is_not_what_hovering_does(session, tmp_path, drawn, moves):
    await show(session, tmp_path, f"{PLAIN}{drawn}>A</p>{PLAIN}{OVER}>B</p>")
    assert len(await list_elements(session)) == 2
    error = await perform(session, ActionName.DRAG, element_id=0, to_element_id=1)
    assert (error is None) == moves


async def test_an_unknown_option_is_answered_by_the_closest_that_can_be_chosen(session: BrowserSession, tmp_path: Path):
    options = "".join(f"<option>Town {number}</option>" for number in range(40))
    await show(session, tmp_path, f"<select aria-label=City>{options}<option disabled>Limo<option>Lime</select>")
    error = str(await act(session, MARKS, ActionName.SELECT_OPTION, "City", text="Lima"))
    assert 'no option is called "Lima"; the closest are: Lime, Town 0' in error and "Limo" not in error


FIELD = "<input aria-label=Name value=old "
SLIDER = (
    "<div role=slider aria-label=Name tabindex=0 aria-valuenow=2 style='width:50px;height:20px' onkeydown=\"const by = "
    "event.key === 'ArrowRight' ? 1 : -1; this.ariaValueNow = Math.min(MOST, Number(this.ariaValueNow) + by)\"></div>"
)
HANDLE = SLIDER.replace("MOST", "9").replace("style='", "style='position:absolute;pointer-events:none;left:LEFT;")
HANDLES = (
    "<div style='position:relative;height:20px'><input type=range tabindex=-1 aria-hidden=true style='position:"
    f"absolute;width:200px;opacity:0.3;z-index:1'>{HANDLE.replace('LEFT', '0').replace('Name', 'Low')}"
    f"{HANDLE.replace('LEFT', '100px')}</div>"
)
# Drop-down lists of components: keys move to the option, which Enter or a click chooses.
POINTS = """<b role=combobox aria-label=Name tabindex=0 style="display:block;width:90px">Oslo</b><p hidden>Rome</p>
<script>
const list = document.querySelector('b'), rome = document.querySelector('p');
list.onclick = () => { rome.hidden = false; list.ariaExpanded = true };
list.onkeydown = ({ key }) => { rome.innerHTML = '<u>Rome</u>'; list.dataset.focusVisible = '';
if (key === 'Enter' || 'takes' in rome.dataset) list.textContent = rome.dataset.takes || 'Rome' }</script>"""
POPUP = """<button aria-label=Name aria-haspopup=listbox onclick="o.hidden = false; o.focus();
this.ariaExpanded = true">Oslo</button>
<p hidden role=option aria-selected=false id=o tabindex=0 style="position:fixed;inset:0;margin:0">Rome</p>"""
FIELDS = {
    "plain": (FIELD + ">", "new", None),
    "formatted": (FIELD + "oninput='this.value = this.value.replace(/^(...)(....)$/, `($1) $2`)'>", "5551234", None),
    "a date without its zero": (FIELD + "oninput=\"this.value = this.value.replace(/^0/, '')\">", "05/12/1990", None),
    "a time without its zero": (FIELD + "oninput=\"this.value = this.value.replace(/^0/, '')\">", "09:30", None),
    "cut": (FIELD + "maxlength=3>", "hello", 'the field did not take that: it now holds "hel"'),
    "emptied": (FIELD + "oninput=\"this.value=''\">", "x", 'the field did not take that: it now holds ""'),
    "a number": (FIELD.replace("old", "1") + "type=number>", "many", 'the field did not take that: it now holds ""'),
    "secret": (FIELD + "type=password maxlength=2>", "hello", "the field did not take all that was typed"),
    "kept": (FIELD + "oninput=\"this.oninput=null;this.value='old'+this.value\">", "new", 'it now holds "oldnew"'),
    "a range": (FIELD.replace("old", "1") + "type=range max=10>", "50", "the field took 10 instead of 50"),
    "a colour": (FIELD.replace("old", "#00ff00") + "type=color>", "#FF0000", None),
    "files": (FIELD.replace("value=old", "type=file") + ">", "cv.txt", "is for files"),
    "a slider": ("<div role=slider aria-label=Name tabindex=0 style='width:50px;height:20px'></div>", "5",
        "takes keys"),
    "a slider with keys": (SLIDER.replace("MOST", "9"), "7", None),
    "a slider that takes keys unless the mouse brought the focus": (
        SLIDER.replace("MOST", "this.m ? 2 : 9").replace(" onkey", " onmousedown='this.m=1' onblur='this.m=0' onkey"),
        "7",
        None,
    ),
    "a slider whose press is handled without a focus": (SLIDER.replace("MOST", "9").replace("onkeydown",
        "onmousedown='event.preventDefault()' onkeydown"), "7", None),
    "one of two sliders under a hidden field": (HANDLES, "7", None),
    "a list that only points at the option": (POINTS, "Rome", "nothing was chosen so far"),
    "a list that only points at the option, and Enter": (POINTS, "Rome\n", None),
    "a list that its options cover": (
        POINTS.replace("<p hidden>", "<p hidden style='position:fixed;inset:0;margin:0'>"),
        "Rome",
        "nothing was chosen so far",
    ),
    "a list that chooses what is typed": (POINTS.replace("hidden>", "hidden data-takes>"), "Rome", None),
    "a popup that gets the focus": (POPUP, "Rome", "nothing was chosen so far"),
    "a popup of a list that gets the focus beside it": (
        POPUP.replace("role=option", "role=listbox").replace("inset:0", "top:60px"),
        "Rome",
        "nothing was chosen so far",
    ),
    "keys beside an open list": (
        "<b role=combobox aria-expanded=true>Oslo</b><p tabindex=0 aria-label=Name onkeydown='innerText = 1'>a</p>",
        "q",
        None,
    ),
    "a list that shows its choice by a code": (POINTS.replace("hidden>", "hidden data-takes=+39>"), "Rome", None),
    "a popup that gets the focus, a choice by a short form": (
        POPUP.replace("<p ", "<p onkeydown=\"document.querySelector('button').textContent = 'Ro'\" "),
        "Rome",
        None,
    ),
    "a popup of a list that holds its choice beside it": (
        "<p>" + POPUP.replace("<p ", "<input type=hidden id=h></p><p onkeydown=\"h.value = 'it'\" "),
        "Rome",
        None,
    ),
    "a list that closes": (POINTS.replace("<u>Rome</u>'", "'; list.ariaExpanded = false"), "Rome", None),
    "a slider that ends": (SLIDER.replace("MOST", "4"), "7", "the slider stops at 4"),
    "a slider whose track is clicked": ("<div style='cursor:pointer;width:200px' onmousedown='event.preventDefault()'>"
        f"<p>t</p>{SLIDER.replace('MOST', '9')}</div>", "7", None),
    "a cell without keys": ("<div role=grid><div role=row><div role=gridcell tabindex=0 aria-label=Name>a</div></div>"
        "</div>", "x", "nothing changed"),
    "a cell with keys": ("<div role=grid><div role=row><div role=gridcell tabindex=0 aria-label=Name onkeydown="
        "'this.innerText = event.key'>a</div></div></div>", "x", None),
    "tokens": (f"<p>{FIELD}oninput=\"if (value.endsWith(',')) {{ before(value); value = '' }}\"></p>", "a,b,", None),
    "behind": ("<button aria-label=Name onclick='h.focus()'>b</button><div id=h contenteditable style='position:fixed;"
        "left:-999px'></div>", "x", "double click"),
    "drawn around a hidden field": ("<p class=editor style='width:90px;height:30px' onclick='firstChild.focus()'>"
        "<textarea aria-label=Name style='width:1px;opacity:0' oninput='b.innerText = value'></textarea><b id=b>t</b>",
        "new", None),
    "nothing": ("<button aria-label=Name>b</button><script>document.querySelector('button').onclick = (e) => "
        "e.target.blur()</script>", "x", "no field has the focus"),
    "a list": ("<select aria-label=Name onchange=\"this.value='a'\"><option>a<option>b</select>", "b", 'it shows "a"'),
    "disabled": (FIELD + "disabled>", "new", "can't be changed"),
    "a calendar's months": (FIELD + "readonly onfocus='b.focus()'><select id=b><option>a<option>new</select>", "new",
        "can't be changed"),
    "keys that the page takes": (FIELD + "readonly onmousedown='event.preventDefault()'>", "new", "has the focus"),
    "handed on": (FIELD + "oninput='b.focus()' maxlength=1> <input id=b>", "12", None),
}  # fmt: skip


LIST = "<select style='position:absolute;width:1px;height:1px'><option>Oslo<option>Lima</select>"
DRAWN = "<b role=combobox aria-label=Town tabindex=0>Oslo</b>"
FOLLOWS = (
    "<script>document.querySelector('select').onchange = (e) => document.querySelector('b').innerText = e.target.value"
)


REPLACED = [
    f"<div>{LIST}<span>{DRAWN}</span></div>",
    f"<div tabindex=0>{LIST}<i>{DRAWN}</i></div>",
    f"<p><i>{DRAWN}</i></p>{LIST}",
    f"<div>{DRAWN}<ul></ul>{LIST.replace('width:1px', 'opacity:0')}</div>",
    f"<div>{LIST}<span>{DRAWN}</span>{LIST}<span><b>x</b></span></div>",
]


@pytest.mark.parametrize("html", REPLACED)
async def test_an_option_is_chosen_in_the_list_that_a_component_replaces(session, tmp_path, html: str):
    await show(session, tmp_path, f"{html}{FOLLOWS}</script>")
    assert await act(session, MARKS, ActionName.SELECT_OPTION, "Town", text="Lima") is None
    assert await session.evaluate("() => document.querySelector('select').value") == "Lima"


async def test_a_component_that_keeps_its_old_choice_on_the_screen_has_not_taken_the_new(session, tmp_path):
    await show(session, tmp_path, REPLACED[0])
    assert "does not show" in await act(session, MARKS, ActionName.SELECT_OPTION, "Town", text="Lima")
    assert await session.evaluate("() => document.querySelector('select').value") == "Oslo"  # a form would send it


@pytest.mark.parametrize("case", FIELDS)
async def test_what_a_field_does_not_take_is_told(session: BrowserSession, tmp_path: Path, case: str):
    html, text, content = FIELDS[case]
    await show(session, tmp_path, html)
    error = await act(session, MARKS, ActionName.TYPE, "Name", text=text)
    assert error is None if content is None else content in (error or ""), error


CODE = "<input aria-label=Code style='width:30px;height:30px'>"
PASSES = """<script>let down, held = [];
document.onkeydown = ({ timeStamp }) => { down = timeStamp };
document.onkeyup = ({ target, timeStamp }) => { held.push(timeStamp - down); target.nextElementSibling.focus() }
</script>"""


async def test_boxes_that_pass_the_focus_on_get_a_digit_each_and_time_for_it(session: BrowserSession, tmp_path: Path):
    await show(session, tmp_path, f"{CODE * 3}<button>Go</button>{PASSES}")
    assert await act(session, MARKS, ActionName.TYPE, "Code", text="123") is None
    assert [one.element.value for one in await list_elements(session)] == ["1", "2", "3", ""]
    held = await session.page.evaluate("() => held")
    assert len(held) == 3 and min(held) >= 30, held  # a frame, and more


async def test_only_the_boxes_of_a_code_are_typed_in_slowly(session: BrowserSession, tmp_path: Path):
    others = "<textarea style='width:99px;height:90px'></textarea><br><input style='width:40px;height:30px'>"
    wide = "<input style='width:90px;height:30px'>" * 3
    await show(session, tmp_path, f"{CODE * 3}<input maxlength=1><br>{others}<br>{wide}")
    slow = []
    for number in range(7):
        await session.evaluate(f"() => document.querySelectorAll('input,textarea')[{number}].focus()")
        for text in ("123", "1234"):
            slow.append((await ActScript(session).call_at("prepare", NOWHERE, text, False))["slow"])
    assert slow == [True, False] * 3 + [True, True] + [False] * 6


RANGE = "<input type=range class=s min=2 max=9 value=2>"
BESIDE = {
    "a slider whose press leaves the focus in a field": ("<input class=t>" + SLIDER.replace("MOST", "9").replace(
        "role=", "class=s onmousedown='event.preventDefault()' role=") + "<script>document.querySelector('input')"
        ".focus()</script>", ["7", ""]),
    "a field that its wrapper draws": ("<p><span onclick='lastChild.focus()'>Box<input class=t aria-label=Name style="
        f"'position:absolute;left:300px;width:1px;opacity:0'></span>{RANGE}</p>", ["2", "7"]),
    "a field in a frame": ("<iframe style='margin-top:80px' srcdoc='<p><input class=t aria-label=Name>"
        f"{RANGE}'></iframe>", ["2", "7"]),
    "a field in a slider": ("<div role=slider class=s aria-valuenow=2 tabindex=0><input class=t aria-label=Name></div>",
        ["2", "7"]),
}  # fmt: skip


@pytest.mark.parametrize("case", BESIDE)
async def test_of_a_slider_and_a_field_the_one_that_is_clicked_takes_the_text(session, tmp_path, case: str):
    html, values = BESIDE[case]
    await show(session, tmp_path, html)
    assert await act(session, MARKS, ActionName.TYPE, "Name", text="7") is None
    view = "(document.querySelector('iframe')?.contentDocument || document)"
    read = f"(name) => {view}.querySelector(name)"
    assert (
        await session.evaluate(f"() => ['.s', '.t'].map({read}).map((one) => one.ariaValueNow ?? one.value)") == values
    )


@pytest.mark.parametrize("mode", InteractionMode)
async def test_fields_in_frames_that_the_page_cannot_read(session: BrowserSession, tmp_path: Path, mode):
    inner = (
        "<input aria-label=Name value=old><select aria-label=City><option>Oslo<option>Rome</select>"
        "<p contenteditable aria-label=Note>first</p>"
    )
    page = f"<!doctype html><body>{inner}"
    nested = f'<iframe sandbox=allow-scripts srcdoc="{page}" width=300 height=150></iframe>'
    for deep in (nested, f"<iframe sandbox=allow-scripts width=350 height=200 srcdoc='{nested}'></iframe>"):
        await show(session, tmp_path, deep)
        assert await act(session, mode, ActionName.TYPE, "Name", text="new") is None
        assert await perform(session, ActionName.TYPE, here=True, text="newer") is None  # where the focus is
        assert await act(session, mode, ActionName.TYPE, "Note", text="second") is None
        assert await act(session, mode, ActionName.SELECT_OPTION, "City", text="Rome") is None
        held = {seen.element.name: seen.element.value for seen in await list_elements(session)}
        assert held == {"Name": "newer", "City": "Rome", "Note": "second"}
        assert "no option is called" in str(await act(session, mode, ActionName.SELECT_OPTION, "City", text="Lima"))


async def test_a_line_feed_alone_only_presses_enter(session: BrowserSession, tmp_path: Path):
    await show(session, tmp_path, "<form onsubmit='document.title = 1; return false'><input aria-label=Name value=old>")
    assert await act(session, MARKS, ActionName.TYPE, "Name", text="\n") is None
    assert await session.evaluate("() => [document.title, document.querySelector('input').value]") == ["1", "old"]
    assert await act(session, MARKS, ActionName.TYPE, "Name", text="") is None
    assert await session.evaluate("() => document.querySelector('input').value") == ""


# A field that shows its mask once it has the focus, begins where it is clicked, and draws a digit a moment later.
MASKED = """<input id=i aria-label=Day placeholder=MASK><script>
let parts, at;
i.onfocus = () => { [parts, at] = [i.placeholder.split(/\\W+/), 1]; i.value = i.placeholder; };
i.onkeydown = (event) => {
  event.preventDefault();
  if (event.key === "ArrowLeft") at = Math.max(0, at - 1);
  if (/\\d/.test(event.key)) setTimeout(() => {
    parts[at] = (parts[at] + event.key).replace(/\\D/g, "");
    if (parts[at].length === i.placeholder.split(/\\W+/)[at].length) at = Math.min(parts.length - 1, at + 1);
    i.value = parts.join(i.placeholder.match(/\\W/)[0]);
  }, 10);
};
</script>"""


@pytest.mark.parametrize(
    ("mask", "text", "value"),
    [
        ("dd.MM.yyyy", "2026-05-03", "03.05.2026"),
        ("dd.MM.yyyy", "3.5.2026", "03.05.2026"),
        ("yyyy-MM-dd", "2026-05-03", "2026-05-03"),
        ("HH:mm:ss", "7:05:30", "07:05:30"),
        ("mm/dd/yyyy", "2026-05-03", "05/03/2026"),
        ("dd.mm.yyyy", "2026-05-03", "03.05.2026"),
        ("DD/MM/HH/MM", "3-5-7-05", "03/05/07/05"),
        ("YYYY/MM/DD/HH/MM", "2026-05-03 7:20", "2026/05/03/07/20"),
        ("MM/YY", "05/2026", "05/26"),
        ("mm/yyyy", "05/2026", "05/2026"),
    ],
)
async def test_a_masked_field_gets_the_digits_of_its_parts(
    session: BrowserSession, tmp_path: Path, mask: str, text: str, value: str
):
    await show(session, tmp_path, MASKED.replace("MASK", mask))
    assert await act(session, MARKS, ActionName.TYPE, "Day", text=text) is None
    assert await session.evaluate("() => i.value") == value
    await show(session, tmp_path, f"<input id=i aria-label=Day placeholder={mask} value={mask}>")  # it has no mask
    assert await act(session, MARKS, ActionName.TYPE, "Day", text=text) is None
    assert await session.evaluate("() => i.value") == text
    await show(session, tmp_path, MASKED.replace("MASK", mask))
    assert "did not take that" in str(await act(session, MARKS, ActionName.TYPE, "Day", text="some day"))


@pytest.mark.parametrize("mask", ["HH:mm:ss", "dd/yyyy/hh"])
async def test_a_date_is_not_typed_into_a_mask_of_other_parts(session: BrowserSession, tmp_path: Path, mask: str):
    await show(session, tmp_path, MASKED.replace("MASK", mask))
    assert f"the field takes {mask}" in str(await act(session, MARKS, ActionName.TYPE, "Day", text="2026-05-03"))


LATE_TEXT = {
    "page": "<p id=p></p><script>setTimeout(() => { p.innerHTML = 'It is <b>saved</b>'; }, 300)</script>",
    "hidden": "<p id=p hidden>It is saved</p><script>setTimeout(() => { p.hidden = false; }, 300)</script>",
    "frame": "<iframe sandbox=allow-scripts srcdoc='<p>It is</p><script>setTimeout(() => document.querySelector(`p`)."
    "append(` saved`), 300)</script>'></iframe>",
    "shadow": "<p id=p></p><script>setTimeout(() => { p.outerHTML = '<div id=p></div>'; "
    "p.attachShadow({ mode: 'open' }).innerHTML = '<i>It is saved</i>'; }, 300)</script>",
}


@pytest.mark.parametrize("case", LATE_TEXT)
async def test_a_text_is_awaited(session: BrowserSession, tmp_path: Path, case: str):
    await show(session, tmp_path, LATE_TEXT[case])
    assert await perform(session, ActionName.WAIT, text="it is  Saved", seconds=20.0) is None
    assert "0.1 s" in (await perform(session, ActionName.WAIT, text="It is lost", seconds=0.1) or "")


async def test_each_episode_has_a_clipboard(browsers: BrowserPool, session: BrowserSession, tmp_path: Path):
    other = await browsers.session(SessionOptions(width=SIZE[0], height=SIZE[1], isolated_script=observe_script()))
    try:
        for one, text in ((session, "mine"), (other, "yours")):
            await show(
                one, tmp_path, f"<p>{text}</p><input aria-label=Out><div contenteditable aria-label=Rich>-</div>"
            )
            one.pages.clipboard.clear()
            assert "nothing was copied" in (await perform(one, ActionName.KEY, keys=("ctrl+v",)) or "")
            await perform(one, ActionName.CLICK, coordinate=(40, 80), clicks=3)
            assert await perform(one, ActionName.KEY, keys=("Control", "c")) is None
        for one, text in ((session, "mine"), (other, "yours")):
            assert "no field" in (await perform(one, ActionName.KEY, keys=("Shift", "Insert")) or "")
            for name in ("Out", "Rich"):
                assert await act(one, MARKS, ActionName.CLICK, name, clicks=3) is None
                assert await perform(one, ActionName.KEY, keys=("Control", "v")) is None
            assert [seen.element.value.strip() for seen in await list_elements(one)] == [text, text]
    finally:
        await other.close()


async def test_a_scroll_that_moves_nothing_is_told(session: BrowserSession, tmp_path: Path):
    pane = "<div role=button aria-label=Pane style='height:50px;overflow:auto'><p style='height:90px'></p></div>"
    own = "<div role=button aria-label=Own onwheel='event.preventDefault()' style='height:50px'></div>"
    slid = "<div role=button aria-label=Slid onwheel='this.style.marginLeft=\"1px\"' style='height:50px'></div>"
    await show(session, tmp_path, pane + own + slid)
    assert await act(session, MARKS, ActionName.SCROLL, "Pane", direction="down", amount=500) is None
    for name in ("Own", "Slid"):  # the page handles the wheel itself
        assert await act(session, MARKS, ActionName.SCROLL, name, direction="down", amount=500) is None
    text = await act(session, MARKS, ActionName.SCROLL, "Pane", direction="down", amount=500)
    assert text == "nothing moved: what is there can't be scrolled down any further"
    for top in (47, 22, 0):  # by the pane's size, not the page's: nothing in it is passed unseen
        assert await perform(session, ActionName.SCROLL, direction="up") is None
        assert await session.evaluate("() => document.querySelector('[aria-label=Pane]').scrollTop") == top
    assert "up any further" in str(await perform(session, ActionName.SCROLL, direction="up"))


async def test_a_scroll_across_is_a_page_of_what_moves_across(session: BrowserSession, tmp_path: Path):
    slides = "<i style='flex:0 0 120px'>1</i>" * 5
    row = f"<div style='display:flex;overflow:auto;width:120px'>{slides}</div>"
    await show(session, tmp_path, f"{row}<div dir=rtl>{row}</div><p style='height:900px'></p>")
    for direction, place, moved in (("right", None, [70, 0]), ("left", None, [0, 0]), ("left", (830, 115), [0, -70])):
        assert await perform(session, ActionName.SCROLL, direction=direction, coordinate=place) is None
        rows = "Array.from(document.querySelectorAll('div:not([dir])'), (one) => Math.round(one.scrollLeft))"
        assert await session.evaluate(f"() => {rows}") == moved


@pytest.mark.parametrize("attributes", ["", "sandbox=allow-scripts"])
async def test_frames_drawn_at_another_size(session: BrowserSession, tmp_path: Path, attributes: str):
    style = "transform:scale(.5);transform-origin:0 0;border:0;width:500px;height:300px"
    inner = (
        "<body style='margin:0'><button onclick='this.textContent=1' style='width:200px;height:100px'>Small</button>"
    )
    await show(
        session, tmp_path, f'<body style="margin:0"><iframe {attributes} style="{style}" srcdoc="{inner}"></iframe>'
    )
    (seen,) = await list_elements(session)
    assert seen.element.box == (0, 0, 100, 50)
    assert await perform(session, ActionName.CLICK, element_id=0, position=(900, 900)) is None
    assert [one.element.name for one in await list_elements(session)] == ["1"]


async def test_what_is_in_closed_shadow_roots_is_listed_and_typed_to(session: BrowserSession, tmp_path: Path):
    script = """customElements.define("x-field", class extends HTMLElement { constructor() { super();
      this.attachShadow({ mode: "closed" }).innerHTML = "<input aria-label=Name value=old>"; } });"""
    await show(session, tmp_path, f"<button>Out</button><script>{script}</script><x-field></x-field><x-none></x-none>")
    for text in ("new", "newer"):
        assert await act(session, MARKS, ActionName.TYPE, "Name", text=text) is None
        held = [(seen.element.name, seen.element.value) for seen in await list_elements(session)]
        assert held == [("Out", ""), ("Name", text)]
