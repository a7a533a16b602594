"""The page as text: written from the nodes that a page lists, whatever they hold."""

import re
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from tests.ticks import count_ticks
from webgym_cli.environments.browser.html import MAX_CHARACTERS, read_page, simplify, simplify_released
from webgym_cli.environments.browser.options import SessionOptions


def test_elements_texts_and_ids():
    nodes = [
        [0, "body", None, []],
        [1, "h1", None, []],
        [2, "Shop"],
        [1, "a", 0, [["title", "Go"], ["data-bbox", "1,2,3,4"]]],
        [2, "span", None, []],
        [3, "Home"],
        [1, "input", 1, [["type", "text"], ["value", 'a "b"']]],
    ]
    assert simplify(nodes) == (
        '<body> <h1> Shop </h1> <a id="0" title="Go" data-bbox="1,2,3,4"> Home </a> '
        '<input id="1" type="text" value="a &quot;b&quot;"> </input> </body>'
    )


def test_wrappers_of_one_thing_are_that_thing_and_empty_ones_are_nothing():
    wrappers = [[depth, "div", None, []] for depth in range(3)]
    words = [[3, "button", 0, []], [4, "b", None, []], [5, "OK"], [4, "!"]]
    nodes = [*wrappers, *words, [1, "div", None, []], [2, "i", None, []]]
    assert simplify(nodes) == '<button id="0"> OK ! </button>'


def test_what_is_told_already_is_not_told_again_and_options_stay_where_they_can_not_be_clicked():
    texts = [["title", "Save"], ["placeholder", "x"], ["data-text", "x"]]
    assert simplify([[0, "button", 3, texts], [1, "Save"]]) == '<button id="3" placeholder="x"> Save </button>'
    red = [1, "option", None, [["selected", "selected"]]]
    html = simplify([[0, "select", 0, []], red, [2, "Red"], [1, "option", None, []]])
    assert html == '<select id="0"> <option selected="selected"> Red </option> <option> </option> </select>'
    deep = [[depth, "div", None, [["title", str(depth)], ["data-value", "x"]]] for depth in range(50_000)]
    assert simplify([*deep, [50_000, "end"]]).count("</div>") == 50_000


def test_the_released_form_has_box_and_text_on_each_element():
    nodes = [
        [0, "html", None, [["data-bbox", "0,0,9,9"]], "", True],
        [1, "head", None, [], "", False],
        [2, "title", None, [["data-text", "Shop"]], "Shop", False],
        [1, "body", None, [["data-bbox", "0,0,9,9"]], "", True],
        [2, "div", None, [["data-bbox", "0,0,5,5"]], "", True],
        [3, "a", 0, [["title", "Go"], ["data-text", "Go"], ["data-bbox", "1,2,3,4"]], "Go", True],
        [2, "p", None, [["data-text", "a <b>"], ["data-bbox", "0,90,5,5"]], "a <b>", False],
        [2, "select", None, [["data-text", "Red"], ["data-bbox", "0,5,5,5"]], "", True],
        [3, "option", None, [["data-text", "Red"], ["data-status", "selected"]], "Red", False],
        [2, "b", None, [["data-text", "x"], ["data-bbox", "0,5,5,5"]], "<x", True],
    ]
    assert simplify_released(nodes) == (
        '<html data-bbox="0,0,9,9"> <body data-bbox="0,0,9,9">'
        ' <a id="0" title="Go" data-bbox="1,2,3,4"> Go </a>'
        ' <select data-text="Red" data-bbox="0,5,5,5">'
        ' <option data-text="Red" data-status="selected"> Red </option> </select>'
        ' <b data-text="x" data-bbox="0,5,5,5"> &lt;x </b> </body> </html>'
    )


class Read(HTMLParser):
    """Collects ids and attributes as a parser of HTML sees them."""

    def __init__(self):
        super().__init__()
        self.ids, self.names = [], set()

    def handle_starttag(self, tag, attrs):
        self.ids += [value for name, value in attrs if name == "id"]
        self.names |= {name for name, _ in attrs}


hostile = st.text() | st.sampled_from(
    ['<button id="9">', '"> <a id="7">x</a>', "</div>", 'x" id="4', "a id=1", "<!--", "\n\u2028<b>", 'b id="5"', "&lt;"]
)
nodes = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 6), hostile),
        st.tuples(
            st.integers(0, 6),
            st.sampled_from(["div", "a", "span", "option"]) | hostile,
            st.none(),
            st.lists(st.tuples(st.sampled_from(["title", "data-value", "data-testid"]), hostile), max_size=3),
        ),
    ),
    max_size=25,
)


@given(nodes)
def test_no_text_of_a_page_forges_an_element_or_an_id(nodes):
    ours = [[0, "button", 0, []], [1, "Mine"]]
    html = simplify([*ours, *map(list, nodes)])
    read = Read()
    read.feed(html)
    assert read.ids == ["0"]
    assert read.names <= {"id", "title", "data-value", "data-testid"}
    assert html.count("<button") == 1 + sum(len(node) > 2 and node[1] == "button" for node in nodes)
    assert "\n" not in html
    assert all(re.fullmatch(r"</?[a-z][a-z0-9-]*", tag) for tag in re.findall(r"<[^\s>]*", html))


class LongPage:
    """A session whose page has very many elements."""

    options = SessionOptions(width=1, height=1)

    async def evaluate(self, script, options):
        nodes = [[0, "a", None, [["data-text", f"Entry {number}"]]] for number in range(20_000)]
        return {"listed": [], "url": "http://a.test/", "title": "Long", "nodes": nodes}


async def test_a_long_page_does_not_hold_the_loop():
    seen = []

    async def read():
        seen.append(await read_page(LongPage()))

    assert await count_ticks(read()) > 5
    assert len(seen[0].html) == MAX_CHARACTERS
