"""Follows the steps of an expert of the sites: it looks at what a policy is shown, and names one action at a time."""

from __future__ import annotations

import re
import string
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from webgym_cli.environments.fixture_sites.expressions import evaluate, fill
from webgym_cli.records.action import Action, ActionName
from webgym_cli.records.trajectory import Element
from webgym_cli.records.webrl import AnyAction, WebRLAction, WebRLActionName

# Yields one action after the other; between two of them the driver is shown the next page.
ActionPlan = Generator[AnyAction, None, None]
_SCROLLS, _WAITS = 4, 5
# The roles of what can be typed into.
_FIELDS = ("textbox", "searchbox", "password", "textarea", "date", "combobox")


class ExpertDriver:
    """The current page, and how to act on it. Methods that return a generator are used with `yield from`."""

    def __init__(self) -> None:
        self.url = ""
        self.elements: Sequence[Element] = ()
        self.text = ""
        self._pages_down = 0

    def look(self, url: str, elements: Sequence[Element], text: str) -> None:
        """Take in the next page."""
        if url != self.url:
            self._pages_down = 0
        self.url, self.elements, self.text = url, elements, text

    def follow(self, steps: Sequence[Any], names: dict[str, Any]) -> ActionPlan:
        """Follow the steps, each of one of these kinds; a list in place of a step is followed too.

        - `click`: the role and the name of an element;
        - `type`: texts by the names of fields; a line feed at the end submits the form;
        - `read`: a pattern, whose groups are names from then on; `rows`: all its places, as a list of that name;
        - `set`: names and expressions;
        - `each` and `do`: steps for each item of a list; the names of each are in `done` afterwards;
        - `switch_tab`: a number;
        - `answer`: the answer.

        All texts are for Jinja, with the names so far.
        """
        for step in steps:
            if isinstance(step, list):
                yield from self.follow(step, names)
            elif "each" in step:
                yield from self._repeat(step, names)
            else:
                ((kind, value),) = step.items()
                yield from self._act(kind, value, names)

    def _repeat(self, step: Mapping[str, Any], names: dict[str, Any]) -> ActionPlan:
        listed, done = step["each"], []
        for item in evaluate(listed, names) if isinstance(listed, str) else listed:
            one = names | {name: fill(str(value), names) for name, value in item.items()}
            yield from self.follow(step["do"], one)
            done.append(one)
        names["done"] = done

    def _act(self, kind: str, value: Any, names: dict[str, Any]) -> ActionPlan:
        if kind == "click":
            role, name = fill(value, names).split(" ", 1)
            element = yield from self._find(name, role)
            yield Action(name=ActionName.CLICK, element_id=element.id)
        elif kind == "type":
            for name, text in value.items():
                yield from self._type(fill(name, names), fill(text, names))
        elif kind == "read":
            names |= (yield from self._read(fill(value, names)))[0]
        elif kind == "rows":
            names["rows"] = yield from self._read(fill(value, names))
        elif kind == "set":
            for name, expression in value.items():
                names[name] = evaluate(expression, names)
        elif kind == "switch_tab":
            yield WebRLAction(name=WebRLActionName.SWITCH_TAB, tab=value)
        elif kind == "answer":
            yield Action(name=ActionName.ANSWER, text=fill(value, names))
        else:
            raise ValueError(f"an expert's step is of no kind: {kind}")

    def _find(self, name: str, *roles: str) -> Generator[AnyAction, None, Element]:
        """Return the element of this name, scrolling until it is in sight. Raises `LookupError` if it never is."""
        for _ in range(3 * _SCROLLS):
            for element in self.elements:
                if element.name == name and element.role in roles:
                    return element
            yield self._scroll()
        raise LookupError(f"{self.url} shows no element that is called {name!r}")

    def _type(self, name: str, text: str) -> ActionPlan:
        element = yield from self._find(name, *_FIELDS)
        if element.value != text:
            yield Action(name=ActionName.TYPE, element_id=element.id, text=text)

    def _read(self, pattern: str) -> Generator[AnyAction, None, list[dict[str, str]]]:
        """Return the groups at all places of a pattern in the page's text, waiting for a page that is still to come.

        In the pattern `^` and `$` stand at lines.
        """
        for _ in range(_WAITS):
            matches = list(re.finditer(pattern, self.text, re.MULTILINE))
            if matches:
                return [{name: text.strip() for name, text in match.groupdict().items()} for match in matches]
            yield Action(name=ActionName.WAIT, seconds=1)
        raise LookupError(f"{self.url} has no text like {pattern!r}")

    def _scroll(self) -> Action:
        # Down first; but what was passed on the way down lies above.
        if self._pages_down >= _SCROLLS:
            self._pages_down = -_SCROLLS
        self._pages_down += 1
        return Action(name=ActionName.SCROLL, direction="down" if self._pages_down > 0 else "up")


def parse_instruction(template: str, instruction: str) -> dict[str, str]:
    """Return what stands in the instruction where its template has names. Raises `LookupError` if it doesn't fit."""
    pattern, seen = "", set[str]()
    for literal, name, _, _ in string.Formatter().parse(template):
        pattern += re.escape(literal)
        if name:
            pattern += f"(?P={name})" if name in seen else f"(?P<{name}>.+?)"
            seen.add(name)
    match = re.fullmatch(pattern, instruction, re.DOTALL)
    if match is None:
        raise LookupError(f"the instruction is not understood: {instruction!r}")
    return match.groupdict()
