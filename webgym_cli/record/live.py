"""A task that a person does: events become actions, which are executed as a policy's are."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count
from typing import Any

from webgym_cli.agent.forms.tools import describe_action
from webgym_cli.config.model import Settings
from webgym_cli.environments.base import EnvironmentStep
from webgym_cli.environments.browser.frames import NOWHERE, ActScript
from webgym_cli.environments.browser.pages import FILE_REQUEST
from webgym_cli.environments.sites.site_expert import SECTIONED
from webgym_cli.environments.web.environment import WebEnvironment
from webgym_cli.errors import BoundaryError
from webgym_cli.record.replay import ActionWriter, Place, Replay, find_element, list_seen
from webgym_cli.records.action import NORMALISED, POINTING, Action, ActionName
from webgym_cli.records.recording import RecordedAction, RecordedTarget
from webgym_cli.records.task import Task
from webgym_cli.records.trajectory import Element
from webgym_cli.tasks.files import UPLOADS
from webgym_cli.util.optional import when

# Keys that edit the text of a field: what they lead to is recorded, not they.
_EDITS = ("Backspace", "Delete", "ArrowLeft", "ArrowRight", "Home", "End", "a", "c", "v", "x", "z")
# The most sections of a field, as a date's.
_SECTIONS = 6


class LiveTask:
    """One task on a live page, and what a person has done so far."""

    def __init__(self, environment: WebEnvironment, task: Task, seed: int, settings: Settings) -> None:
        self.task, self.instruction = task, task.instruction
        self.actions: list[RecordedAction] = []
        self.message = ""
        """Why the last event had no effect."""
        self.choices: dict[str, Any] = {}
        """What the person has to choose next: an option of a list, or a file."""
        self._environment, self._seed, self._settings = environment, seed, settings
        self._name, self._openings = environment.episode, count(1)
        self._writer, self._lock = ActionWriter(settings), asyncio.Lock()
        self._has_moved = False
        """Whether the last Tab changed what is on the page, or where."""
        self._entered: RecordedAction | None = None
        """The click after which the last sections were typed."""

    async def open(self) -> None:
        """Open the start page in a fresh context."""
        # With one id for all, a hook that makes a tenant for an episode was asked for the same again by each undo.
        self._environment.episode = f"{self._name}.{next(self._openings)}"
        self.instruction, _ = await self._environment.reset(self.task, self._seed)

    async def screenshot(self) -> bytes:
        """Return the page as it is now; empty while a dialog hides it, and after the task."""
        async with self._lock:
            if self._environment.page is None:  # the task has ended meanwhile
                return b""
            session = self._environment.session
            return b"" if session.dialogs.open else await session.screenshot()

    def describe(self) -> dict[str, Any]:
        """Return what the person's page shows."""
        session = self._environment.session
        return {
            "task": self.task.id,
            "instruction": self.instruction,
            "url": session.url,
            "tabs": [[page.url, page is session.page] for page in session.pages.tabs],
            "actions": [_describe(recorded) for recorded in self.actions],
            "message": self.message,
            "choices": self.choices,
            "dialog": session.dialogs.describe(),
        }

    async def act(self, action: Action) -> None:
        """Execute an event, given as an action in coordinates mode, and record it."""
        async with self._lock:
            self.message, self.choices = "", {}
            try:
                await self._act(action)
            except BoundaryError as error:
                self.message = f"{error.kind}: {error}"
            except LookupError as error:
                self.message = str(error.args[0])

    async def undo(self) -> None:
        """Do all but the last action again, in a fresh context."""
        async with self._lock:
            self.message, self.choices, self.actions = "", {}, self.actions[:-1]
            replay = Replay(self.actions, self._settings)
            try:
                await self.open()
                while action := await replay.next(self._environment.session):
                    await self._environment.step(action)
            except (BoundaryError, LookupError) as error:
                self.message = f"the actions before could not be repeated: {error}"

    async def _act(self, action: Action) -> None:
        session, seen = self._environment.session, await list_seen(self._environment.session)
        if action.name is ActionName.KEY or action.here:
            await self._press(action, seen)
            return
        points = [point and self._find_pixels(point) for point in (action.coordinate, action.to_coordinate)]
        if action.name is ActionName.CLICK and action.button is None and points[0]:
            menu = await ActScript(session).call_at("options", points[0])
            if menu.get("options"):
                self.choices = menu | {"coordinate": action.coordinate}
            if self.choices and menu["name"] == ActionName.SELECT_OPTION:
                return
        has_target = action.name in (*POINTING, ActionName.DRAG)
        if action.name is ActionName.SCROLL and points[0] and self._writer.needs_element:
            has_target = (await ActScript(session).call("wheelAt", points[0], action.direction))["apart"]
        places = [(find_element(point, seen), point) if point and has_target else None for point in points]
        result = await self._perform(action, *places)
        if result and result.view and FILE_REQUEST in result.view.notices:
            folder = session.options.upload_folder
            files = sorted(path.name for path in folder.iterdir() if path.is_file()) if folder else []
            self.actions.pop()  # the upload clicks itself
            self.choices = {"name": "upload_file", "options": files, "coordinate": action.coordinate}
            self.message = when(not files, f"the task has no files (its field {UPLOADS})")

    async def _press(self, action: Action, seen: Sequence[Element]) -> None:
        """Execute keys. What they change in a field is recorded as one text."""
        focused = _find_focused(seen)
        key, is_plain = action.keys[-1] if action.keys else action.text, len(action.keys or ()) < 2
        before, is_rich = await self._read_field()
        if key == "Tab":
            try:
                await self._perform(action)  # it ends an entry, as the next action on an element does
            except LookupError:  # the action set has no keys
                await self._step(action)
            # A click would end the entry too, but miss what then moves away from the pointer.
            self._has_moved = _list_places(await list_seen(self._environment.session)) != _list_places(seen)
        elif is_rich and self._goes_on(focused):
            await self._perform(action)  # the whole text in one piece would lose its formats
        elif focused and before is not None and (action.name is ActionName.TYPE or key in _EDITS):
            if await self._edit(action, focused):
                await self._record_edit(action, focused, before)
        elif focused and before is not None and key == "Enter" and is_plain and not self._is_choosing:
            if await self._step(action):
                self._record_text(focused, f"{before}\n")
        elif focused and before is None and key in ("Enter", "Space", " ") and is_plain:
            await self._perform(Action(name=ActionName.CLICK, here=True), _find_centre(focused))
        else:
            await self._perform(action)

    async def _edit(self, action: Action, field: Element) -> EnvironmentStep | None:
        if action.name is not ActionName.TYPE or field.role not in SECTIONED:
            return await self._step(action)
        result = None
        last = next(reversed(self.actions), None)
        is_new, self._entered = last is not self._entered, last
        if is_new and self._writer.needs_element and last and last.action.name is ActionName.CLICK:
            session = self._environment.session
            async with session.guard("going to the first section"):  # that click was at the middle of the field
                for _ in range(_SECTIONS):
                    await session.page.keyboard.press("ArrowLeft")
        for key in action.text or "":  # a policy writes the whole value at once, a person a section
            result = await self._step(Action(name=ActionName.KEY, keys=(key,)))
        return result

    async def _record_edit(self, action: Action, field: Element, before: str) -> None:
        """Record what keys made of a field; the keys themselves if the page then moved on to another field."""
        now = _find_focused(await list_seen(self._environment.session))
        if action.text and now and (now.role, now.name, now.box[0]) != (field.role, field.name, field.box[0]):
            self.actions.append(self._record(action))
        elif (after := (await self._read_field())[0]) not in (None, before):
            self._record_text(field, str(after))

    def _goes_on(self, field: Element | None) -> bool:
        """Whether text goes on in a field after what may have set its format: keys, or a click on a toolbar."""
        last = next(reversed(self.actions), None)
        if last is None or _is_on(last, field):
            return False
        is_typed = last.action.name is ActionName.KEY or (last.target is None and bool(last.action.append))
        return is_typed or any(_is_on(one, field) for one in self.actions)

    @property
    def _is_choosing(self) -> bool:
        """Whether Enter takes what the key before has chosen from the suggestions of a field."""
        return bool(self.actions) and self.actions[-1].action.name is ActionName.KEY

    def _record_text(self, field: Element, text: str) -> None:
        """Record the text of a field, in place of its earlier text and of the click into it."""
        self._drop_tab()
        before = next(reversed(self.actions), None)
        if before and _is_on(before, field):
            sent = (before.action.text or "").endswith("\n")  # a text that was sent is not typed on
            goes_on = not sent or text.startswith(before.action.text or "")
            if before.action.name in (ActionName.CLICK, ActionName.TYPE) and goes_on:
                self.actions.pop()
        self.actions.append(self._record(Action(name=ActionName.TYPE, text=text, here=True), _find_centre(field)))

    async def _perform(self, action: Action, *places: Place | None) -> EnvironmentStep | None:
        """Execute an action and record it, unless it failed. Raises `LookupError` if the policy lacks it."""
        recorded = self._record(action, *places)
        if result := await self._step(recorded.action):
            if recorded.target:
                self._drop_tab()
            self.actions.append(recorded)
        return result

    def _drop_tab(self) -> None:
        """Drop a last Tab, which the next action on an element makes superfluous, unless it moved the page."""
        if self.actions and (self.actions[-1].action.keys or ("",))[-1] == "Tab" and not self._has_moved:
            self.actions.pop()

    async def _step(self, action: Action) -> EnvironmentStep | None:
        result = await self._environment.step(action)
        self.message = result.action_error or ""
        return None if result.action_error else result

    async def _read_field(self) -> tuple[str | None, bool]:
        """Return the text of the field with the focus, None if keys go elsewhere, and whether it has formats."""
        session = self._environment.session
        field = {} if session.dialogs.open else await ActScript(session).call_at("typing", NOWHERE)
        return field.get("text"), bool(field.get("isRich"))

    def _record(self, action: Action, *places: Place | None) -> RecordedAction:
        target, to_target, *_ = (*(place and _make_target(*place) for place in places), None, None)
        way = [self._find_pixels(point) for point in action.path or ()]
        written = self._writer.write(action, places, self._size, way)
        path = tuple((x - places[0][1][0], y - places[0][1][1]) for x, y in when(written.path, way) if places[0])
        return RecordedAction(action=written, target=target, to_target=to_target, path=path)

    def _find_pixels(self, point: tuple[float, float]) -> tuple[float, float]:
        return point[0] / NORMALISED * self._size[0], point[1] / NORMALISED * self._size[1]

    @property
    def _size(self) -> tuple[int, int]:
        options = self._environment.session.options
        return options.width, options.height


def _find_focused(seen: Sequence[Element]) -> Element | None:
    return next((one for one in seen if "focused" in one.states), None)


def _is_on(recorded: RecordedAction, field: Element | None) -> bool:
    target = recorded.target
    return target is not None and field is not None and (target.role, target.name) == (field.role, field.name)


def _list_places(seen: Sequence[Element]) -> list[tuple[object, ...]]:
    return [(one.role, one.name, one.box) for one in seen]


def _find_centre(element: Element) -> Place:
    left, top, width, height = element.box
    return element, (left + width / 2, top + height / 2)


def _make_target(element: Element | None, point: tuple[float, float]) -> RecordedTarget | None:
    if element is None:
        return None
    offset = round(point[0] - element.box[0], 1), round(point[1] - element.box[1], 1)
    return RecordedTarget(role=element.role, name=element.name, box=element.box, offset=offset)


def _describe(recorded: RecordedAction) -> str:
    targets = [f"{one.role} {one.name!r}" for one in (recorded.target, recorded.to_target) if one]
    nowhere = {"element_id": None, "coordinate": None, "to_element_id": None, "to_coordinate": None}
    action = recorded.action.model_copy(update=nowhere) if targets else recorded.action
    return " ".join((describe_action(action), *targets))
