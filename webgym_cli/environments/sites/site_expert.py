"""`expert`: makes a generator that does the tasks of a site, from what a policy sees in set_of_marks mode."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from operator import eq
from typing import TYPE_CHECKING, Any

from webgym_cli.errors import UsageError
from webgym_cli.records.action import Action, ActionName
from webgym_cli.records.task import Task
from webgym_cli.records.trajectory import Element
from webgym_cli.records.webrl import AnyAction, WebRLAction
from webgym_cli.scoring.registry import task_fields
from webgym_cli.scoring.user_function import UserFunction
from webgym_cli.tools.workers import Workers
from webgym_cli.util.registry import Registry

if TYPE_CHECKING:
    from webgym_cli.environments.browser.session import BrowserSession

# Yields actions, or other plans, whose results it receives.
ActionPlan = Generator[Any, Any, Any]
Name = str | re.Pattern[str]
_TEXT = "() => document.body ? document.body.innerText.slice(0, 200000) : ''"
_SCROLLS, _WAITS = 4, 5
# Scrolls that move nothing, after which the page has no such element: two each way, as a page may still be loading.
_STILL = 4
# Maximum number of names in a message.
_NAMES = 12
# Roles of fields that people fill in section by section, of text fields, of all fields, and of lists of options.
SECTIONED = ("date", "time", "month", "week", "datetime")
_TEXT_FIELDS = ("textbox", "searchbox", "password", "combobox", "spinbutton")
_FIELDS = (*_TEXT_FIELDS, "color", "slider", *SECTIONED)
_LISTS = ("combobox", "listbox")


class ExpertPage:
    """The page as a policy sees it, and the actions on it, which an expert yields: `yield page.click("Save")`.

    An element is found by its exact name, or a regular expression that matches within it, and its role if that is
    given; the page is scrolled until it is visible. Of several that are alike `nth` counts those in sight, from 0.
    """

    url = ""
    text = ""
    """Visible text of the page, or what an open dialog says."""
    elements: Sequence[Element] = ()
    """The marked elements, with their `role`, `name` and `value`."""

    def __init__(self) -> None:
        self._pages_down = 0

    def show(self, url: str, elements: Sequence[Element], text: str) -> None:
        """Take over what the policy sees now."""
        if url != self.url:
            self._pages_down = 0
        self.url, self.elements, self.text = url, elements, text

    def find(self, name: Name, *roles: str, nth: int = 0) -> ActionPlan:
        """Return the element of this name, of any role without `roles`. Raises `LookupError` if there is none."""
        is_named = name.search if isinstance(name, re.Pattern) else partial(eq, name)
        still, moved, ends = 0, False, set[object]()  # scrolls in a row that moved nothing; ends that were reached
        known: dict[str, str] = {}  # also of elements that a scroll has moved out of sight
        for left in reversed(range(3 * _SCROLLS + 1)):
            known |= {element.name: element.role for element in self.elements}
            alike = [one for one in self.elements if is_named(one.name) and (not roles or one.role in roles)]
            alike = [one for one in alike if roles != _FIELDS or one.role in _TEXT_FIELDS] or alike
            if nth < len(alike):
                return alike[nth]
            if still == _STILL or len(ends) == 2 or not left:
                break
            before, look = self.elements, self._look_around(turn=still > 0)
            yield look
            if self.elements != before:
                still, moved = 0, True
                continue
            still += 1
            if moved:  # otherwise it may still be loading
                ends.add(look.direction)
        near = get_close_matches(str(getattr(name, "pattern", name)), known, n=len(known) or 1, cutoff=0)
        near.sort(key=lambda one: known[one] not in roles)
        shown = ", ".join(f"{known[one]} {one!r}" for one in near[:_NAMES])
        kind = {_FIELDS: "field", _LISTS: "list"}.get(roles, " or ".join(roles) or "element")
        wanted = f"{kind} that is called {name!r}"
        if nth:
            wanted += f" as number {nth}, of {len(alike)} in sight"
        raise LookupError(f"{self.url} shows no {wanted}, but {shown or 'nothing'}")

    def click(self, name: Name, role: str = "", *, nth: int = 0, **how: Any) -> ActionPlan:
        """Click an element. `how`: `clicks=2`, `button="right"`, `modifiers=("Shift",)`, `position=(400, 600)`."""
        return self._act(ActionName.CLICK, name, *filter(None, (role,)), nth=nth, **how)

    def hover(self, name: Name, *, nth: int = 0, **how: Any) -> ActionPlan:
        """Move the mouse onto an element. `how`: `position`."""
        return self._act(ActionName.HOVER, name, nth=nth, **how)

    def drag(self, name: Name, to: Name, *, nth: int = 0, **how: Any) -> ActionPlan:
        """Drag an element onto another one in sight. `how`: `position`, `to_position`, `path`, in thousandths."""
        target = yield self.find(to)
        yield self._act(ActionName.DRAG, name, nth=nth, to_element_id=target.id, **how)

    def type(self, name: Name, text: str, *, nth: int = 0) -> ActionPlan:
        """Type into a field, unless it has this text; a line feed at the end submits the form. Text fields go first."""
        element = yield self.find(name, *_FIELDS, nth=nth)
        if element.value != text:
            yield Action(name=ActionName.TYPE, element_id=element.id, text=text)

    def select(self, name: Name, option: str, *, nth: int = 0) -> ActionPlan:
        """Select an option of a list."""
        return self._act(ActionName.SELECT_OPTION, name, *_LISTS, nth=nth, text=option)

    def upload(self, name: Name, file: str, *, nth: int = 0) -> ActionPlan:
        """Choose a file of the task's folder in a file field."""
        return self._act(ActionName.UPLOAD_FILE, name, nth=nth, text=file)

    def read(self, pattern: str) -> ActionPlan:
        """Return the groups of the first match of a regular expression in the page's text."""
        return (yield self.read_all(pattern))[0]

    def read_all(self, pattern: str) -> ActionPlan:
        """Return the groups of all matches in the page's text, waiting for a page that is still loading.

        `^` and `$` match at lines. Raises `LookupError` if there is none.
        """
        for _ in range(_WAITS):
            if matches := list(re.finditer(pattern, self.text, re.MULTILINE)):
                return [{name: text.strip() for name, text in match.groupdict("").items()} for match in matches]
            yield self.wait()
        raise LookupError(f"{self.url} has no text like {pattern!r}")

    def goto(self, url: str) -> Action:
        """Open an address."""
        return Action(name=ActionName.NAVIGATE, url=url)

    def back(self) -> Action:
        """Go back in history."""
        return Action(name=ActionName.GO_BACK)

    def press(self, *keys: str) -> Action:
        """Press keys together."""
        return Action(name=ActionName.KEY, keys=keys)

    def scroll(self, direction: str = "down") -> Action:
        """Scroll by a page."""
        return Action.model_validate({"name": ActionName.SCROLL, "direction": direction})

    def wait(self, seconds: float = 1) -> Action:
        """Wait."""
        return Action(name=ActionName.WAIT, seconds=seconds)

    def switch_tab(self, number: int) -> Action:
        """Show another tab, counted from 0."""
        return Action(name=ActionName.SWITCH_TAB, tab=number)

    def answer(self, text: str) -> Action:
        """End the episode with an answer."""
        return Action(name=ActionName.ANSWER, text=text)

    def _act(self, action: ActionName, name: Name, *roles: str, nth: int, **arguments: Any) -> ActionPlan:
        element = yield self.find(name, *roles, nth=nth)
        yield Action(name=action, element_id=element.id, **arguments)

    def _look_around(self, *, turn: bool = False) -> Action:
        # Down first, then up: elements that were passed are above.
        if self._pages_down >= _SCROLLS or (turn and self._pages_down > 0):
            self._pages_down = -_SCROLLS
        elif turn:
            self._pages_down = 0
        self._pages_down += 1
        return self.scroll("down" if self._pages_down > 0 else "up")


@dataclass(frozen=True)
class SiteExpert(UserFunction):
    """A generator function that does the tasks of a site; its time limit is that of one action."""

    noun = "expert"
    offered = ("page", "seed")
    living = ("page",)


EXPERTS: Registry[SiteExpert] = Registry(
    noun="expert",
    setting="site",
    item_type=SiteExpert,
    usage='from webgym_cli.environments.sites import expert, and put @expert("SITE") over it',
    builtin={},
)


def expert(site: str, *, timeout: float | None = None) -> Callable[[Callable[..., Any]], SiteExpert]:
    """Register a generator function that does the tasks with this `site`, for demonstrations and `--policy oracle`.

    Arguments are passed by name: `page` (the `ExpertPage`), `seed`, and each field of the task. It yields what the
    methods of `page` return. Its return value is the answer; without one the answer is `Done.`
    """
    if not isinstance(site, str) or not site:
        raise UsageError("an expert needs the site that tasks have in their field site", hint='@expert("SITE")')

    def decorate(given: Callable[..., Any]) -> SiteExpert:
        if not inspect.isgeneratorfunction(given):
            raise UsageError(f"expert {site}: it is no generator function", hint='yield page.click("NAME")')
        return EXPERTS.register(site, SiteExpert.of(given, site, timeout=timeout))

    return decorate


class ExpertRun:
    """One episode of an expert."""

    def __init__(self, function: SiteExpert, given: Mapping[str, Any], seconds: float = 60.0) -> None:
        """`given`: arguments by name, besides `page`. `seconds`: time limit of one action."""
        self._function = function
        self._seconds = function.timeout or seconds
        self._page = ExpertPage()
        self._plan = self._start(given)
        self._workers = Workers()
        self._waited = False
        self._last: AnyAction | None = None

    def _start(self, given: Mapping[str, Any]) -> Generator[AnyAction, None, None]:
        # A generator: a task that lacks an argument fails at the first action, and only if the expert acts.
        arguments = self._function.bound({**given, "page": self._page})
        answer = yield from flatten_plan(self._function.function(**arguments))
        yield Action(name=ActionName.ANSWER, text="Done." if answer is None else str(answer))

    async def act(self, session: BrowserSession, elements: Sequence[Element], refusal: str = "") -> AnyAction:
        """Return the next action on the open page. Raises `BoundaryError` if the expert can't continue.

        `refusal`: why the action before was not executed.
        """
        text = session.dialogs.describe() or await session.evaluate(_TEXT)
        try:
            step = partial(self.next, session.url, elements, text, refusal)
            action: AnyAction = await self._workers.call(step, self._seconds)
        except Exception as error:
            raise self._function.explain(error, self._seconds) from error
        return action

    def next(self, url: str, elements: Sequence[Element], text: str, refusal: str = "") -> AnyAction:
        """Return the next action from the page's URL, listed elements and `document.body.innerText`.

        A blank page is waited for, then reloaded. Raises `LookupError` if the page is unexpected, or if the answer was
        already given.
        """
        if not text.strip() and not elements:
            self._waited = not self._waited
            return self._page.wait() if self._waited else self._page.goto(url)
        self._waited = False
        self._page.show(url, elements, text)
        if self._last and self._last.name == ActionName.ANSWER:
            raise LookupError("the answer was already given")
        if refusal and self._last and self._last.name != ActionName.SCROLL:  # the end of a page is no fault
            self._last = self._plan.throw(LookupError(f"{self._last.name} was refused: {refusal}"))
        else:
            self._last = next(self._plan)
        return self._last


def flatten_plan(plan: ActionPlan) -> ActionPlan:
    """Yield the actions of a plan and of the plans that it yields, which get their results or errors back."""
    advance: Callable[[], Any] = partial(plan.send, None)
    while True:
        try:
            step = advance()
        except StopIteration as end:
            return end.value
        is_action = isinstance(step, Action | WebRLAction)
        if not is_action and not isinstance(step, Generator):
            advance = partial(plan.throw, TypeError(f"a {type(step).__name__} is no action of page"))
            continue
        try:
            advance = partial(plan.send, (yield step) if is_action else (yield from flatten_plan(step)))
        except LookupError as error:
            advance = partial(plan.throw, error)


def make_expert(task: Task, seed: int, seconds: float) -> ExpertRun | None:
    """Return the expert of one episode; None for a task whose site has none."""
    if not task.site or task.site not in EXPERTS.names():
        return None
    return ExpertRun(EXPERTS.find(task.site), {**task_fields(task), "seed": seed}, seconds)


def require_site_experts(tasks: Iterable[Task]) -> None:
    """Raise `UsageError` for a task whose site has no expert, or that lacks a field which the expert requires."""
    for task in tasks:
        if task.site not in (known := EXPERTS.names()):
            where = f"the site {task.site}" if task.site else "a task without site"
            raise UsageError(
                f"task {task.id}: there is no expert for {where}; loaded: {', '.join(known) or 'none'}",
                hint='--policy vllm, or name a file with @expert("SITE") in the setting plugins',
            )
        EXPERTS.find(task.site).require_fields(task, task_fields(task), f"expert {task.site}")
