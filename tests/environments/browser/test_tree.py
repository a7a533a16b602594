"""The page as an accessibility tree: what is in sight, by role, with the numbers of the marks."""

from urllib.parse import quote

import pytest

from webgym_cli.environments.browser.html import MAX_TREE_CHARACTERS, format_state, read_tree, write_tree
from webgym_cli.environments.browser.observe import look_at, measure_extent, observe_script, parse_elements
from webgym_cli.environments.browser.options import SessionOptions
from webgym_cli.records.trajectory import Element, PageState

PAGE = """<!doctype html><title>Orders</title><body style="margin: 0">
<nav aria-label="Main"><a href="#a">Home</a></nav>
<h2>Open <b>orders</b></h2><p>Two of <i>nine</i>.</p><ul></ul>
<table><tr><td>Anna</td><td><button>Edit</button></td></tr>
<tr><td>Bob</td><td><button disabled>Edit</button></td></tr></table>
<div aria-label="Log" style="height: 60px; overflow: auto"><div style="height: 180px">one</div></div>
<main title="Card"><x-a><template shadowrootmode="open"><h3>Before</h3><slot></slot><p>After</p></template>Slotted</x-a>
</main><p aria-hidden="true">unseen</p><div style="margin-top: 900px"><button>Below</button></div>"""


async def read(browsers, limit):
    session = await browsers.session(
        SessionOptions(width=400, height=360, isolated_script=observe_script(as_text=True))
    )
    await session.goto(f"data:text/html,{quote(PAGE)}")
    shown = await look_at(session, limit)
    elements = tuple(one.element for one in parse_elements(shown["listed"]))
    tree, state = await read_tree(session, elements), await measure_extent(session)
    await session.page.evaluate("history.replaceState({}, '', '#x')")
    assert await measure_extent(session) == PageState()  # another address than that of the look
    await look_at(session, limit)
    await session.reload()
    assert await measure_extent(session) == PageState()  # another document
    await session.close()
    return [format_state(state), *tree.splitlines()], state


@pytest.mark.browser
async def test_marks_roles_levels_texts_and_states(browsers):
    lines, state = await read(browsers, 50)
    assert lines[1:] == [
        'navigation "Main"',
        '  [0] link "Home"',
        "heading 2: Open orders",
        "Two of nine .",
        "table",
        "  row",
        "    cell: Anna",
        "    cell",
        '      [1] button "Edit" (in Anna)',
        "  row",
        "    cell: Bob",
        "    cell",
        '      [2] button "Edit" (disabled, in Bob)',
        "one",
        'main "Card"',
        "  heading 3: Before",
        "  Slotted",
        "  After",
    ]
    assert state.outside == 1
    assert [(one.name, one.above) for one in state.scrolls] == [("", 0), ("Log", 0)]
    assert state.scrolls[0].below > 2 and state.scrolls[1].below == 2
    assert lines[0].endswith('"Log": 0 above, 2 below; 1 controls outside the view)')


@pytest.mark.browser
async def test_without_marks_it_has_roles_and_names(browsers):
    lines, _ = await read(browsers, 0)
    assert [lines[2], lines[8], lines[9]] == ["  link: Home", "    cell", "      button: Edit"]


def test_a_long_page_is_cut_and_its_marks_follow():
    late = Element(id=0, role="button", name="Late", box=(0, 0, 9, 9))
    tree = write_tree([*([0, f"{number} {'x' * 400}"] for number in range(60)), [0, "button", 0, "", 0]], [late])
    assert len(tree) < MAX_TREE_CHARACTERS + 100
    assert tree.splitlines()[-1] == '[0] button "Late"'
    cut = tree.splitlines()[-2]
    assert cut.startswith("... ") and cut.endswith(" more lines")


def test_nothing_is_written_of_an_empty_page():
    assert write_tree([[0, "list", None, "", 0], [1, "listitem", None, "", 0]], []) == ""
