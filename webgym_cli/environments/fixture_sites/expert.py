"""Expert for all tasks of the sites: it observes what a policy observes in set_of_marks mode, for any seed."""

from __future__ import annotations

import re
import string
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from webgym_cli.environments.fixture_sites.expressions import evaluate, fill
from webgym_cli.environments.fixture_sites.tasks import find_task
from webgym_cli.errors import BoundaryError
from webgym_cli.records.action import Action, ActionName
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.trajectory import Element
from webgym_cli.records.webrl import AnyAction, WebRLAction, WebRLActionName

if TYPE_CHECKING:
    from webgym_cli.environments.browser.session import BrowserSession

# Yields actions; before each one the expert receives the next page.
ActionPlan = Generator[AnyAction, None, None]
_TEXT = "() => document.body ? document.body.innerText.slice(0, 200000) : ''"
_SCROLLS, _WAITS = 4, 5
# Roles of text fields.
_FIELDS = ("textbox", "searchbox", "password", "textarea", "combobox")


class SiteExpert:
    """Solves one episode. Generator methods are called with `yield from`."""

    def __init__(self, steps: Sequence[Any], values: Mapping[str, Any]) -> None:
        """`steps`: as in `_follow`. `values`: the values in the instruction, by the names in the steps."""
        self._plan = self._follow(steps, dict(values))
        self._url = ""
        self._elements: Sequence[Element] = ()
        self._text = ""
        self._pages_down = 0
        self._waited = False

    async def act(self, session: BrowserSession, elements: Sequence[Element]) -> AnyAction:
        """Return the next action on the open page. Raises `BoundaryError` if the expert can't continue."""
        text = await session.evaluate(_TEXT)
        try:
            return self.next(session.url, elements, text)
        except LookupError as error:
            raise BoundaryError(FailureKind.ENVIRONMENT_ERROR, f"the expert is lost: {error}") from error

    def next(self, url: str, elements: Sequence[Element], text: str) -> AnyAction:
        """Return the next action from the page's URL, listed elements and `document.body.innerText`.

        A blank page is waited for, then reloaded. Raises `LookupError` if the page is unexpected, or if the answer was
        already given.
        """
        if not text.strip() and not elements:
            self._waited = not self._waited
            wait = Action(name=ActionName.WAIT, seconds=1)
            return wait if self._waited else Action(name=ActionName.NAVIGATE, url=url)
        if url != self._url:
            self._pages_down = 0
        self._waited, self._url, self._elements, self._text = False, url, elements, text
        try:
            return next(self._plan)
        except StopIteration:
            raise LookupError("the answer was already given") from None

    def _follow(self, steps: Sequence[Any], names: dict[str, Any]) -> ActionPlan:
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
                yield from self._follow(step, names)
            elif "each" in step:
                yield from self._repeat(step, names)
            else:
                ((kind, value),) = step.items()
                yield from self._act(kind, value, names)

    def _repeat(self, step: Mapping[str, Any], names: dict[str, Any]) -> ActionPlan:
        listed, done = step["each"], []
        for item in evaluate(listed, names) if isinstance(listed, str) else listed:
            one = names | {name: fill(str(value), names) for name, value in item.items()}
            yield from self._follow(step["do"], one)
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
        """Return the element with this name, scrolling until it is visible. Raises `LookupError` if it is not found."""
        for _ in range(3 * _SCROLLS):
            for element in self._elements:
                if element.name == name and element.role in roles:
                    return element
            yield self._scroll()
        raise LookupError(f"{self._url} shows no element that is called {name!r}")

    def _type(self, name: str, text: str) -> ActionPlan:
        element = yield from self._find(name, *_FIELDS)
        if element.value != text:
            yield Action(name=ActionName.TYPE, element_id=element.id, text=text)

    def _read(self, pattern: str) -> Generator[AnyAction, None, list[dict[str, str]]]:
        """Return the groups of all matches of a pattern in the page's text, waiting for a page that is still loading.

        `^` and `$` in the pattern match at lines.
        """
        for _ in range(_WAITS):
            matches = list(re.finditer(pattern, self._text, re.MULTILINE))
            if matches:
                return [{name: text.strip() for name, text in match.groupdict().items()} for match in matches]
            yield Action(name=ActionName.WAIT, seconds=1)
        raise LookupError(f"{self._url} has no text like {pattern!r}")

    def _scroll(self) -> Action:
        # Down first, then up: elements that were passed are above.
        if self._pages_down >= _SCROLLS:
            self._pages_down = -_SCROLLS
        self._pages_down += 1
        return Action(name=ActionName.SCROLL, direction="down" if self._pages_down > 0 else "up")


def make_site_expert(task_id: str, instruction: str) -> SiteExpert:
    """Return an expert for one episode of a task of the sites.

    Raises `UsageError` for an unknown task, `LookupError` for an instruction of another task.
    """
    task = find_task(task_id)
    return SiteExpert(task.expert, parse_instruction(task.instruction, instruction))


def parse_instruction(template: str, instruction: str) -> dict[str, str]:
    """Return the values of the template's names in the instruction. Raises `LookupError` if it doesn't match."""
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
