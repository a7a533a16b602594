"""What all experts of the sites share: they look at what a policy is shown, and name one action at a time."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Generator, Mapping, Sequence

from webgym_cli.records.action import Action, ActionName
from webgym_cli.records.trajectory import Element
from webgym_cli.records.webrl import AnyAction

# Yields one action after the other; between two of them the driver are shown the next page.
ActionPlan = Generator[AnyAction, None, None]
_SCROLLS, _WAITS = 4, 5
# The roles of what can be typed into.
FIELDS = ("textbox", "searchbox", "password", "textarea", "date", "combobox")


class ExpertDriver:
    """The current page, and how to act on it. Methods that return a generator are used with `yield from`."""

    def __init__(self, asked: Mapping[str, str]) -> None:
        self.asked = asked
        """What the instruction says, by the names of its template."""
        self.url = ""
        self.elements: Sequence[Element] = ()
        self.text = ""
        self._pages_down = 0

    def look(self, url: str, elements: Sequence[Element], text: str) -> None:
        """Take in the next page."""
        if url != self.url:
            self._pages_down = 0
        self.url, self.elements, self.text = url, elements, text

    def find(self, name: str, *roles: str) -> Generator[AnyAction, None, Element]:
        """Return the element of this name, scrolling until it is in sight. Raises `LookupError` if it never is."""
        for _ in range(3 * _SCROLLS):
            for element in self.elements:
                if element.name == name and (not roles or element.role in roles):
                    return element
            yield self._scroll()
        raise LookupError(f"{self.url} shows no element that is called {name!r}")

    def click(self, name: str, *roles: str) -> ActionPlan:
        """Click on the element of this name."""
        element = yield from self.find(name, *roles)
        yield Action(name=ActionName.CLICK, element_id=element.id)

    def type(self, name: str, text: str) -> ActionPlan:
        """Type into the field of this name; a line feed at the end submits its form."""
        element = yield from self.find(name, *FIELDS)
        if element.value != text:
            yield Action(name=ActionName.TYPE, element_id=element.id, text=text)

    def fill(self, fields: Mapping[str, str]) -> ActionPlan:
        """Type into several fields."""
        for name, text in fields.items():
            yield from self.type(name, text)

    def read(self, pattern: str) -> Generator[AnyAction, None, tuple[str, ...]]:
        """Return the groups of a pattern in the page's text, waiting for a page that is still to come."""
        found = yield from self.read_all(pattern)
        return found[0]

    def read_all(self, pattern: str) -> Generator[AnyAction, None, list[tuple[str, ...]]]:
        """Return the groups of all places of a pattern in the page's text; `^` and `$` stand at lines."""
        for _ in range(_WAITS):
            found = [match.groups() for match in re.finditer(pattern, self.text, re.MULTILINE)]
            if found:
                return found
            yield Action(name=ActionName.WAIT, seconds=1)
        raise LookupError(f"{self.url} has no text like {pattern!r}")

    def answer(self, text: str) -> ActionPlan:
        """Give the answer."""
        yield Action(name=ActionName.ANSWER, text=text)

    def _scroll(self) -> Action:
        # Down first; but what was passed on the way down lies above.
        if self._pages_down >= _SCROLLS:
            self._pages_down = -_SCROLLS
        self._pages_down += 1
        return Action(name=ActionName.SCROLL, direction="down" if self._pages_down > 0 else "up")


# Solves one task, whatever its seed.
Solver = Callable[[ExpertDriver], ActionPlan]


def parse_instruction(template: str, instruction: str) -> dict[str, str]:
    """Return what stands in the instruction where its template has names. Raises `LookupError` if it doesn't fit."""
    pattern, seen = "", set[str]()
    for literal, name, _, _ in string.Formatter().parse(template):
        pattern += re.escape(literal)
        if name:
            pattern += f"(?P={name})" if name in seen else f"(?P<{name}>.+?)"
            seen.add(name)
    found = re.fullmatch(pattern, instruction, re.DOTALL)
    if found is None:
        raise LookupError(f"the instruction is not understood: {instruction!r}")
    return found.groupdict()
