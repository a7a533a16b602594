"""The page as an accessibility tree: roles, names, levels, states and texts in sight, with the numbers of the marks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from webgym_cli.agent.prompts.prompt_template import format_element
from webgym_cli.environments.browser.failures import reading_page
from webgym_cli.environments.browser.session import BrowserSession
from webgym_cli.environments.browser.worlds import PAGE_JS
from webgym_cli.records.trajectory import Element, PageState
from webgym_cli.util.optional import when

# Maximum length of a tree in characters, about 3,000 tokens; marked elements beyond it follow without their place.
MAX_CHARACTERS = 12_000


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
        if length > MAX_CHARACTERS:
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
