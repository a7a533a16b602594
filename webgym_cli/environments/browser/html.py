"""Text observations: simplified HTML of the visible page with ids on interactive elements, for WebRL's policies; and an
accessibility tree of roles, names, levels, states and texts in sight, with the numbers of the marks.

The page script lists elements and texts; the HTML is built here, so that page text can't close a tag or forge an id.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from typing import Any

from webgym_cli.agent.prompts.prompt_template import format_element
from webgym_cli.environments.base import RawObservation
from webgym_cli.environments.browser.failures import reading_page
from webgym_cli.environments.browser.frames import find_listeners
from webgym_cli.environments.browser.observe import parse_elements
from webgym_cli.environments.browser.page_connection import PAGE_JS
from webgym_cli.environments.browser.session import BrowserSession
from webgym_cli.records.trajectory import Element, PageState
from webgym_cli.util.optional import when

# Maximum number of elements with ids, in document order.
MAX_IDS = 500
# Maximum length of a page's HTML, in characters.
MAX_CHARACTERS = 100_000
# Maximum length of a tree in characters, about 3,000 tokens; marked elements beyond it follow without their place.
MAX_TREE_CHARACTERS = 12_000

_TAG = re.compile(r"[a-z][a-z0-9-]{0,30}")
# Tags without meaning beyond their text.
_INLINE = frozenset({"b", "bdi", "cite", "code", "em", "font", "i", "mark", "s", "small", "span", "strong", "u"})


@dataclass(slots=True)
class _HtmlNode:
    depth: int
    tag: str
    id: int | None
    attributes: list[tuple[str, str]]
    children: list[_HtmlNode | str] = field(default_factory=list)


async def read_page(session: BrowserSession, *, released: bool = False) -> RawObservation:
    """Read the visible part of the current page; its ids stay valid for actions until the next observation.

    `released`: in the form of WebRL's published models.

    Raises `BoundaryError` if the page can't be read.
    """
    await find_listeners(session)
    options = {"limit": MAX_IDS, "released": released}
    page = await session.evaluate(f"(options) => {PAGE_JS}.html.read(options)", options)
    # A page of 20,000 nodes takes half a second: other episodes must not wait for it.
    return await asyncio.to_thread(_parse_page, page, simplify_released if released else simplify)


def _parse_page(page: Mapping[str, Any], write: Callable[[Sequence[Sequence[Any]]], str]) -> RawObservation:
    with reading_page():
        elements = tuple(seen.element for seen in parse_elements(page["listed"]))
        html = write(page["nodes"])[:MAX_CHARACTERS]
        return RawObservation(str(page["url"]), str(page["title"]), elements=elements, html=html)


def simplify(nodes: Sequence[Sequence[Any]]) -> str:
    """Return a page's nodes as HTML: `[depth, text]`, or `[depth, tag, id, [[attribute, value], ...]]`, depth first.

    Empty elements are omitted, and wrappers of a single node are replaced by it.
    """
    root = _HtmlNode(-1, "html", None, [])
    open_, elements = [root], [root]
    for fields in nodes:
        depth = int(fields[0])
        while open_[-1].depth >= depth:
            open_.pop()
        if len(fields) == 2:
            open_[-1].children.append(str(fields[1]))
            continue
        node = _HtmlNode(depth, str(fields[1]), fields[2], [(str(name), str(value)) for name, value in fields[3]])
        open_[-1].children.append(node)
        open_.append(node)
        elements.append(node)
    for node in reversed(elements):  # children before their parents
        node.children = _join_texts(chain.from_iterable(map(_keep_shown, node.children)))
    return "".join(_write_pieces(root.children)).strip()


def simplify_released(nodes: Sequence[Sequence[Any]]) -> str:
    """Return a page's elements in the format of WebRL's code, with box and text on each.

    Each is `[depth, tag, id, [[attribute, value], ...], text, whether it is visible]`, depth first; the text is the one
    before its first child element.
    """
    parents: list[int] = []
    open_: list[int] = []
    for number, fields in enumerate(nodes):
        while open_ and int(nodes[open_[-1]][0]) >= int(fields[0]):
            open_.pop()
        parents.append(open_[-1] if open_ else -1)
        open_.append(number)
    inner: list[list[str]] = [[] for _ in range(len(nodes) + 1)]
    # Number of children with content: elements with two or more are kept.
    telling = [0] * (len(nodes) + 1)
    for number in range(len(nodes) - 1, -1, -1):  # children before their parents
        _, tag, id_, attributes, text, sighted = nodes[number]
        parent = parents[number]
        selectable = tag == "option" and parent >= 0 and nodes[parent][1] == "select"
        has_text = bool(text) or any(name != "data-bbox" for name, _ in attributes)
        shown = " ".join(reversed(inner[number]))
        if (sighted or id_ is not None or (selectable and nodes[parent][5])) and (
            telling[number] > 1 or has_text or (id_ is not None and sighted)
        ):
            shown = _write_released(nodes[number], shown)
        telling[parent] += bool(telling[number] or has_text)
        if shown:
            inner[parent].append(shown[:MAX_CHARACTERS])
    return " ".join(reversed(inner[-1]))


def _write_released(fields: Sequence[Any], inner: str) -> str:
    _, tag, id_, attributes, text, _ = fields
    content = "".join(f" {part}" for part in (_plain(str(text)), inner) if part)
    return f"{_open_tag(tag, id_, attributes)}{content} </{_known_tag(tag)}>"


def _keep_shown(child: _HtmlNode | str) -> Sequence[_HtmlNode | str]:
    """Return the visible part of a child: itself, or its content."""
    if isinstance(child, str) or child.id is not None or child.tag == "option":
        return (child,)
    bare = not [name for name, _ in child.attributes if name != "title"]
    wraps = all(isinstance(inner, _HtmlNode) for inner in child.children) and len(child.children) <= 1
    return child.children if bare and (wraps or child.tag in _INLINE) else (child,)


def _join_texts(children: Iterable[_HtmlNode | str]) -> list[_HtmlNode | str]:
    joined: list[_HtmlNode | str] = []
    for is_text, group in groupby(children, _is_text):
        pieces = list(group)
        joined += [" ".join(map(str, pieces))] if is_text else pieces
    return joined


def _write_pieces(children: Sequence[_HtmlNode | str]) -> Iterator[str]:
    """Yield the parts of the HTML. Without recursion, because pages may nest arbitrarily deep."""
    left: list[_HtmlNode | str | tuple[str]] = list(reversed(children))
    while left:
        node = left.pop()
        if isinstance(node, tuple):
            yield f"{node[0]} "
        elif isinstance(node, str):
            yield f"{_plain(node)} "
        else:
            yield f"{_open_tag(node.tag, node.id, node.attributes, filter(_is_text, node.children))} "
            left += [(f"</{_known_tag(node.tag)}>",), *reversed(node.children)]


def _open_tag(tag: str, id_: int | None, attributes: Iterable[Sequence[str]], texts: Iterable[object] = ()) -> str:
    """Return a start tag without the attributes whose values repeat one of the texts or another attribute."""
    names: dict[object, str] = dict.fromkeys(texts, "")
    for name, value in attributes:
        names.setdefault(value, name)
    written = [f' {name}="{_plain(str(value)).replace(chr(34), "&quot;")}"' for value, name in names.items() if name]
    label = "" if id_ is None else f' id="{id_}"'
    return f"<{_known_tag(tag)}{label}{''.join(written)}>"


def _known_tag(tag: str) -> str:
    return tag if _TAG.fullmatch(tag) else "element"


def _is_text(node: object) -> bool:
    return isinstance(node, str)


def _plain(text: str) -> str:
    return " ".join(text.split()).replace("<", "&lt;").replace(">", "&gt;")


@dataclass(slots=True)
class _Parent:
    depth: int
    name: str
    """Its name, which its texts need not repeat."""
    line: int
    bare: str = ""
    """The line of an element without a number and a name, which is dropped if nothing is within; empty for others."""


@dataclass(slots=True)
class _TreeText:
    lines: list[str] = field(default_factory=list)
    open: list[_Parent] = field(default_factory=list)
    joins: int = -1
    """Number of open parents of the last line, if that is a text that may go on."""

    def close(self, depth: int) -> None:
        """Close the parents that a node at this depth is not within."""
        while self.open and self.open[-1].depth >= depth:
            parent = self.open.pop()
            if parent.bare and parent.line == len(self.lines) - 1 and self.lines[-1] == parent.bare:
                self.lines.pop()

    def add_text(self, text: str) -> None:
        """Add a text; an empty one is an element without a role, `\\n` one that begins a line."""
        if not text.strip():
            self.joins = self.joins if text == "" else -1
            return
        if any(text in parent.name for parent in self.open):
            return
        parent = self.open[-1] if self.open else None
        if parent and parent.line == len(self.lines) - 1 and self.lines[-1] == parent.bare:
            self.lines[-1] += f": {text}"
        elif self.joins == len(self.open):
            self.lines[-1] += f" {text}"
        else:
            self.lines.append(f"{'  ' * len(self.open)}{text}")
        self.joins = len(self.open)

    def add_element(self, depth: int, text: str, name: str, *, is_bare: bool) -> None:
        line = f"{'  ' * len(self.open)}{text}"
        self.open.append(_Parent(depth, name, len(self.lines), when(is_bare, line)))
        self.lines.append(line)
        self.joins = -1


async def read_tree(session: BrowserSession, elements: Sequence[Element]) -> str:
    """Return the page's tree. `elements`: those that the look before has marked.

    Raises `BoundaryError` if the page can't be read.
    """
    nodes = await session.evaluate(f"(options) => {PAGE_JS}.html.tree(options)", {"marks": bool(elements)})
    with reading_page():
        return await asyncio.to_thread(write_tree, nodes, elements)


def write_tree(nodes: Sequence[Sequence[Any]], elements: Sequence[Element]) -> str:
    """Return the lines of a tree: `[depth, text]`, or `[depth, role, id, name, level]`, depth first.

    A text may be empty or `\\n`: an element without a role, within a line or not.
    """
    listed, tree, shown = {one.id: one for one in elements}, _TreeText(), dict[int, int]()
    for fields in nodes:
        tree.close(int(fields[0]))
        if len(fields) == 2:
            tree.add_text(str(fields[1]))
            continue
        depth, role, number, name, level = fields
        if element := listed.get(number):
            shown[number] = len(tree.lines)
            tree.add_element(depth, _format_marked(element), element.name, is_bare=False)
        else:
            text = f"{role}{when(level, f' {level}')}{when(name, f' {json.dumps(name, ensure_ascii=False)}')}"
            tree.add_element(depth, text, str(name), is_bare=not name)
    tree.close(-1)
    lines = [*_cut(tree.lines)]
    kept = len(lines)
    return "\n".join([*lines, *(_format_marked(one) for one in elements if shown.get(one.id, kept) >= kept)])


def _cut(lines: Sequence[str]) -> Iterator[str]:
    length = 0
    for number, line in enumerate(lines):
        length += len(line) + 1
        if length > MAX_TREE_CHARACTERS:
            yield f"... {len(lines) - number} more lines"
            return
        yield line


def _format_marked(element: Element) -> str:
    return f"[{element.id}] {format_element(element)}"


def format_state(state: PageState) -> str:
    """Return the first line of a tree: how far the page can be scrolled."""
    ways = (
        when(one.name, f"{json.dumps(one.name, ensure_ascii=False)}: ") + f"{one.above:g} above, {one.below:g} below"
        for one in state.scrolls
    )
    return f"(screens to scroll: {'; '.join(ways)}; {state.outside} controls outside the view)"
